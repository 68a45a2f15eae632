"""csst theory RUN: apply the paper's theory to a run; csst theory gaussian: print its closed forms."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.estimation.calibration import fit_calibration
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import refuse_numbers_only
from csst.maths.confusion import Confusion, confusion_counts
from csst.maths.gain import gain_matrix
from csst.runs.begin import assemble, refuse_changed
from csst.runs.folder import Run, read_recipe
from csst.theory.bounds import check_assumptions, useful_errors
from csst.theory.diagnosis import Effort, diagnose, format_gamma, write_sentences
from csst.theory.dual import average_multipliers, dual_diagnostics, duality_gap
from csst.theory.expansion import Expansion, GaussianExpansion, largest_error, mixture_expansion
from csst.theory.gaussians import boundary_figure, two_gaussians
from csst.theory.weighted_errors import class_fractions, shifted, weights_of_gain
from csst.training.evaluation import compute_logits
from csst.training.trainer import Trainer


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
    parser.add_argument("--examples", type=int, default=1000, help="largest number of examples (1000)")
    parser.add_argument("--draws", type=int, default=8, help="strong views of each example")
    parser.add_argument("--neighbors", type=int, default=10, help="k of the nearest-neighbor graph")
    args = parser.parse_args(argv)
    run = Run.open(args.run)
    metrics = run.metrics()
    journal = run.journal()
    trainer = load_trainer(args.run, metrics)
    task = trainer.task
    network = FittedModel.load(args.run, "selected").model
    assert isinstance(network, nn.Module)
    device = trainer.engine.device
    model = network.to(device)
    part = args.on or ("validation" if task.test is None else "test")
    if part == "test" and task.test is None:
        raise InputError("this task has no test examples: use --on validation")
    labeled = task.require("validation" if part == "validation" else "test")
    scores = compute_logits(
        model, task.require("validation").inputs, trainer.settings.training.evaluation_batch, device
    )
    weights = run_weights(trainer, scores, metrics["selected_step"], journal)
    diagnosis = diagnose(model, task, labeled, weights, Effort(args.examples, args.draws, args.neighbors))
    print(f"{metrics['method']} for '{metrics['objective']}', weights w of the gain at step {metrics['selected_step']}")
    print(f"classes in P_w: {_format_top(class_fractions(weights), task.class_names)}")
    print(f"measured on {diagnosis.examples} {part} examples, ± one standard error")
    print("\n".join(write_sentences(diagnosis)))
    print("\n".join(["", *describe_dual(trainer, scores, journal)]))
    return 0


def load_trainer(folder: str, metrics: dict[str, Any]) -> Trainer:
    """Return the trainer of a run, with its data; refuse runs without a network or without validation examples."""
    recipe = read_recipe(folder)
    refuse_numbers_only(folder, metrics)
    if not recipe.uses_network:
        raise InputError(
            f"csst theory needs a network, and the run {folder} was trained with {recipe.learner} learners: train "
            "with --learner network"
        )
    if recipe.folds:
        raise InputError(
            f"csst theory measures on validation examples, and the run {folder} learned from them (folds "
            f"{recipe.folds}): train with --folds 0"
        )
    trainer = assemble(recipe)
    refuse_changed(trainer.task, metrics["split_hash"])
    return trainer


def run_weights(trainer: Trainer, scores: Tensor, step: int, journal: list[Any]) -> Tensor:
    """Return the weights w of the gain at the selected step, shifted to be non-negative, (K, K)."""
    record = next((record for record in journal if record["step"] == step), None)
    if record is None:
        raise InputError(f"the journal has no record of the selected step {step}: train again")
    game = trainer.multipliers
    task = trainer.task
    counts = confusion_counts(task.require("validation").labels, scores.argmax(1), task.classes)
    confusion = Confusion.from_counts(counts, task.class_names)
    gain = gain_matrix(game.objective, record["multipliers"], confusion, task.train_prior, game.metric_prior)
    return shifted(weights_of_gain(gain, task.train_prior))


def describe_dual(trainer: Trainer, scores: Tensor, journal: list[dict[str, Any]]) -> list[str]:
    """Return lines about the multipliers: the distance to a saddle point, and warnings."""
    game = trainer.multipliers
    if not len(game.value):
        return ["The method's objective has no multipliers, so there is no second player to look at."]
    diagnostics = dual_diagnostics(journal, game.labels, game.objective.domain.simplex_mask(len(game.value)).tolist())
    labels = trainer.task.require("validation").labels
    log_ratios = fit_calibration(scores.double().numpy(), labels.numpy()).apply(scores.double().numpy())
    probs = torch.softmax(torch.from_numpy(log_ratios) + trainer.task.validation_prior.log(), 1)
    lines = [f"Multipliers over {diagnostics['updates']} updates:"]
    for name, value in (("last", torch.tensor(journal[-1]["multipliers"])), ("average", average_multipliers(journal))):
        gap = duality_gap(game.objective, value, probs, labels, scores.argmax(1))
        lines.append(
            f"  duality gap, {name + ' multipliers':<21} {gap.gap:.3f}   the best rule found against them is worth "
            f"{gap.best_response:.3f}, the classifier at its worst {gap.worst:.3f}"
        )
    if diagnostics["entropy"] is not None:
        lines.append(f"  {'payoffs that count':<34} {diagnostics['effective']:.1f} of {len(diagnostics['last'])}")
    return [*lines, *(f"  ! {warning}" for warning in diagnostics["warnings"])]


def gaussian(argv: Sequence[str]) -> int:
    """Print the closed forms for Gaussian classes and, if asked, draw the boundary."""
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
    w1, w2 = _parse_weights(args.weights)
    weights = torch.diag(torch.tensor((w1, w2)))
    component = GaussianExpansion.of(args.d, args.r)  # refuses d <= 0, by which the next line divides
    separation = 3 / args.d**0.5 if args.separation is None else args.separation
    mixture = mixture_expansion(component.h, (w1, w2))
    bayes = two_gaussians(separation, (w1, w2), args.d, args.r)
    print(f"h = 2 r sqrt(d) = {component.h:.4g}")
    print("one Gaussian (the paper's closed form)")
    print_promise(component, args.err, weights)
    print(f"a mixture whose lightest class has fraction {min(w1, w2):.3g} of |w|_1, however far apart")
    print_promise(mixture, args.err, weights)
    print(f"two classes {separation:.4g} apart, weights {w1:.3g} and {w2:.3g}: the best classifier F* has")
    print(f"  err_w = {bayes.error:.4g}, R_B,w = {bayes.consistency:.4g}")
    errors = useful_errors(mixture, bayes.error, bayes.consistency, weights)
    scope = "for no pseudo-labeler at all"
    if errors is not None:
        scope = f"for err_w(F_pl) from {errors[0]:.4f} to {errors[1]:.4f}"
    print(f"  with this F* the theorem promises an improvement {scope}")
    if args.figure:
        boundary_figure(args.figure, separation, (w1, w2), args.d, args.r)
        print(f"figure in {args.figure}")
    return 0


def print_promise(c: Expansion, error: float, weights: Tensor) -> None:
    """Print gamma and the promise of Theorem 1 for a perfect F*."""
    case = check_assumptions(c, error, 0.0, 0.0, weights)
    limit = largest_error(c)
    print(f"  gamma = c({error:g}) = {format_gamma(case.gamma)}; gamma > 3 for err_w < {limit:.4f} |w|_1")
    if case.hold:
        print(f"  the theorem: err_w <= {case.promise:.4f} |w|_1 for a perfect, perfectly consistent F*")
    else:
        print("\n".join(f"  the theorem promises nothing: {reason}" for reason in case.against))


def _parse_weights(text: str) -> tuple[float, float]:
    """Return two weights that sum to 1."""
    try:
        w1, w2 = (float(word) for word in text.split(","))
    except ValueError:
        raise InputError(f"--weights takes two numbers, such as 4,1; found {text!r}") from None
    if not (w1 > 0 and w2 > 0 and w1 + w2 < float("inf")):
        raise InputError(f"--weights must be positive and finite; found {text!r}")
    return w1 / (w1 + w2), w2 / (w1 + w2)


def _format_top(fractions: Tensor, names: Sequence[str]) -> str:
    """Return the five largest fractions with their names."""
    order = fractions.argsort(descending=True, stable=True).tolist()[:5]
    text = ", ".join(f"{names[i]} {float(fractions[i]):.2f}" for i in order)
    return text + ", ..." if len(fractions) > 5 else text
