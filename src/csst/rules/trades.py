"""What rules can trade beside the frontier of all classes.

trace_classes    the recall of one class against its precision, by a sweep of its own bias
trace_groups     mean recall against the lowest recall of a class in a group of rows
trace_reviews    a sentence's value at growing shares of rows that get no answer and are left to a human
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, count_unlabeled_worth
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.language.tree import Metric, render
from csst.rules.abstention import estimate_abstaining, fit_answering, search_rule
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import (
    MARGIN,
    SWEPT_ROWS,
    Candidate,
    count_worth,
    estimate_candidate,
    fit_pooled,
    hard_rates,
    raise_margin,
    soften,
    weigh_argmax,
)
from csst.rules.cells import CellObjective, CellScores, RowGroups, make_cells
from csst.rules.feasibility import describe_feasibility, find_missed
from csst.rules.metric_form import MetricForm
from csst.rules.standard_errors import FormPayoffs, measure_standard_errors
from csst.rules.sweeps import Sweep
from csst.rules.threads import use_one_thread

P = TypeVar("P")
#: precisions that are asked for
ASKED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: more classes than this are not traced
MOST_CLASSES = 20
#: a recall below this is no trade but a class given up
LEAST_RECALL = 0.05
#: sentences from the highest mean recall to the highest recall of the worst class in the worst group
GROUP_STEPS = 6
#: shares of rows that are left to a human
REVIEWED_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


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
    worth = count_worth(evidence.counts, count_unlabeled_worth(evidence))
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

        def measure(bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return the slack of the bound and its standard error, (1,) each."""
            rates = hard_rates(rows, (rows.scores + bias).argmax(1))
            precision = prior[class_index] * rates[class_index, class_index] / (prior @ rates)[class_index]
            errors = measure_standard_errors(FormPayoffs(form_at_bound, bound_places), rates, worth)
            return np.array([precision - bound]), errors

        result = raise_margin(bias, MARGIN, measure, lambda targets, _: find_bias(bound + targets[0]))
        return None if result is None else result[0]

    points: list[ClassPoint] = []
    for bound in ASKED:
        bias = find_bias(bound)
        safer = None if bias is None else find_safer(bound, bias)
        if safer is None:
            break
        candidate = Candidate("pooled", evidence.calibration, prior, bias=safer)
        confusion = estimate_candidate(evidence, candidate, prior).confusion
        numbers = (float(values[class_index]) for values in (confusion.recall, confusion.precision, confusion.coverage))
        point = ClassPoint(bound, *numbers)
        if point.recall < LEAST_RECALL:
            break
        points.append(point)
    return keep_trade(points, lambda point: (point.recall, point.precision))


def read_bound(evidence: HeldOutScores, prior: np.ndarray, class_index: int) -> tuple[MetricForm, np.ndarray]:
    """Return the sentence of a class with a bound of 0 as a form, and where the bound is: others differ by a number."""
    sentence = read_objective(write_sentence(0, class_index)).bind(evidence.classes)
    goal = soften(sentence, prior, evidence)
    assert goal.form is not None  # precision and recall of a class are metrics of it
    return goal.form, np.asarray(goal.constraints)


def keep_trade(points: Sequence[P], measure: Callable[[P], tuple[float, float]]) -> tuple[P, ...]:
    """Return the points that are worth moving along: each has more of a second number for less of the first.

    Args:
        points: points in any order.
        measure: both numbers of a point.

    Returns:
        The points, from the most of the first number on.
    """
    trade: list[P] = []
    for point in sorted(points, key=measure, reverse=True):
        if not trade or measure(point)[1] > measure(trade[-1])[1] + 1e-9:
            trade.append(point)
    return tuple(trade)


@dataclass(frozen=True)
class GroupPoint:
    """What the rule of one sentence is expected to do.

    Args:
        sentence: the sentence, which gives the rule again by `decide`.
        mean_recall: mean over the classes of all rows.
        lowest_recall: lowest recall of a class in a group.
    """

    sentence: str
    mean_recall: float
    lowest_recall: float


