"""Does self-training have a chance here? The theory's numbers for a trained model, and what they say in plain words."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.prepared_views import IndexedView
from csst.data.task import Examples, Labeled, Task
from csst.errors import InputError
from csst.theory.bounds import Assumptions, check_assumptions, classifier_bound, factors
from csst.theory.consistency import BATCH, Consistency, Neighborhood, evaluating, predict, weighted_consistency_error
from csst.theory.errors import least_error, measured_error, sampling_weights, total_weight, weighted_rate
from csst.theory.expansion import StepExpansion
from csst.theory.features import features_of_views
from csst.theory.graphs import conflict, empirical_expansion, knn_graph, random_expansion, view_graph, view_radius
from csst.theory.margin import MarginSearch, all_layer_margin, view_margin


class Chosen:
    """Some of the examples."""

    def __init__(self, examples: Examples, index: Tensor) -> None:
        self.examples, self.index = examples, index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.examples[self.index[indices]]


@dataclass(frozen=True)
class Diagnosis:
    """Errors and regularizers are (value, standard error) in units of err_w; fractions of |w|_1 are what to compare.

    F_pl is the model on weak views, F the model on the examples as they are. gammas: by graph, at the best case;
    conflicts: by graph, what err_w + R_{B,w} of any classifier is at least; random_gamma: what random sets would say
    for the first graph. best_case: with F* as good as any classifier could be; as_measured: with F in the place of F*,
    which is allowed (F* minimizes err_w among classifiers no less consistent than F). skipped: what was not computed.
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
    random_gamma: float | None
    best_case: Assumptions
    as_measured: Assumptions | None
    bound: float | None
    margins: dict[str, float]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Effort:
    """How much a diagnosis looks at.

    Args:
        examples: at most so many.
        draws: strong views of each.
        neighbors: k of the k-nearest-neighbor graph.
        seed: of the choice of examples, and of the views.
    """

    examples: int = 1000
    draws: int = 8
    neighbors: int = 10
    seed: int = 0


def diagnose(model: nn.Module, task: Task, measured: Labeled, weights: Any, effort: Effort | None = None) -> Diagnosis:
    """The theory's numbers for a model.

    Args:
        model: as trained.
        task: whose views are used.
        measured: examples to measure on.
        weights: w, (K, K), non-negative.
        effort: how many examples, views and neighbors are looked at.
    """
    effort = effort or Effort()
    seed, draws, neighbors = effort.seed, effort.draws, effort.neighbors
    order = torch.randperm(len(measured), generator=torch.Generator().manual_seed(seed))
    index = order[: effort.examples].sort().values
    x, y, skipped = Chosen(measured.inputs, index), measured.labels[index], []
    plain, weak = _predictions(model, task, x, seed + 1)
    consistency = None
    if isinstance(task.strong, IndexedView):
        skipped.append("R_B,w and the graph of views: the strong views were prepared for the unlabeled examples only")
    else:
        try:
            around = Neighborhood(task.strong, draws)
            consistency = weighted_consistency_error(model, x, y, weights, around, seed + 2)
        except InputError as error:  # such as a text that has no stored translation
            skipped.append(f"R_B,w and the graph of views: {error}")
    masses = sampling_weights(weights, y)
    graphs = _graphs(model, task, x, draws if consistency is not None else 0, neighbors, seed)
    sets = [(weak != y).numpy(), (plain != y).numpy(), *((plain == k).numpy() for k in plain.unique().tolist())]
    expansions = {name: empirical_expansion(masses, graph, sets) for name, graph in graphs.items()}
    err_pl, err, floor = measured_error(weak, y, weights), measured_error(plain, y, weights), least_error(weights)
    clashes = {name: conflict(weights, y, graph) for name, graph in graphs.items()}
    best = max(
        (_best_case(c, err_pl[0], floor, clashes[name], weights) for name, c in expansions.items()), key=_outlook
    )
    at, steady = best.fraction, consistency.value if consistency is not None else 0.0
    least = min(expansions.values(), key=lambda c: check_assumptions(c, err_pl[0], err[0], steady, weights).gamma)
    seen = check_assumptions(least, err_pl[0], err[0], steady, weights)
    disagreement = weighted_rate(plain != weak, y, weights)
    bound = None
    if consistency is not None and seen.gamma > 1 and math.isfinite(seen.gamma):
        bound = classifier_bound(seen.gamma, disagreement[0], steady, steady, err_pl[0], err[0])
    first = next(iter(graphs.values()))
    return Diagnosis(
        len(y),
        total_weight(weights),
        floor,
        err_pl,
        err,
        disagreement,
        consistency,
        {name: c(at) if at > 0 else math.inf for name, c in expansions.items()},
        clashes,
        random_expansion(masses, first)(at) if at > 0 else None,
        best,
        seen if consistency is not None else None,
        bound,
        _margins(model, task, x, weak, consistency is not None, skipped),
        tuple(skipped),
    )


