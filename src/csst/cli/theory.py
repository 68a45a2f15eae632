"""csst theory RUN: what the paper's theory says about a run; csst theory gaussian: its closed forms."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.errors import InputError
from csst.fitted import FittedModel, read_recipe
from csst.maths.confusion import Confusion, confusion_counts
from csst.maths.gain import gain_matrix
from csst.runs.execute import assemble
from csst.runs.folder import Run
from csst.runs.rows import refuse_numbers_only
from csst.statistics.calibration import fit_calibration
from csst.theory.bounds import check_assumptions, useful_errors
from csst.theory.diagnosis import Effort, diagnose, format_gamma, write_sentences
from csst.theory.dual import average_multipliers, dual_diagnostics, duality_gap
from csst.theory.expansion import GaussianExpansion, largest_error, mixture_expansion
from csst.theory.gaussians import boundary_figure, two_gaussians
from csst.theory.weighted_errors import class_fractions, shifted, weights_of_gain
from csst.training.evaluation import compute_logits


def main(argv: Sequence[str]) -> int:
    if argv and argv[0] == "gaussian":
        return gaussian(argv[1:])
    parser = argparse.ArgumentParser(
        "csst theory",
        description="What the paper's theory says about a finished run; csst theory gaussian --help for closed forms.",
    )
    parser.add_argument("run", help="the run's folder, or the word gaussian")
    parser.add_argument(
        "--on", choices=("test", "validation"), help="examples to measure; default test if there are any"
    )
    parser.add_argument("--examples", type=int, default=1000, help="at most so many of them")
    parser.add_argument("--draws", type=int, default=8, help="strong views of each example")
    parser.add_argument("--neighbors", type=int, default=10, help="k of the nearest-neighbor graph")
    args = parser.parse_args(argv)
    run = Run.open(args.run)
    metrics, recipe, journal = run.metrics(), read_recipe(args.run), run.journal()
    refuse_numbers_only(args.run, metrics)
    if not recipe.uses_network:
        raise InputError(
            f"the run {args.run} was trained with {recipe.learner} learners, and this needs a network: train with "
            "--learner network"
        )
    if recipe.folds:
        raise InputError(
            f"the run {args.run} learned from its validation examples (folds {recipe.folds}), on which this measures "
            "the game: train with --folds 0"
        )
    trainer = assemble(recipe)
    task, model = trainer.task, FittedModel.load(args.run, "selected").model
    assert isinstance(model, nn.Module)
    if task.split_hash != metrics["split_hash"]:
        raise InputError(f"the data has changed since the run (split {metrics['split_hash']}, now {task.split_hash})")
    part = args.on or ("validation" if task.test is None else "test")
    measured = task.validation if part == "validation" else task.test
    if measured is None:
        raise InputError("this task has no test examples: use --on validation")
    weights = run_weights(trainer, task, model, metrics, journal)
    model = model.to(trainer.engine.device)
    diagnosis = diagnose(model, task, measured, weights, Effort(args.examples, args.draws, args.neighbors))
    print(f"{metrics['method']} for '{metrics['objective']}', weights w of the gain at step {metrics['selected_step']}")
    print(f"classes in P_w: {_top(class_fractions(weights), task.class_names)}")
    print(f"measured on {diagnosis.examples} {part} examples, ± one standard error")
    print("\n".join(write_sentences(diagnosis)))
    print("\n".join(["", *dual_lines(trainer, task, model, journal)]))
    return 0


def run_weights(trainer: Any, task: Task, model: nn.Module, metrics: dict[str, Any], journal: list[Any]) -> Tensor:
    """The weights w of the gain that the selected model's multipliers give, shifted to be non-negative."""
    record = next((r for r in journal if r["step"] == metrics["selected_step"]), None)
    if record is None:
        raise InputError(f"the journal has no record of the selected step {metrics['selected_step']}: train again")
    game, batch = trainer.multipliers, trainer.settings.training.evaluation_batch
    scores = compute_logits(model, task.validation.inputs, batch, trainer.engine.device)
    counted = confusion_counts(task.validation.labels, scores.argmax(1), task.classes)
    confusion = Confusion.from_counts(counted, task.class_names)
    gain = gain_matrix(game.objective, record["multipliers"], confusion, task.train_prior, game.metric_prior)
    return shifted(weights_of_gain(gain, task.train_prior))


