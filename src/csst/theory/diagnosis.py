"""Does self-training have a chance here? The theory's numbers for a trained model, and their meaning in sentences."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.examples import Selection
from csst.data.prepared_views import IndexedView
from csst.data.task import Labeled, Task
from csst.errors import InputError
from csst.theory.bounds import Assumptions, check_assumptions, classifier_bound, expand, factors
from csst.theory.expansion import StepExpansion
from csst.theory.graphs import conflict, empirical_expansion, knn_graph, view_graph, view_radius
from csst.theory.margin import MarginSearch, all_layer_margin, view_margin
from csst.theory.networks import BATCH, evaluating, features_of_views, predict
from csst.theory.weighted_errors import (
    Consistency,
    Neighborhood,
    least_error,
    measured_error,
    sampling_weights,
    total_weight,
    weighted_consistency_error,
    weighted_rate,
)

#: examples whose margins are computed
MARGIN_EXAMPLES = 200
#: seeds of the choice of examples, of weak views, of the views of R_{B,w} and of those of the graph
SEED_EXAMPLES, SEED_WEAK, SEED_STRONG, SEED_GRAPH = range(4)
#: width of the column of names
WIDTH = 36


@dataclass(frozen=True)
class Diagnosis:
    """The theory's numbers for a model; errors and regularizers are (value, standard error) in units of err_w.

    F_pl is the model on weak views, F the model on the examples as they are.

    Args:
        examples: the number of examples.
        total: |w|_1; compare errors as fractions of it.
        floor: the smallest err_w that any classifier can have.
        err_pl: err_w(F_pl).
        err: err_w(F).
        disagreement: L_w(F, F_pl).
        consistency: R_{B,w}(F); None if it was not computed.
        gammas: c at the p_w of the best case, by graph.
        conflicts: a lower bound of err_w + R_{B,w} of any classifier, by graph.
        best_case: Theorem 1 with F* as good as any classifier could be.
        as_measured: Theorem 1 with F in the place of F*, which is allowed because F* minimizes err_w among the
            classifiers no less consistent than F; None without consistency.
        bound: `classifier_bound` of F; None without consistency or unless gamma > 1.
        margins: medians of all-layer margins, and the fractions that are 0.
        skipped: reasons why numbers were not computed, as sentences.
    """

    examples: int
    total: float
    floor: float
    err_pl: tuple[float, float]
    err: tuple[float, float]
    disagreement: tuple[float, float]
    consistency: Consistency | None
    gammas: dict[str, float]
    conflicts: dict[str, float]
    best_case: Assumptions
    as_measured: Assumptions | None
    bound: float | None
    margins: dict[str, float]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Effort:
    """Size of a diagnosis.

    Args:
        examples: the largest number of examples.
        draws: strong views of each example.
        neighbors: k of the k-nearest-neighbor graph.
    """

    examples: int = 1000
    draws: int = 8
    neighbors: int = 10


def diagnose(model: nn.Module, task: Task, labeled: Labeled, weights: Any, effort: Effort | None = None) -> Diagnosis:
    """Compute the theory's numbers for a model.

    Args:
        model: the trained model.
        task: the task whose views are used.
        labeled: the examples to measure on.
        weights: w, (K, K), non-negative.
        effort: the number of examples, views and neighbors.
    """
    effort = effort or Effort()
    order = torch.randperm(len(labeled), generator=torch.Generator().manual_seed(SEED_EXAMPLES))
    index = order[: effort.examples].sort().values
    x = Selection(labeled.inputs, index)
    y = labeled.labels[index]
    reasons: list[str] = []
    predictions, weak_predictions = _predict_twice(model, task, x)
    consistency = _measure_consistency(model, task, x, y, weights, effort, reasons)
    graphs = _make_graphs(model, task, x, effort, with_views=consistency is not None and effort.draws > 1)
    masses = sampling_weights(weights, y)
    # sets that self-training has to shrink or to keep: the mistakes, and each predicted class
    sets = [(weak_predictions != y).numpy(), (predictions != y).numpy()]
    sets += [(predictions == k).numpy() for k in predictions.unique().tolist()]
    expansions = {name: empirical_expansion(masses, graph, sets) for name, graph in graphs.items()}
    conflicts = {name: conflict(weights, y, graph) for name, graph in graphs.items()}
    err_pl = measured_error(weak_predictions, y, weights)
    err = measured_error(predictions, y, weights)
    disagreement = weighted_rate(predictions != weak_predictions, y, weights)
    floor = least_error(weights)
    # The best case takes the graph that favors the theorem most; the measured classifier, the one that does least.
    cases = [_check_best_case(c, err_pl[0], floor, conflicts[name], weights) for name, c in expansions.items()]
    best_case = max(cases, key=lambda case: (case.hold, case.gamma))
    as_measured = None
    bound = None
    if consistency is not None:
        r = consistency.value
        cases = [check_assumptions(c, err_pl[0], err[0], r, weights) for c in expansions.values()]
        as_measured = min(cases, key=lambda case: case.gamma)
        if 1 < as_measured.gamma < math.inf:
            bound = classifier_bound(as_measured.gamma, disagreement[0], r, r, err_pl[0], err[0])
    return Diagnosis(
        examples=len(y),
        total=total_weight(weights),
        floor=floor,
        err_pl=err_pl,
        err=err,
        disagreement=disagreement,
        consistency=consistency,
        gammas={name: expand(c, best_case.fraction) for name, c in expansions.items()},
        conflicts=conflicts,
        best_case=best_case,
        as_measured=as_measured,
        bound=bound,
        margins=_measure_margins(model, task, x, weak_predictions, consistency is not None, reasons),
        skipped=tuple(reasons),
    )


def _predict_twice(model: nn.Module, task: Task, x: Selection) -> tuple[Tensor, Tensor]:
    """Return the classes of the examples as they are (F) and of a weak view of each (F_pl)."""
    generator = torch.Generator().manual_seed(SEED_WEAK)
    predictions = []
    weak_predictions = []
    with evaluating(model):
        for indices in torch.arange(len(x)).split(BATCH):
            batch = x[indices]
            predictions.append(predict(model, batch))
            weak_predictions.append(predict(model, task.weak(batch, generator)))
    return torch.cat(predictions), torch.cat(weak_predictions)


def _measure_consistency(
    model: nn.Module, task: Task, x: Selection, y: Tensor, weights: Any, effort: Effort, reasons: list[str]
) -> Consistency | None:
    """Return R_{B,w} over strong views; None, with a line in `reasons`, if they cannot be drawn."""
    if isinstance(task.strong, IndexedView):
        reasons.append("R_B,w and the graph of views: the strong views were prepared for the unlabeled examples only")
        return None
    try:
        neighborhood = Neighborhood(task.strong, effort.draws)
        return weighted_consistency_error(model, x, y, weights, neighborhood, SEED_STRONG)
    except InputError as error:  # such as a text that has no stored translation
        reasons.append(f"R_B,w and the graph of views: {error}")
        return None


def _make_graphs(model: nn.Module, task: Task, x: Selection, effort: Effort, with_views: bool) -> dict[str, np.ndarray]:
    """Return the graph of nearest neighbors and, if asked, the graph of overlapping views, by name."""
    k = effort.neighbors
    if len(x) <= k:
        raise InputError(f"a graph of {k} nearest neighbors needs more than {k} examples; found {len(x)}")
    graphs = {f"the {k} nearest neighbors": knn_graph(features_of_views(model, x)[:, 0], k)}
    if with_views:
        views = features_of_views(model, x, task.strong, min(effort.draws, 4), SEED_GRAPH)
        graphs["overlapping views"] = view_graph(views, view_radius(views) / 2)
    return graphs


def _check_best_case(c: StepExpansion, err_pl: float, floor: float, clash: float, weights: Any) -> Assumptions:
    """Check Theorem 1 for the best imaginable F*: err_w at its floor, and err_w + R_{B,w} at the conflict's bound."""
    case = check_assumptions(c, err_pl, floor, 0.0, weights)
    if not case.hold or case.promise is None:
        return case
    # The theorem charges at least (gamma+1)/(gamma-1) for each unit of err_w(F*) or R_{B,w}(F*).
    promise = case.promise + factors(case.gamma)[0] * max(0.0, clash - floor)
    if promise < err_pl:
        return replace(case, promise=promise)
    reason = (
        f"examples of different classes are neighbors: any classifier has err_w + R_B,w of at least {clash:.3f}, "
        f"which is not negligible beside err_w(F_pl) = {err_pl:.3f}, and the bound is {promise:.3f} at best"
    )
    return replace(case, promise=promise, against=(reason,))