@use_one_thread
def trace_groups(
    evidence: HeldOutScores, groups: RowGroups, prior: np.ndarray, per_group: bool, class_names: tuple[str, ...]
) -> tuple[GroupPoint, ...]:
    """Return the trade from the highest mean recall down, each point with a higher lowest recall than those before.

    Estimated from the rows that the rules are fitted on, as the other points of a frontier are.

    Args:
        evidence: scores of labeled and unlabeled rows.
        groups: groups of its rows.
        prior: the deployment prior, (K,).
        per_group: whether each group has a rule of its own.
        class_names: K names.

    Returns:
        The points.
    """
    cells = make_cells(evidence, groups, prior, not per_group)
    points = []
    for text in list_sentences(groups.column):
        sentence = read_objective(text, class_names=class_names)
        assert isinstance(sentence, Sentence)
        objective = CellObjective(sentence.bind_row_groups(groups.names), torch.from_numpy(cells.cell_prior))
        confusion = fit_cells(cells, objective).confusion
        mean = float(objective.view(confusion).recall.mean())
        points.append(GroupPoint(text, mean, float(confusion.recall.min())))
    return keep_trade(points, lambda point: (point.mean_recall, point.lowest_recall))


@use_one_thread
def check_groups(
    evidence: HeldOutScores, groups: RowGroups, prior: np.ndarray, per_group: bool, sentence: Sentence
) -> tuple[bool, str]:
    """Return whether the bounds of a sentence about groups can be met, and what comes nearest, in words.

    Args:
        evidence: scores of labeled and unlabeled rows.
        groups: groups of its rows.
        prior: the deployment prior, (K,).
        per_group: whether each group has a rule of its own.
        sentence: bound to its classes and groups.

    Returns:
        Whether they can, and the sentence.
    """
    cells = make_cells(evidence, groups, prior, not per_group)
    objective = CellObjective(sentence, torch.from_numpy(cells.cell_prior))
    estimate = fit_cells(cells, objective)
    misses = list(find_missed(objective, estimate))
    return not misses, describe_feasibility(objective, estimate, misses, lambda goal: estimate)


def fit_cells(cells: CellScores, objective: CellObjective) -> RateEstimate:
    """Return the rates of cells that the rule of an objective is expected to have."""
    rule = fit_pooled(soften(objective, cells.labeled_prior, cells), cells)
    return estimate_candidate(cells, rule, cells.labeled_prior)


def list_sentences(column: str) -> list[str]:
    """Return sentences from the highest mean recall to the best worst class in the worst group of a column."""
    shares = np.linspace(0, 1, GROUP_STEPS)
    # A share of the minimum stays in the first, so that it is about groups, too.
    shares[0] = 0.01
    mixtures = [f"max {1 - share:.6g}*mean(recall) + {share:.6g}*min(recall by {column})" for share in shares[:-1]]
    return [*mixtures, f"max min(recall by {column})"]


@dataclass(frozen=True)
class Review:
    """What is expected if a share of the rows gets no answer.

    Args:
        share: share of all rows.
        value: value of the sentence's goal, on what is answered.
        min_recall: the lowest recall of what is answered.
        misses: other bounds of the sentence that are missed.
    """

    share: float
    value: float
    min_recall: float
    misses: tuple[str, ...] = ()


def trace_reviews(
    evidence: HeldOutScores, prior: np.ndarray, sentence: Sentence, shares: Sequence[float] = REVIEWED_SHARES
) -> tuple[Review, ...]:
    """Return what the best rules reach that leave these shares of rows to a human.

    Like every point of a frontier, each is estimated from the rows it was fitted on.

    Args:
        evidence: scores of labeled and unlabeled rows.
        prior: the deployment prior, (K,).
        sentence: bound to the classes; its own bounds on the abstention of all rows do not count.
        shares: shares of rows without an answer.
    """
    points = []
    answering = sentence.answering
    for share in shares:
        limited_sentence = replace(answering, constraints=(*answering.constraints, *limit_share(share)))
        goal = soften(limited_sentence, prior, evidence)
        rule, _ = search_rule(goal, evidence, fit_answering(goal, evidence))
        estimate = estimate_abstaining(evidence, rule.decide(evidence.scores), rule, prior)
        misses = tuple(bound for _, bound, _ in find_missed(limited_sentence, estimate) if "abstain" not in bound)
        value = float(limited_sentence.value(estimate.confusion))
        points.append(Review(share, value, float(estimate.confusion.recall.min()), misses))
    return tuple(points)


def limit_share(share: float) -> tuple:
    """Return the bound on the share of rows without an answer."""
    limit = read_objective(f"max accuracy s.t. abstain <= {share:.6g}")
    assert isinstance(limit, Sentence)
    return limit.constraints
