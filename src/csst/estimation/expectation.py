"""What an estimate of class rates lets one expect, and how sure that is.

The minimum of estimated recalls is no estimate of the lowest recall: the mean of a minimum lies below the minimum of
means. So values of objectives with a worst case are averaged over rates drawn around the estimate, and intervals come
from draws that are wider still. How wide was chosen so that 95 % intervals of the lowest recall hold at least 90 % of
the time (benchmarks/results/rules.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, norm

from csst.estimation.class_rates import RateEstimate
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective, payoff_of

#: draws behind an expectation and an interval; fewer where there are many classes
DRAWS, FEW_DRAWS, MANY_CLASSES = 400, 60, 100
#: draws for an expectation are as if from the labels there are, those for intervals as if from half of them
EXPECTING, DOUBTING = 1.0, 0.5
#: a high end beyond this is 1
NEARLY_ONE = 0.995


def number_of_draws(estimate: RateEstimate) -> int:
    return DRAWS if estimate.classes <= MANY_CLASSES else FEW_DRAWS


def expected_value(objective: Objective, estimate: RateEstimate) -> float:
    """The value of the objective that is to be expected: averaged over draws where it has a worst case."""
    payoff = payoff_of(objective, estimate.confusion)
    if not bool(objective.domain.simplex_mask(len(payoff)).any()):
        return float(objective.value(estimate.confusion))
    if torch.equal(payoff, estimate.confusion.recall) and not float(objective.utility(estimate.confusion)):
        return expected_minimum(estimate)  # max min(recall) itself: the same number as its interval has
    drawn = [float(objective.value(c)) for c in estimate.draw(number_of_draws(estimate), EXPECTING)]
    return float(np.mean(drawn))


def expected_minimum(estimate: RateEstimate) -> float:
    """The lowest recall that is to be expected."""
    rng, recall = np.random.default_rng(0), estimate.confusion.recall.numpy()
    return float(draw_recalls(estimate, recall, EXPECTING, rng).min(1).mean())


def draw_recalls(
    estimate: RateEstimate, recall: np.ndarray, certainty: float, rng: np.random.Generator, number: int = 1000
) -> np.ndarray:
    """Recalls of all classes as they may truly be, (number, K)."""
    size = certainty * (estimate.n + estimate.worth) / estimate.dispersion
    high, low = np.maximum(size * recall, 1e-3), np.maximum(size * (1 - recall), 1e-3)
    return rng.beta(high, low, size=(number, len(recall)))


def interval_from_draws(values: np.ndarray, draws: np.ndarray, center: float, level: float) -> tuple[float, float]:
    """The interval of a minimum of values (K,), given draws (B, K).

    Draws of a minimum lie too low, as the estimate's own noise is in them once more: the low end is their quantile, the
    high end reaches as far above the plain minimum as their quantile does above their mean.
    """
    tail, lowest = (1 - level) / 2, draws.min(1)
    low, high = np.quantile(lowest, [tail, 1 - tail])
    reach = float(values.min()) + float(high - lowest.mean())
    return max(0.0, min(float(low), center)), min(1.0, max(float(high), reach, center))


def estimate_intervals(objective: Objective, estimate: RateEstimate, level: float = 0.95) -> dict[str, Any]:
    """The intervals of metrics.json: value, recall, precision and coverage of every class, the minima, the constraints.

    The intervals of the classes are simultaneous (Bonferroni).
    """
    c, classes, rng = estimate.confusion, estimate.classes, np.random.default_rng(0)
    recall, n = c.recall.numpy(), [int(k) for k in estimate.n]
    size = DOUBTING * (estimate.n + estimate.worth) / estimate.dispersion
    tail = (1 - level) / 2 / classes
    hits, misses = size * recall, size * (1 - recall)
    # Clopper and Pearson's way: one example more that was wrong for the low end, one more that was right for the high.
    low = np.minimum(beta.ppf(tail, np.maximum(hits, 1e-3), misses + 1), recall)
    high = np.maximum(beta.ppf(1 - tail, hits + 1, np.maximum(misses, 1e-3)), recall)
    # Nothing that all labels say can be ruled out.
    counted = np.diag(estimate.labeled_rates)
    low, high = np.where(counted == 0, 0.0, low), np.where((counted == 1) | (high > NEARLY_ONE), 1.0, high)
    drawn = list(estimate.draw(number_of_draws(estimate), DOUBTING))
    lowest = expected_minimum(estimate)
    recalls = draw_recalls(estimate, recall, DOUBTING, rng)
    coverages = np.stack([confusion.coverage.numpy() for confusion in drawn])
    precisions = np.stack([confusion.precision.numpy() for confusion in drawn])
    coverage, precision = c.coverage.numpy(), c.precision.numpy()
    slack = objective.slack(c).numpy()
    slacks = np.stack([objective.slack(confusion).numpy() for confusion in drawn])
    values = np.array([float(objective.value(confusion)) for confusion in drawn])
    value = expected_value(objective, estimate)
    far = float(_reach(values[:, None], level)[0])
    low_recall = interval_from_draws(recall, recalls, lowest, level)
    if counted[recall.argmin()] == 0:
        # Draws around a recall of 0 are all 0; the lowest recall may be as high as the classes' own intervals allow.
        low_recall = low_recall[0], max(low_recall[1], float(high.min()))
    low_coverage = interval_from_draws(coverage, coverages, float(coverage.min()), level)
    # So are draws around a coverage of 0: no high end lies below Clopper and Pearson's for 0 of all rows.
    never = 1 - tail ** (1 / (sum(n) + estimate.unlabeled))
    return {
        "level": level,
        # No farther than any draw: a mean of recalls is at most 1.
        "value": _row(value, max(value - far, values.min()), min(value + far, max(value, values.max())), int(sum(n))),
        "min_recall": _row(lowest, *low_recall, n[int(recall.argmin())]),
        "min_coverage": _row(float(coverage.min()), low_coverage[0], max(low_coverage[1], never), int(sum(n))),
        "recall": [_row(*values) for values in zip(recall, low, high, n, strict=True)],
        "coverage": [{**row, "high": max(row["high"], never)} for row in _rows(coverage, coverages, n, level)],
        "precision": [
            row if value > 0 else None
            for row, value in zip(_rows(precision, precisions, n, level), precision, strict=True)
        ],
        "constraints": [
            {"constraint": name, "slack": float(value), "low": float(value - reach), "high": float(value + reach)}
            for name, value, reach in zip(
                constraint_names(objective, c, len(slack)), slack, _reach(slacks, level), strict=True
            )
        ],
    }


def describe_minimum(
    intervals: dict[str, Any], class_names: Sequence[str] | None = None, half_width: float = 0.1
) -> str | None:
    """A sentence where the lowest recall is known worse than ± half_width; None where it is known well."""
    lowest = intervals["min_recall"]
    if max(lowest["estimate"] - lowest["low"], lowest["high"] - lowest["estimate"]) <= half_width:
        return None
    widths = [interval["high"] - interval["low"] for interval in intervals["recall"]]
    widest = int(np.argmax(widths))
    name = widest if class_names is None else repr(class_names[widest])
    labels = intervals["recall"][widest]["n"]
    return (
        f"the lowest class recall is expected to be {lowest['estimate']:.2f}; its {intervals['level']:.0%} interval is "
        f"{lowest['low']:.2f} to {lowest['high']:.2f}; the recall of class {name}, judged by {labels} "
        f"label{'s' if labels != 1 else ''}, is known worst"
    )


def constraint_names(objective: Objective, c: Confusion, constraints: int) -> Sequence[str]:
    """A name for every constraint of the objective."""
    shared = objective.domain.simplex_mask(len(payoff_of(objective, c))).tolist()
    if len(objective.labels) == len(shared) and shared.count(False) == constraints:
        return [label for label, worst in zip(objective.labels, shared, strict=True) if not worst]
    return [f"constraint {number}" for number in range(constraints)]


def _reach(draws: np.ndarray, level: float) -> np.ndarray:
    """How far simultaneous intervals reach to either side, by the spread of draws (B, P)."""
    return norm.ppf(1 - (1 - level) / 2 / max(1, draws.shape[1])) * draws.std(0)


def _rows(values: np.ndarray, draws: np.ndarray, n: list[int], level: float) -> list[dict[str, float | int]]:
    reach = _reach(draws, level)
    return [
        _row(value, max(0.0, value - far), min(1.0, value + far), k)
        for value, far, k in zip(values, reach, n, strict=True)
    ]


def _row(estimate: float, low: float, high: float, n: int) -> dict[str, float | int]:
    return {"estimate": float(estimate), "low": float(low), "high": float(high), "n": n}
