"""What an estimate of class rates lets one expect, and how sure that is.

The minimum of estimated recalls is no estimate of the lowest recall: the mean of a minimum lies below the minimum of
means. So values of objectives with a worst case are averaged over rates as they may truly be, and intervals hold the
middle of the same draws (`csst.estimation.rate_draws`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import beta, norm

from csst.estimation.class_rates import RateEstimate
from csst.estimation.rate_draws import count_answers, draw_confusions, draw_recalls
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective, payoff_of

#: draws of all rates; fewer where there are many classes
DRAWS = 400
FEW_DRAWS = 60
MANY_CLASSES = 100
#: of intervals
LEVEL = 0.95
#: a high end beyond this is 1
NEARLY_ONE = 0.995

#: estimate, low, high and n of an interval
Row = dict[str, float | int]


def number_of_draws(estimate: RateEstimate) -> int:
    """Return how many confusions are drawn."""
    return DRAWS if estimate.classes <= MANY_CLASSES else FEW_DRAWS


def expected_value(objective: Objective, estimate: RateEstimate, values: np.ndarray | None = None) -> float:
    """Return the expected value of the objective: averaged over draws if it has a worst case.

    Args:
        objective: bound to the classes.
        estimate: estimate of the rates.
        values: values of the objective at the draws, if they are known already.
    """
    payoff = payoff_of(objective, estimate.confusion)
    if not bool(objective.domain.simplex_mask(len(payoff)).any()):
        return float(objective.value(estimate.confusion))
    if torch.equal(payoff, estimate.confusion.recall) and not float(objective.utility(estimate.confusion)):
        return expected_minimum(estimate)  # max min(recall) itself: the same number as its interval has
    if values is None:
        values = measure_draws(objective, draw_confusions(estimate, number_of_draws(estimate)))
    return float(np.mean(values))


def measure_draws(objective: Objective, confusions: Iterable[Confusion]) -> np.ndarray:
    """Return the values of the objective at confusions as they may truly be."""
    return np.array([float(objective.value(confusion)) for confusion in confusions])


def expected_minimum(estimate: RateEstimate) -> float:
    """Return the expected lowest recall."""
    return float(draw_recalls(estimate).min(1).mean())


def estimate_intervals(objective: Objective, estimate: RateEstimate) -> dict[str, Any]:
    """Return the intervals of metrics.json: value, recall, precision and coverage of every class, minima, constraints.

    The intervals of the classes are simultaneous (Bonferroni).
    """
    confusions = list(draw_confusions(estimate, number_of_draws(estimate)))
    recalls = estimate_recalls(estimate)
    return {
        "level": LEVEL,
        "value": estimate_value(objective, estimate, confusions),
        "min_recall": estimate_lowest_recall(estimate, recalls),
        **estimate_predictions(estimate, confusions),
        "recall": recalls,
        "constraints": estimate_constraints(objective, estimate, confusions),
    }


def estimate_recalls(estimate: RateEstimate) -> list[Row]:
    """Return the intervals of the recalls, as Clopper and Pearson's for as many labels as give the spread of draws."""
    recall = estimate.confusion.recall.numpy()
    draws = draw_recalls(estimate)
    means = draws.mean(0)
    sizes = means * (1 - means) / draws.var(0) - 1
    tail = (1 - LEVEL) / 2 / estimate.classes
    # One example more that was wrong for the low end, one more that was right for the high.
    low = np.minimum(beta.ppf(tail, sizes * means, sizes * (1 - means) + 1), recall)
    high = np.maximum(beta.ppf(1 - tail, sizes * means + 1, sizes * (1 - means)), recall)
    # Nothing that all labels say can be ruled out.
    labels = count_answers(estimate)
    low = np.where(labels.hits == 0, 0.0, low)
    high = np.where((labels.misses == 0) | (high > NEARLY_ONE), 1.0, high)
    return [_row(*values) for values in zip(recall, low, high, estimate.n, strict=True)]


def estimate_lowest_recall(estimate: RateEstimate, recalls: list[Row]) -> Row:
    """Return the interval of the lowest recall, given the intervals of all recalls."""
    minima = draw_recalls(estimate).min(1)
    place = int(estimate.confusion.recall.argmin())
    low, high = _middle(minima, float(minima.mean()))
    if estimate.labeled_rates[place, place] == 0:
        # Draws around a recall of 0 are all 0; the lowest recall may be as high as the classes' own intervals allow.
        high = max(high, min(row["high"] for row in recalls))
    return _row(float(minima.mean()), low, high, estimate.n[place])


