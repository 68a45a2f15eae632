"""csst objective "...": explain a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from csst.data.costs import read_costs
from csst.errors import InputError
from csst.maths.confusion import Confusion, check_prior
from csst.maths.gain import gain_matrix
from csst.maths.language import ALIASES, Sentence, objective, tree
from csst.maths.language.binding import Binding
from csst.maths.language.meaning import VECTOR, has_groups, has_pairs, is_constant, shape
from csst.maths.language.words import list_words
from csst.maths.multipliers import Multipliers

MEANINGS = {
    "recall": "the fraction of a class's examples that are predicted as it",
    "precision": "the fraction of the predictions of a class that are right",
    "f1": "the harmonic mean of a class's recall and precision",
    "jaccard": "a class's hits divided by its hits and both kinds of mistakes",
    "fbeta": "the mean of a class's precision and recall that weighs recall beta times as much",
    "specificity": "the fraction of the examples of other classes that are not predicted as a class",
    "coverage": "the fraction of all examples that are predicted as a class",
    "accuracy": "the fraction of all predictions that are right",
    "mcc": "Matthews correlation of truth and prediction",
    "abstain": "the fraction of examples, of all or of a class, that get no answer and are left to a human",
    "cost": "the mean cost of a prediction, by the table of costs",
}
NEXT_LINE = "\n" + " " * 12
MEAN_NAMES = {
    "mean": "average",
    "min": "lowest",
    "gmean": "geometric mean",
    "hmean": "harmonic mean",
    "qmean": "quadratic mean",
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst objective", description="Explain an objective.")
    parser.add_argument(
        "sentence", nargs="?", help=f"a sentence such as 'max min(recall)', or one of {', '.join(ALIASES)}"
    )
    parser.add_argument("--prior", help="class fractions of the training data, e.g. 0.7,0.2,0.1 (counts work too)")
    parser.add_argument("--class-names", help="e.g. ok,fraud,unsure")
    parser.add_argument("--confidence", type=float, help="confidence that all bounds hold, e.g. 0.95")
    parser.add_argument("--costs", help="CSV file with the cost of every prediction: a row per true class")
    parser.add_argument("--words", action="store_true", help="list familiar words and how the language writes them")
    args = parser.parse_args(argv)
    if args.words:
        for word, meaning in list_words().items():
            print(f"{word:<20} {meaning}")
        return 0
    if args.sentence is None:
        parser.error("a sentence is needed, such as 'max min(recall)'")
    names = args.class_names.split(",") if args.class_names else None
    costs = read_costs(args.costs) if args.costs else None
    goal = objective(args.sentence, class_names=names, confidence=args.confidence, costs=costs)
    print(f"objective   {goal}")
    if isinstance(goal, Sentence):
        print("\n".join(explain(goal)))
    if goal.column is not None:
        print(f"gain        one for each {goal.column}, from its rates: a decision rule measures them")
        return 0
    if args.prior is None:
        print("gain        depends on the class fractions: pass --prior 0.7,0.2,0.1")
        return 0
    prior = _parse_prior(args.prior)
    game = Multipliers(goal, prior)
    start = Confusion.uniform(prior)
    matrix = gain_matrix(game.objective, game.value, start, prior).matrix
    print(f"multipliers {len(game.value)}, at the start:")
    for label, value in zip(game.labels, game.value.tolist(), strict=True):
        print(f"              λ {label:<32} {value:.4g}")
    kind = "not diagonal: some misses earn more than others"
    if game.gain.is_diagonal:
        kind = "diagonal: only hits are rewarded"
    print(f"gain        G at the start ({kind}); row = truth, column = prediction:")
    for row in matrix.tolist():
        print("              " + "  ".join(f"{entry:8.4f}" for entry in row))
    return 0


def explain(sentence: Sentence) -> list[str]:
    """Return the objective, the constraints and the domain of the multipliers, one line each."""
    verb = "minimizes" if sentence.minimizes else "maximizes"
    lines = [f"in words    {NEXT_LINE.join(say(sentence))}", f"{verb}   {tree.render(read_goal(sentence))}"]
    lines += [f"subject to  {tree.render(constraint)}" for constraint in sentence.constraints]
    if sentence.confidence is not None:
        lines.append(
            f"promised    all bounds with confidence {sentence.confidence!r}, on labels that nothing is fitted to"
        )
    worst_cases = sentence.parts[1]
    domains = [f"the simplex over the entries of {tree.render(case.call)}: a worst case" for case in worst_cases]
    if sentence.constraints:
        domains.append("λ ≥ 0, the price of each constraint")
    if not domains:
        domains = ["nothing: no worst case and no constraint, so no multipliers"]
    lines.append(f"λ lives in  {' × '.join(domains)}")
    data = "training" if sentence.metric_prior == "train" else "evaluation"
    lines.append(f"derived at  the {data} data's class fractions")
    return lines


def read_goal(sentence: Sentence) -> tree.Node:
    """Return what a sentence maximizes or minimizes."""
    if sentence.minimizes:
        assert isinstance(sentence.expression, tree.Negative)
        return sentence.expression.of
    return sentence.expression


def say(sentence: Sentence) -> list[str]:
    """Return the objective in words, then the meaning of each of its metrics, one line each."""
    nodes = [node for part in (sentence.expression, *sentence.constraints) for node in tree.walk(part)]
    names = [node.name for node in nodes if isinstance(node, tree.Metric)]
    names += [node.metric for node in nodes if isinstance(node, tree.Each)]
    request = f"make {_say(read_goal(sentence))} as {'low' if sentence.minimizes else 'high'} as possible"
    if sentence.constraints:
        request += ", with " + " and ".join(_say_constraint(c, sentence.binding) for c in sentence.constraints)
    return [request, *(f"({name}: {MEANINGS[name]})" for name in dict.fromkeys(names))]


def _say_constraint(constraint: tree.Constraint, binding: Binding) -> str:
    sides = [constraint.left, constraint.right]
    bounds = {">=": "at least", "<=": "at most"}
    if is_constant(constraint.left):
        sides.reverse()
        bounds = {"<=": "at least", ">=": "at most"}
    units = ["class"] if any(shape(side, binding) == VECTOR for side in sides) else []
    units += ["group of rows"] if has_groups(constraint) else []
    scope = f" for every {' and '.join(units)}" if units else ""
    return f"{_say(sides[0])} {bounds[constraint.sign]} {_say(sides[1])}{scope}"


def _say(node: tree.Node) -> str:
    if isinstance(node, tree.Call):
        is_metric = len(node.args) == 1 and isinstance(node.args[0], (tree.Metric, tree.Each, tree.By))
        joint = " " if is_metric and node.function in ("mean", "min") else " of "
        return f"the {MEAN_NAMES[node.function]}{joint}{' and '.join(map(_say, node.args))}"
    if isinstance(node, tree.By):
        return f"{_say(node.of)} by {node.column}" if node.group is None else f"{_say(node.of)} in group {node.group}"
    if isinstance(node, tree.Sum) and has_pairs(node):
        return "".join(_say(part) if sign == "+" else f" less {_say(part)}" for sign, part in node.terms)
    if isinstance(node, tree.EveryOther):
        return f"{_say(node.of)} in any other group"
    if isinstance(node, tree.Each):
        return f"{node.metric} in {node.group}"
    if isinstance(node, tree.Metric) and isinstance(node.index, tree.Group):
        return f"the average {node.name} in {node.index.name}"
    if isinstance(node, tree.Metric) and node.index is not None:
        return f"{node.name} of class {node.index}"
    return tree.render(node)


def _parse_prior(text: str) -> torch.Tensor:
    try:
        numbers = torch.tensor([float(part) for part in text.split(",")], dtype=torch.float64)
    except ValueError:
        raise InputError(f"--prior takes numbers separated by commas; found {text!r}") from None
    return check_prior(numbers / numbers.sum(), "--prior")