def _measure_margins(
    model: nn.Module, task: Task, x: Selection, labels: Tensor, with_views: bool, reasons: list[str]
) -> dict[str, float]:
    """Return medians of m(Phi, x, F_pl(x)) and m_B(Phi, x), and the fractions that are 0."""
    inputs = x[torch.arange(min(MARGIN_EXAMPLES, len(x)))]
    if not isinstance(model, nn.Sequential) or not isinstance(inputs, Tensor):
        kind = type(model).__name__
        if not isinstance(inputs, Tensor):
            kind += ", whose inputs are texts"
        reasons.append(f"all-layer margins: they need numbers through a sequence of layers; the model is a {kind}")
        return {}
    network = copy.deepcopy(model).cpu()
    search = MarginSearch(restarts=1, rivals=3)
    margins = all_layer_margin(network, inputs, labels[: len(inputs)], search)
    summary = {"median": float(margins.median()), "zero": float((margins == 0).double().mean())}
    if with_views:
        margins = view_margin(network, inputs, Neighborhood(task.strong, draws=2), search)
        summary |= {"view_median": float(margins.median()), "view_zero": float((margins == 0).double().mean())}
    return summary


def write_sentences(diagnosis: Diagnosis) -> list[str]:
    """Return lines to print: the numbers, the promise of Theorem 1, and whether its assumptions look plausible."""
    return [
        *list_numbers(diagnosis),
        "",
        *describe_promise(diagnosis),
        *(f"Not computed: {reason}." for reason in diagnosis.skipped),
    ]