def dual_lines(trainer: Any, task: Task, model: nn.Module, journal: list[dict[str, Any]]) -> list[str]:
    """What the multipliers did and how far from a saddle point the run ended."""
    game = trainer.multipliers
    if not len(game.value):
        return ["The method's objective has no multipliers, so there is no second player to look at."]
    diagnostics = dual_diagnostics(journal, game.labels, game.objective.domain.simplex_mask(len(game.value)).tolist())
    scores = compute_logits(
        model, task.validation.inputs, trainer.settings.training.evaluation_batch, trainer.engine.device
    )
    labels = task.validation.labels
    fractions = torch.bincount(labels, minlength=task.classes).double() / len(labels)
    calibrated = fit_calibration(scores.double().numpy(), labels.numpy()).apply(scores.double().numpy())
    probs = torch.softmax(torch.from_numpy(calibrated) + fractions.log(), 1)
    lines = [f"Multipliers over {diagnostics['updates']} updates:"]
    for name, value in (("last", torch.tensor(journal[-1]["multipliers"])), ("average", average_multipliers(journal))):
        gap = duality_gap(game.objective, value, probs, task.validation.labels, scores.argmax(1))
        lines.append(
            f"  duality gap, {name + ' multipliers':<21} {gap.gap:.3f}   the best rule found against them is worth "
            f"{gap.best_response:.3f}, the classifier at its worst {gap.worst:.3f}"
        )
    if diagnostics["entropy"] is not None:
        lines.append(f"  {'payoffs that count':<34} {diagnostics['effective']:.1f} of {len(diagnostics['last'])}")
    return [*lines, *(f"  ! {warning}" for warning in diagnostics["warnings"])]


def gaussian(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "csst theory gaussian", description="The closed forms for classes N(tau, I/d) with balls of radius r."
    )
    parser.add_argument("--d", type=float, required=True, help="dimension: each coordinate has variance 1/d")
    parser.add_argument("--r", type=float, required=True, help="radius of B(x)")
    parser.add_argument("--err", type=float, required=True, help="err_w of the pseudo-labeler, as a fraction of |w|_1")
    parser.add_argument("--weights", default="1,1", help="weights of two classes for the boundary, e.g. 4,1")
    parser.add_argument("--separation", type=float, help="distance of their centers; default 3 standard deviations")
    parser.add_argument("--figure", help="write the figure of the moving boundary to this .svg, .png or .pdf file")
    args = parser.parse_args(argv)
    if not 0 < args.err <= 1:
        raise InputError(f"--err is a fraction of |w|_1 in (0, 1]; found {args.err}")
    pair = _pair(args.weights)
    single = GaussianExpansion.of(args.d, args.r)
    separation = 3 / args.d**0.5 if args.separation is None else args.separation
    bayes = two_gaussians(separation, pair, args.d, args.r)
    lightest = min(pair)
    print(f"h = 2 r sqrt(d) = {single.h:.4g}")
    mixed = mixture_expansion(single.h, pair)
    for title, c in (
        ("one Gaussian (the paper's closed form)", single),
        (f"a mixture whose lightest class has fraction {lightest:.3g} of |w|_1, however far apart", mixed),
    ):
        checked = check_assumptions(c, args.err, 0.0, 0.0, torch.diag(torch.tensor(pair)))
        print(f"{title}\n  gamma = c({args.err:g}) = {format_gamma(checked.gamma)}; ", end="")
        print(f"gamma > 3 for err_w < {largest_error(c):.4f} |w|_1")
        if checked.hold:
            print(f"  the theorem: err_w <= {checked.promise:.4f} |w|_1 for a perfect, perfectly consistent F*")
        else:
            print("\n".join(f"  the theorem promises nothing: {reason}" for reason in checked.against))
    print(f"two classes {separation:.4g} apart, weights {pair[0]:.3g} and {pair[1]:.3g}: the best classifier F* has")
    print(f"  err_w = {bayes.error:.4g}, R_B,w = {bayes.consistency:.4g}")
    useful = useful_errors(mixed, bayes.error, bayes.consistency, torch.diag(torch.tensor(pair)))
    print(
        "  with this F* the theorem promises an improvement "
        + (f"for err_w(F_pl) from {useful[0]:.4f} to {useful[1]:.4f}" if useful else "for no pseudo-labeler at all")
    )
    if args.figure:
        boundary_figure(args.figure, separation, pair, args.d, args.r)
        print(f"figure in {args.figure}")
    return 0


def _pair(text: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--weights takes two numbers, such as 4,1; found {text!r}") from None
    if not (first > 0 and second > 0 and first + second < float("inf")):
        raise InputError(f"--weights must be positive and finite; found {text!r}")
    return first / (first + second), second / (first + second)


def _top(fractions: Tensor, names: Sequence[str]) -> str:
    order = fractions.argsort(descending=True, stable=True).tolist()[:5]
    more = ", ..." if len(fractions) > 5 else ""
    return ", ".join(f"{names[i]} {float(fractions[i]):.2f}" for i in order) + more
