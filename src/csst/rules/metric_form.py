"""A sentence as a linear form of class metrics, so that its value and slope need a few matrix products and no autograd.

    [utility, payoff] = constant + sum over metrics m of  A_m m(r, q)

m is recall, coverage, precision, F1, Jaccard or specificity of every class; each is a function of that class's recall r
and coverage q alone. Sentences with products of metrics or with fbeta, mcc, gmean, hmean and qmean are no such form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from csst.maths.language import Sentence

#: a coverage below this counts as this: a class that is never predicted has precision 0
SMALLEST_COVERAGE = 1e-12
Slopes = tuple[np.ndarray, np.ndarray]


def _recall(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return r


def _coverage(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return q


def _precision(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return prior * r / q


def _f1(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return 2 * prior * r / (prior + q)


def _jaccard(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return prior * r / (prior + q - prior * r)


def _specificity(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> np.ndarray:
    return 1 - (q - prior * r) / (1 - prior)


def _recall_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    return np.ones_like(r), np.zeros_like(q)


def _coverage_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    return np.zeros_like(r), np.ones_like(q)


def _precision_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    return prior / q, -prior * r / q**2


def _f1_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    bottom = prior + q
    return 2 * prior / bottom, -2 * prior * r / bottom**2


def _jaccard_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    bottom = prior + q - prior * r
    return prior * (prior + q) / bottom**2, -prior * r / bottom**2


def _specificity_slopes(r: np.ndarray, q: np.ndarray, prior: np.ndarray) -> Slopes:
    return prior / (1 - prior) + 0 * r, -1 / (1 - prior) + 0 * q


#: every metric as a function of recall, coverage and prior, (..., K), and its derivatives by recall and coverage
METRICS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., Slopes]]] = {
    "recall": (_recall, _recall_slopes),
    "coverage": (_coverage, _coverage_slopes),
    "precision": (_precision, _precision_slopes),
    "f1": (_f1, _f1_slopes),
    "jaccard": (_jaccard, _jaccard_slopes),
    "specificity": (_specificity, _specificity_slopes),
}


@dataclass(frozen=True, eq=False)
class MetricForm:
    """[utility, payoff] = constant + sum_m A_m m(r, q).

    Args:
        matrices: A_m by the metric's name, (1 + payoffs, K); metrics that do not occur are left out.
        constant: (1 + payoffs,).
        prior: pi, (K,).
    """

    matrices: dict[str, np.ndarray]
    constant: np.ndarray
    prior: np.ndarray

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
        return total

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
            along = weights @ matrix
            divisor = np.maximum(coverage, least_coverage) if name == "precision" else coverage
            slopes = METRICS[name][1](recall, divisor, self.prior)
            by_recall += along * slopes[0]
            # Below its floor, a coverage does not count.
            by_coverage += along * slopes[1] * (divisor == coverage)
        return by_recall, by_coverage


def read_form(sentence: Any, prior: np.ndarray) -> MetricForm | None:
    """Return a bound sentence as a linear form under a prior (K,); None for anything that is not one."""
    if not isinstance(sentence, Sentence) or not sentence.reads_margins:
        return None
    classes = len(prior)
    rng = np.random.default_rng(0)

    @torch.no_grad()
    def evaluate(metrics: dict[str, np.ndarray]) -> np.ndarray:
        probe: Any = SimpleNamespace(classes=classes, rates=torch.zeros(0, dtype=torch.float64))
        for name, values in metrics.items():
            setattr(probe, name, torch.from_numpy(values))
        probe.accuracy = probe.recall @ torch.from_numpy(prior)
        probe.mcc = probe.accuracy.square()  # not linear, as mcc is not
        probe.fbeta = lambda beta: probe.f1.square()
        return torch.cat([sentence.utility(probe)[None], sentence.payoff(probe)]).numpy()

    def draw() -> dict[str, np.ndarray]:
        return {name: rng.uniform(0.1, 1.1, classes) for name in METRICS}

    first = draw()
    second = draw()
    middle = {name: (first[name] + second[name]) / 2 for name in METRICS}
    # Of an affine function, the middle of two points is worth the middle of their values.
    if not np.allclose(evaluate(middle), (evaluate(first) + evaluate(second)) / 2, rtol=1e-9, atol=1e-12):
        return None
    zero = {name: np.zeros(classes) for name in METRICS}
    constant = evaluate(zero)
    matrices = {}
    for name in METRICS:
        if np.array_equal(evaluate({**first, name: second[name]}), evaluate(first)):
            continue
        matrices[name] = np.stack([evaluate({**zero, name: row}) - constant for row in np.eye(classes)], axis=1)
    third = draw()
    total = constant + sum(matrix @ third[name] for name, matrix in matrices.items())
    if not np.allclose(total, evaluate(third), rtol=1e-9, atol=1e-9):
        return None
    return MetricForm(matrices, constant, prior)