def _predictions(model: nn.Module, task: Task, x: Chosen, seed: int) -> tuple[Tensor, Tensor]:
    """The classes of the examples as they are (F) and of a weak view of each (F_pl)."""
    generator, plain, weak = torch.Generator().manual_seed(seed), [], []
    with evaluating(model):
        for part in torch.arange(len(x)).split(BATCH):
            batch = x[part]
            plain.append(predict(model, batch))
            weak.append(predict(model, task.weak(batch, generator)))
    return torch.cat(plain), torch.cat(weak)


def _graphs(model: nn.Module, task: Task, x: Chosen, draws: int, k: int, seed: int) -> dict[str, Any]:
    if len(x) <= k:
        raise InputError(f"a graph of {k} nearest neighbors needs more than {k} examples; found {len(x)}")
    graphs = {f"the {k} nearest neighbors": knn_graph(features_of_views(model, x)[:, 0], k)}
    if draws > 1:
        views = features_of_views(model, x, task.strong, min(draws, 4), seed + 3)
        graphs["overlapping views"] = view_graph(views, view_radius(views) / 2)
    return graphs


def _best_case(c: StepExpansion, err_pl: float, floor: float, clash: float, weights: Any) -> Assumptions:
    """The assumptions for the best F* imaginable: no classifier is below the floor, nor below the clash with its R."""
    checked = check_assumptions(c, err_pl, floor, 0.0, weights)
    if not checked.hold or checked.promise is None:
        return checked
    # The theorem charges at least (gamma+1)/(gamma-1) for each unit of err_w(F*) or R_{B,w}(F*).
    promise = checked.promise + factors(checked.gamma)[0] * max(0.0, clash - floor)
    if promise < err_pl:
        return replace(checked, promise=promise)
    reason = (
        f"examples of different classes are neighbors: any classifier has err_w + R_B,w of at least {clash:.3f}, "
        f"which is not negligible beside err_w(F_pl) = {err_pl:.3f}, and the bound is {promise:.3f} at best"
    )
    return replace(checked, promise=promise, against=(reason,))


def _outlook(checked: Assumptions) -> tuple[bool, float]:
    return checked.hold, checked.gamma


def _margins(
    model: nn.Module, task: Task, x: Chosen, labels: Tensor, views: bool, skipped: list[str]
) -> dict[str, float]:
    """Medians of m(Phi, x, F_pl(x)) and m_B(Phi, x) over at most 200 examples, and the fraction that is 0."""
    some = x[torch.arange(min(200, len(x)))]
    if not isinstance(model, nn.Sequential) or not isinstance(some, Tensor):
        what = type(model).__name__ if isinstance(some, Tensor) else f"{type(model).__name__}, whose inputs are texts"
        skipped.append(f"all-layer margins: they need numbers through a sequence of layers; the model is a {what}")
        return {}
    here, quick = copy.deepcopy(model).cpu(), MarginSearch(restarts=1, rivals=3)
    plain = all_layer_margin(here, some, labels[: len(some)], quick)
    margins = {"median": float(plain.median()), "zero": float((plain == 0).double().mean())}
    if views:
        around = view_margin(here, some, Neighborhood(task.strong, draws=2), quick)
        margins |= {"view_median": float(around.median()), "view_zero": float((around == 0).double().mean())}
    return margins
