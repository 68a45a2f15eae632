"""csst objective "...": what a sentence means."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from csst.errors import InputError
from csst.maths.confusion import Confusion, check_prior
from csst.maths.gain import gain_matrix
from csst.maths.language import ALIASES, Sentence, objective
from csst.maths.language.tree import render
from csst.maths.multipliers import Multipliers


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst objective", description="Explain an objective.")
    parser.add_argument("sentence", help=f"a sentence such as 'max min(recall)', or one of {', '.join(ALIASES)}")
    parser.add_argument("--prior", help="class fractions of the training data, e.g. 0.7,0.2,0.1 (counts work too)")
    parser.add_argument("--class-names", help="e.g. ok,fraud,unsure")
    args = parser.parse_args(argv)
    names = args.class_names.split(",") if args.class_names else None
    read = objective(args.sentence, class_names=names)
    print(f"objective   {read}")
    if isinstance(read, Sentence):
        print("\n".join(explain(read)))
    if args.prior is None:
        print("gain        depends on the class fractions: pass --prior 0.7,0.2,0.1")
        return 0
    prior = _prior(args.prior)
    game = Multipliers(read, prior)
    start = Confusion.uniform(prior)
    matrix = gain_matrix(game.objective, game.value, start, prior).matrix
    print(f"multipliers {len(game.value)}, at the start:")
    for label, value in zip(game.labels, game.value.tolist(), strict=True):
        print(f"              λ {label:<32} {value:.4g}")
    kind = (
        "diagonal: only hits are rewarded"
        if game.gain.is_diagonal
        else "not diagonal: some misses earn more than others"
    )
    print(f"gain        G at the start ({kind}); row = truth, column = prediction:")
    for row in matrix.tolist():
        print("              " + "  ".join(f"{entry:8.4f}" for entry in row))
    return 0


def explain(read: Sentence) -> list[str]:
    """The objective, the constraints and where the multipliers live, one line each."""
    worst = read.parts[1]
    lines = [f"maximizes   {render(read.expression)}"]
    lines += [f"subject to  {render(constraint)}" for constraint in read.constraints]
    where = [f"the simplex over the entries of {render(w.call)}: a worst case" for w in worst]
    where += ["λ ≥ 0, the price of each constraint"] if read.constraints else []
    lines.append(
        f"λ lives in  {' × '.join(where) if where else 'nothing: no worst case and no constraint, so no multipliers'}"
    )
    data = "training" if read.metric_prior == "train" else "evaluation"
    lines.append(f"derived at  the {data} data's class fractions")
    return lines


def _prior(text: str) -> torch.Tensor:
    try:
        shares = torch.tensor([float(part) for part in text.split(",")], dtype=torch.float64)
    except ValueError:
        raise InputError(f"--prior takes numbers separated by commas; found {text!r}") from None
    return check_prior(shares / shares.sum(), "--prior")