def list_numbers(diagnosis: Diagnosis) -> list[str]:
    """Return one line for each number; the errors also as fractions of |w|_1."""
    rows = [
        ("err_w of the pseudo-labeler", diagnosis.err_pl, "the model on weak views"),
        ("err_w of the classifier", diagnosis.err, "the model on the examples as they are"),
        ("L_w(F, F_pl)", diagnosis.disagreement, "where the two disagree"),
    ]
    consistency = diagnosis.consistency
    if consistency is not None:
        remark = f"not constant over {consistency.draws} strong views, so a lower bound"
        rows.append(("R_B,w of the classifier", (consistency.value, consistency.standard_error), remark))
    lines = [
        f"  {name:<{WIDTH}} {value:.3f} ± {error:.3f}, {value / diagnosis.total:4.0%} of |w|_1   {remark}"
        for name, (value, error), remark in rows
    ]
    lines.append(f"  {'|w|_1':<{WIDTH}} {diagnosis.total:.3f}   the largest possible err_w")
    if diagnosis.floor > 1e-9:
        lines.append(f"  {'smallest possible err_w':<{WIDTH}} {diagnosis.floor:.3f}   whatever the classifier")
    for name, value in diagnosis.gammas.items():
        lines.append(f"  {'gamma, by ' + name:<{WIDTH}} {format_gamma(value)}   at most: worse sets may exist")
        clash = f"{diagnosis.conflicts[name]:.3f}   at least, with these neighbors"
        lines.append(f"  {'  err_w + R_B,w of any classifier':<{WIDTH}} {clash}")
    if diagnosis.margins:
        m = diagnosis.margins
        views = f", over views {m['view_median']:.4f} ({m['view_zero']:.0%} are 0)" if "view_median" in m else ""
        lines.append(
            f"  {'all-layer margin, median':<{WIDTH}} {m['median']:.4f} ({m['zero']:.0%} are 0){views}; upper bounds"
        )
    return lines


def describe_promise(diagnosis: Diagnosis) -> list[str]:
    """Return what Theorem 1 promises for these numbers, as sentences; usually it promises nothing."""
    best_case = diagnosis.best_case
    if diagnosis.err_pl[0] == 0:
        return ["The pseudo-labeler makes no mistake on these examples, so there is nothing for a theorem to improve."]
    if not best_case.hold:
        return [
            "The theorem promises nothing here, even with the best classifier imaginable as its F*:",
            *(f"  - {reason}" for reason in best_case.against),
            "This does not mean that self-training fails: the theorem is a sufficient condition, and a strict one.",
        ]
    lines = [
        f"With the best classifier imaginable as its F*, the theorem would promise err_w <= {best_case.promise:.3f}, "
        f"against {diagnosis.err_pl[0]:.3f} of the pseudo-labeler (gamma = {format_gamma(best_case.gamma)}).",
        "That gamma is an upper bound from a sample, so take this as 'not excluded', not as a guarantee.",
    ]
    if diagnosis.as_measured is not None:
        lines += _describe_measured(diagnosis, diagnosis.as_measured)
    return lines


def _describe_measured(diagnosis: Diagnosis, as_measured: Assumptions) -> list[str]:
    if as_measured.hold:
        return [
            f"With the trained classifier in the place of the ideal one it promises err_w <= {as_measured.promise:.3f} "
            f"(gamma = {format_gamma(as_measured.gamma)}): the assumptions look plausible."
        ]
    lines = ["With the trained classifier in the place of the ideal one it promises no improvement:"]
    lines += [f"  - {reason}" for reason in as_measured.against]
    if diagnosis.bound is not None and diagnosis.bound >= diagnosis.total:
        lines.append(f"  - its bound for this very classifier is {diagnosis.bound:.2f}, above |w|_1: it says nothing")
    elif diagnosis.bound is not None:
        lines.append(
            f"  - its bound for this very classifier is {diagnosis.bound:.2f}; measured is {diagnosis.err[0]:.3f}"
        )
    return lines


def format_gamma(value: float) -> str:
    """Return gamma with two decimals."""
    return "infinite" if value == math.inf else f"{value:.2f}"
