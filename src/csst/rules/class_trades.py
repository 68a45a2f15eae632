"""What one class can trade: its recall against its precision, by a sweep of its own bias."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from csst.estimation.class_rates import UNLABELED_WORTH, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import objective as read_objective
from csst.maths.language.tree import Metric, render
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import (
    MARGIN,
    MARGIN_ROUNDS,
    REACHED,
    SWEPT_ROWS,
    Candidate,
    count_worth,
    halve_margin,
    hard_rates,
    sharpness,
    weigh_argmax,
)
from csst.rules.metric_form import MetricForm
from csst.rules.soft_objective import SoftObjective
from csst.rules.standard_errors import FormPayoffs, measure_standard_errors
from csst.rules.sweeps import Sweep

P = TypeVar("P")
#: precisions that are asked for
ASKED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: more classes than this are not traced
MOST_CLASSES = 20
#: a recall below this is no trade but a class given up
LEAST_RECALL = 0.05


class ClassPoint(NamedTuple):
    """What `max recall[k] s.t. precision[k] >= asked` comes to for class k."""

    asked: float
    recall: float
    precision: float
    coverage: float


def write_sentence(asked: float, class_reference: int | str) -> str:
    """Return the sentence of a point, about a class by its index or its name."""
    recall, precision = (render(Metric(name, class_reference)) for name in ("recall", "precision"))
    return f"max {recall} s.t. {precision} >= {asked:g}"


def trace_classes(evidence: HeldOutScores, prior: np.ndarray) -> dict[int, tuple[ClassPoint, ...]]:
    """Return the trade of every class that has one, under a deployment prior (K,); of none where classes are many.

    Only the class's own bias moves, from the argmax of calibrated probabilities, and it keeps the distance from its
    bound that rules keep. This forecasts the rule of the sentence, which moves all biases and mostly attains this
    recall or a higher one, now and then a lower one. Searching for every point would take fifty times as long.

    Args:
        evidence: scores of labeled and unlabeled rows.
        prior: the deployment prior, (K,).

    Returns:
        The points of each class, from high recall down and low precision up.
    """
    if evidence.classes > MOST_CLASSES:
        return {}
    rows = WeightedRows.pool(evidence.thin(SWEPT_ROWS))
    trades = {k: trace_class(evidence, prior, rows, k) for k in range(evidence.classes)}
    return {k: points for k, points in trades.items() if len(points) > 1}


def trace_class(
    evidence: HeldOutScores, prior: np.ndarray, rows: WeightedRows, class_index: int
) -> tuple[ClassPoint, ...]:
    """Return the trade of one class from the pooled rows of the evidence, under a prior (K,)."""
    start = weigh_argmax(prior, evidence.calibration)
    start_scores = rows.scores + start
    sweep = Sweep.of_class(rows, start_scores, start_scores.argmax(1), rows.fractions @ prior, class_index)
    ranks = sweep.snap_ranks(sweep.spread_ranks())
    recall, coverage = (margins[:, class_index] for margins in sweep.margins_after(ranks))
    precision = prior[class_index] * recall / np.maximum(coverage, 1e-300)
    worth = count_worth(evidence.counts, np.minimum(UNLABELED_WORTH, evidence.soft_posterior.sum(0)))
    form, bound_places = read_bound(evidence, prior, class_index)

    def find_bias(least_precision: float) -> np.ndarray | None:
        """Return the bias with the highest recall at this precision."""
        places = np.flatnonzero(precision >= least_precision)
        if not len(places):
            return None
        bias = start.copy()
        bias[class_index] = sweep.bias_at(int(ranks[places[recall[places].argmax()]]))
        return bias

    def find_safer(bound: float, bias: np.ndarray) -> np.ndarray | None:
        """Return the bias with the largest part of a margin that there is room for, as the search for a rule does."""
        form_at_bound = replace(form, constant=form.constant - bound)

        def measure(bias: np.ndarray) -> tuple[float, float]:
            """Return the slack of the bound and its standard error."""
            rates = hard_rates(rows, (rows.scores + bias).argmax(1))
            precision = prior[class_index] * rates[class_index, class_index] / (prior @ rates)[class_index]
            error = measure_standard_errors(FormPayoffs(form_at_bound, bound_places), rates, worth)[0]
            return float(precision - bound), float(error)

        _, error = measure(bias)
        for factor in halve_margin(MARGIN):
            target = factor * error
            for _ in range(MARGIN_ROUNDS):
                safer = find_bias(bound + target)
                if safer is None:
                    break
                # A safer rule may be known worse: it predicts the class less often.
                slack, safer_error = measure(safer)
                raised_target = max(target, factor * safer_error)
                if slack >= REACHED * raised_target:
                    return safer
                target = raised_target
        return None

    points: list[ClassPoint] = []
    for bound in ASKED:
        bias = find_bias(bound)
        safer = None if bias is None else find_safer(bound, bias)
        if safer is None:
            break
        candidate = Candidate("pooled", evidence.calibration, prior, bias=safer)
        decisions = candidate.decide(evidence.scores), candidate.decide(evidence.soft_scores)
        confusion = estimate_rates(evidence, *decisions, prior).confusion
        numbers = (float(values[class_index]) for values in (confusion.recall, confusion.precision, confusion.coverage))
        point = ClassPoint(bound, *numbers)
        if point.recall < LEAST_RECALL:
            break
        points.append(point)
    return keep_trade(points, lambda point: (point.recall, point.precision))


def read_bound(evidence: HeldOutScores, prior: np.ndarray, class_index: int) -> tuple[MetricForm, np.ndarray]:
    """Return the sentence of a class with a bound of 0 as a form, and where the bound is: others differ by a number."""
    sentence = read_objective(write_sentence(0, class_index)).bind(evidence.classes)
    goal = SoftObjective(sentence, prior, sharpness(evidence))
    assert goal.form is not None  # precision and recall of a class are metrics of it
    return goal.form, np.asarray(goal.constraints)


def keep_trade(points: Sequence[P], measure: Callable[[P], tuple[float, float]]) -> tuple[P, ...]:
    """Return the points that are worth moving along: each has more of a second number for less of the first.

    Args:
        points: in any order.
        measure: both numbers of a point.

    Returns:
        The points, from the most of the first number on.
    """
    trade: list[P] = []
    for point in sorted(points, key=measure, reverse=True):
        if not trade or measure(point)[1] > measure(trade[-1])[1] + 1e-9:
            trade.append(point)
    return tuple(trade)
