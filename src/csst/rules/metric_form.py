"""A sentence as a linear form of class metrics, so that its value and slope need a few matrix products and no autograd.

    [utility, payoff] = constant + sum over metrics m of  A_m m(r, q)

m is recall, coverage, precision, F1, Jaccard or specificity of every class; each is a function of that class's recall r
and coverage q alone. The utility may add gmean, hmean and qmean of such forms. Sentences with products of metrics, with
fbeta or mcc are no such form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.maths.language import Sentence
from csst.maths.language.meaning import evaluate
from csst.maths.language.tree import Call, name_calls, walk
from csst.rules.cells import CELL_METRICS, CellObjective

#: a coverage below this counts as this: a class that is never predicted has precision 0
SMALLEST_COVERAGE = 1e-12
Slopes = tuple[np.ndarray, np.ndarray]
#: the slopes of one metric, a number where it is the same for all classes
MetricSlopes = tuple[np.ndarray | float, np.ndarray | float]


#: every metric as a function of recall r, coverage q and prior p, (..., K), and its derivatives by r and by q
METRICS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., MetricSlopes]]] = {
    "recall": (lambda r, q, p: r, lambda r, q, p: (1.0, 0.0)),
    "coverage": (lambda r, q, p: q, lambda r, q, p: (0.0, 1.0)),
    "precision": (lambda r, q, p: p * r / q, lambda r, q, p: (p / q, -p * r / q**2)),
    "f1": (lambda r, q, p: 2 * p * r / (p + q), lambda r, q, p: (2 * p / (p + q), -2 * p * r / (p + q) ** 2)),
    "jaccard": (
        lambda r, q, p: p * r / (p + q - p * r),
        lambda r, q, p: (p * (p + q) / (p + q - p * r) ** 2, -p * r / (p + q - p * r) ** 2),
    ),
    "specificity": (lambda r, q, p: 1 - (q - p * r) / (1 - p), lambda r, q, p: (p / (1 - p), -1 / (1 - p))),
}
#: every mean M that is not linear as a function of entries v, (..., n), and its derivatives at one point, (n,)
CURVED_MEANS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "gmean": (lambda v: np.exp(np.log(v).mean(-1)), lambda v, mean: mean / (len(v) * v)),
    "hmean": (lambda v: 1 / (1 / v).mean(-1), lambda v, mean: mean**2 / (len(v) * v**2)),
    "qmean": (
        lambda v: 1 - ((1 - v) ** 2).mean(-1) ** 0.5,
        lambda v, mean: (1 - v) / (len(v) * max(1 - mean, 1e-300)),
    ),
}


@dataclass(frozen=True, eq=False)
class CurvedMean:
    """factor M(y(r, q)) in the utility, for a mean M of entries y that are a linear form.

    Args:
        function: "gmean", "hmean" or "qmean".
        factor: factor of the mean.
        entries: y, (n,).
    """

    function: str
    factor: float
    entries: MetricForm


@dataclass(frozen=True, eq=False)
class MetricForm:
    """[utility, payoff] = constant + sum_m A_m m(r, q), the utility plus curved means.

    Args:
        matrices: A_m by the metric's name, (1 + payoffs, K); metrics that do not occur are left out.
        constant: (1 + payoffs,).
        prior: pi, (K,).
        means: curved means that the utility adds.
    """

    matrices: dict[str, np.ndarray]
    constant: np.ndarray
    prior: np.ndarray
    means: tuple[CurvedMean, ...] = ()

    def evaluate(
        self, recall: np.ndarray, coverage: np.ndarray, least_coverage: float = SMALLEST_COVERAGE
    ) -> np.ndarray:
        """Return utility and payoffs, (..., 1 + payoffs), for recalls and coverages (..., K).

        Precision divides by a coverage of at least `least_coverage`.
        """
        total = np.zeros((*recall.shape[:-1], len(self.constant))) + self.constant
        for name, matrix in self.matrices.items():
            divisor = np.maximum(coverage, least_coverage) if name == "precision" else coverage
            total += METRICS[name][0](recall, divisor, self.prior) @ matrix.T
        for mean in self.means:
            entries = mean.entries.evaluate(recall, coverage, least_coverage)
            # A class that is never right has a mean of 0.
            with np.errstate(divide="ignore"):
                total[..., 0] += mean.factor * CURVED_MEANS[mean.function][0](entries)
        return total

    def bound_coverage(self, places: np.ndarray, margins: np.ndarray) -> Slopes:
        """Return the lowest and the highest coverage of each class at which payoffs reach their margins, both (K,).

        Of these places, payoffs that read the coverage of a single class and nothing else count.
        """
        lower_bounds = np.zeros(len(self.prior))
        upper_bounds = np.ones(len(self.prior))
        for place in places:
            weights = self.matrices["coverage"][1 + place]
            is_alone = all(name == "coverage" or not matrix[1 + place].any() for name, matrix in self.matrices.items())
            if not is_alone or np.count_nonzero(weights) != 1:
                continue
            k = int(weights.nonzero()[0][0])
            bound = (margins[place] - self.constant[1 + place]) / weights[k]
            if weights[k] > 0:
                lower_bounds[k] = max(lower_bounds[k], bound)
            else:
                upper_bounds[k] = min(upper_bounds[k], bound)
        return lower_bounds, upper_bounds

    def evaluate_payoffs(self, places: np.ndarray, recall: np.ndarray, coverage: np.ndarray) -> np.ndarray:
        """Return payoff places[p] at recall[p] and coverage[p], (P,); recall and coverage are (P, K)."""
        total = self.constant[1 + places].copy()
        divisor = np.maximum(coverage, SMALLEST_COVERAGE)
        for name, matrix in self.matrices.items():
            total += (METRICS[name][0](recall, divisor, self.prior) * matrix[1 + places]).sum(1)
        return total

    def slopes_of_payoffs(self, places: np.ndarray, recall: np.ndarray, coverage: np.ndarray) -> Slopes:
        """Return the derivatives of payoff places[p] by recall[p] and by coverage[p], both (P, K)."""
        by_recall = np.zeros_like(recall)
        by_coverage = np.zeros_like(coverage)
        divisor = np.maximum(coverage, SMALLEST_COVERAGE)
        for name, matrix in self.matrices.items():
            slopes = METRICS[name][1](recall, divisor, self.prior)
            by_recall += matrix[1 + places] * slopes[0]
            by_coverage += matrix[1 + places] * slopes[1]
        return by_recall, by_coverage

    def pull_back(
        self,
        weights: np.ndarray,
        recall: np.ndarray,
        coverage: np.ndarray,
        least_coverage: float = SMALLEST_COVERAGE,
    ) -> Slopes:
        """Return the derivatives of weights . [utility, payoff] by recall and by coverage, both (K,)."""
        by_recall = np.zeros(len(self.prior))
        by_coverage = np.zeros(len(self.prior))
        for name, matrix in self.matrices.items():
            class_weights = weights @ matrix
            divisor = np.maximum(coverage, least_coverage) if name == "precision" else coverage
            slopes = METRICS[name][1](recall, divisor, self.prior)
            by_recall += class_weights * slopes[0]
            # Below its floor, a coverage does not count.
            by_coverage += class_weights * slopes[1] * (divisor == coverage)
        for mean in self.means:
            entries = mean.entries.evaluate(recall, coverage, least_coverage)
            measure, differentiate = CURVED_MEANS[mean.function]
            entry_weights = weights[0] * mean.factor * differentiate(entries, measure(entries))
            inner_slopes = mean.entries.pull_back(entry_weights, recall, coverage, least_coverage)
            by_recall += inner_slopes[0]
            by_coverage += inner_slopes[1]
        return by_recall, by_coverage


def read_form(sentence: Any, prior: np.ndarray) -> MetricForm | None:
    """Return a bound sentence as a form of class metrics under a prior (K,); None for anything that is not one."""
    if isinstance(sentence, CellObjective):
        return read_linear(sentence.measure, prior, CELL_METRICS)
    if not isinstance(sentence, Sentence) or not sentence.reads_margins:
        return None
    return _read_sentence(sentence, tuple(prior.tolist()))


@lru_cache(maxsize=16)
def _read_sentence(sentence: Sentence, fractions: tuple[float, ...]) -> MetricForm | None:
    """Return the form of a sentence; a fit asks for the same one again and again, training at every update."""
    prior = np.array(fractions)
    # Every curved mean becomes a metric of its own, so that the rest may be linear.
    expression, calls = name_calls(sentence.expression, CURVED_MEANS, "mean")
    if any(isinstance(node, Call) and node.function in CURVED_MEANS for c in sentence.constraints for node in walk(c)):
        return None
    outer_sentence = replace(sentence, expression=expression)
    names = [f"mean {k}" for k in range(len(calls))]

    def evaluate_outer(probe: Any) -> Tensor:
        return torch.cat([outer_sentence.utility(probe)[None], outer_sentence.payoff(probe)])

    linear = read_linear(evaluate_outer, prior, (*METRICS, *names))
    if linear is None:
        return None
    means = []
    for name, call in zip(names, calls, strict=True):

        def evaluate_inner(probe: Any, call: Call = call) -> Tensor:
            parts = [evaluate(part, probe, sentence.binding) for part in call.args]
            return torch.cat([torch.atleast_1d(part) for part in parts])

        factors = linear.matrices.pop(name, np.zeros((1, 1)))[:, 0]
        entries = read_linear(evaluate_inner, prior, tuple(METRICS))
        # Only the utility may read a curved mean.
        if entries is None or factors[1:].any():
            return None
        means.append(CurvedMean(call.function, float(factors[0]), entries))
    return replace(linear, means=tuple(means))


def read_linear(evaluate: Callable[[Any], Tensor], prior: np.ndarray, names: Sequence[str]) -> MetricForm | None:
    """Return a function of class metrics as a linear form; None if it is none.

    Args:
        evaluate: the values (n,) for anything that has the metrics as attributes.
        prior: pi, (K,).
        names: names of the metrics, each (K,).
    """
    classes = len(prior)
    rng = np.random.default_rng(0)

    @torch.no_grad()
    def measure(metrics: dict[str, np.ndarray]) -> np.ndarray:
        probe: Any = SimpleNamespace(classes=classes, rates=torch.zeros(0, dtype=torch.float64))
        for name, values in metrics.items():
            setattr(probe, name, torch.from_numpy(values))
        probe.accuracy = probe.recall @ torch.from_numpy(prior)
        probe.mcc = probe.accuracy.square()  # not linear, as mcc is not
        probe.fbeta = lambda beta: getattr(probe, f"fbeta {beta}", probe.f1.square())
        return evaluate(probe).numpy()

    def draw() -> dict[str, np.ndarray]:
        return {name: rng.uniform(0.1, 1.1, classes) for name in names}

    first_point = draw()
    second_point = draw()
    midpoint = {name: (first_point[name] + second_point[name]) / 2 for name in names}
    # Of an affine function, the middle of two points is worth the middle of their values.
    if not np.allclose(measure(midpoint), (measure(first_point) + measure(second_point)) / 2, rtol=1e-9, atol=1e-12):
        return None
    zero = {name: np.zeros(classes) for name in names}
    constant = measure(zero)
    matrices = {}
    for name in names:
        if np.array_equal(measure({**first_point, name: second_point[name]}), measure(first_point)):
            continue
        matrices[name] = np.stack([measure({**zero, name: row}) - constant for row in np.eye(classes)], axis=1)
    third_point = draw()
    total = constant + sum(matrix @ third_point[name] for name, matrix in matrices.items())
    if not np.allclose(total, measure(third_point), rtol=1e-9, atol=1e-9):
        return None
    return MetricForm(matrices, constant, prior)