def estimate_predictions(estimate: RateEstimate, confusions: list[Confusion]) -> dict[str, Any]:
    """Return the intervals of coverage and precision, and of the lowest coverage."""
    coverage = estimate.confusion.coverage.numpy()
    precision = estimate.confusion.precision.numpy()
    coverages = np.stack([confusion.coverage.numpy() for confusion in confusions])
    precisions = np.stack([confusion.precision.numpy() for confusion in confusions])
    labels = int(estimate.n.sum())
    low, high = _middle(coverages.min(1), float(coverage.min()))
    # Draws around a coverage of 0 are all 0: no high end lies below Clopper and Pearson's for 0 of all rows.
    least_high = 1 - ((1 - LEVEL) / 2 / estimate.classes) ** (1 / (labels + estimate.unlabeled))
    rows = _rows(precision, precisions, estimate.n)
    return {
        "min_coverage": _row(float(coverage.min()), low, max(high, least_high), labels),
        "coverage": [{**row, "high": max(row["high"], least_high)} for row in _rows(coverage, coverages, estimate.n)],
        "precision": [row if value > 0 else None for row, value in zip(rows, precision, strict=True)],
    }


def estimate_value(objective: Objective, estimate: RateEstimate, confusions: list[Confusion]) -> Row:
    """Return the interval of the value, no farther than any draw: a mean of recalls is at most 1."""
    values = measure_draws(objective, confusions)
    value = expected_value(objective, estimate, values)
    reach = float(_reach(values[:, None])[0])
    low = max(value - reach, min(value, values.min()))
    return _row(value, low, min(value + reach, max(value, values.max())), int(estimate.n.sum()))


def estimate_constraints(
    objective: Objective, estimate: RateEstimate, confusions: list[Confusion]
) -> list[dict[str, Any]]:
    """Return the slack of every constraint, and simultaneous intervals."""
    slack = objective.slack(estimate.confusion).numpy()
    reaches = _reach(np.stack([objective.slack(confusion).numpy() for confusion in confusions]))
    names = constraint_names(objective, estimate.confusion, len(slack))
    return [
        {"constraint": name, "slack": float(value), "low": float(value - reach), "high": float(value + reach)}
        for name, value, reach in zip(names, slack, reaches, strict=True)
    ]


def describe_minimum(
    intervals: dict[str, Any], class_names: Sequence[str] | None = None, half_width: float = 0.1
) -> str | None:
    """Return a sentence about a lowest recall that is uncertain by more than half_width; None if it is not."""
    minimum = intervals["min_recall"]
    if max(minimum["estimate"] - minimum["low"], minimum["high"] - minimum["estimate"]) <= half_width:
        return None
    widths = [interval["high"] - interval["low"] for interval in intervals["recall"]]
    widest = int(np.argmax(widths))
    name = widest if class_names is None else repr(class_names[widest])
    labels = intervals["recall"][widest]["n"]
    return (
        f"the lowest class recall is expected to be {minimum['estimate']:.2f}; its {intervals['level']:.0%} interval "
        f"is {minimum['low']:.2f} to {minimum['high']:.2f}; the recall of class {name}, judged by {labels} "
        f"label{'s' if labels != 1 else ''}, is known worst"
    )


def constraint_names(objective: Objective, c: Confusion, constraints: int) -> Sequence[str]:
    """Return a name for every constraint of the objective."""
    mask = objective.domain.simplex_mask(len(payoff_of(objective, c))).tolist()
    if len(objective.labels) == len(mask) and mask.count(False) == constraints:
        return [label for label, is_minimum in zip(objective.labels, mask, strict=True) if not is_minimum]
    return [f"constraint {number}" for number in range(constraints)]


def _reach(draws: np.ndarray) -> np.ndarray:
    """Return how far simultaneous intervals reach to either side, by the spread of draws (B, P)."""
    return norm.ppf(1 - (1 - LEVEL) / 2 / max(1, draws.shape[1])) * draws.std(0)


def _middle(draws: np.ndarray, value: float) -> tuple[float, float]:
    """Return the ends of the middle part of draws (B,), moved so that the value lies between them."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return min(float(low), value), max(float(high), value)


def _rows(values: np.ndarray, draws: np.ndarray, n: np.ndarray) -> list[Row]:
    return [
        _row(value, max(0.0, value - reach), min(1.0, value + reach), labels)
        for value, reach, labels in zip(values, _reach(draws), n, strict=True)
    ]


def _row(estimate: float, low: float, high: float, n: int) -> Row:
    return {"estimate": float(estimate), "low": float(low), "high": float(high), "n": int(n)}
