"""Simultaneous confidence intervals of counted fractions, and of constraints.

Intervals of fractions k of n are Clopper and Pearson's exact ones, at a level raised (Bonferroni) so that those of all
classes are simultaneous: all are right with at least the stated probability. If all are, the lowest class recall lies
between the lowest lower and the lowest upper end; that is the interval of a minimum. Those of constraints, which are
any functions of the rates, come from the bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from csst.errors import InputError
from csst.estimation.expectation import constraint_names
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective

#: bootstrap draws behind an interval
DRAWS = 200
#: factor by which a normal interval is widened because the draws are few
WIDER = 1.1


@dataclass(frozen=True)
class Interval:
    """low <= estimate <= high.

    Args:
        estimate: a counted fraction.
        low: the lower end.
        high: the upper end.
        n: how many examples it is counted on.
    """

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.2f} ({self.low:.2f}–{self.high:.2f}, n = {self.n})"

    def as_dict(self) -> dict[str, float | int]:
        """Return plain values for JSON."""
        return dict(vars(self))


def clopper_pearson(k: int, n: int, level: float = 0.95, simultaneous: int = 1) -> Interval:
    """Return the Clopper-Pearson interval of a fraction k of n.

    low, high: the fractions for which k or more, or k or fewer, would be seen with probability (1 - level) / (2 m).

    Args:
        k: successes.
        n: trials.
        level: level of the interval, or of all simultaneous intervals.
        simultaneous: m, how many intervals are to be right together (Bonferroni).
    """
    if not 0 <= k <= n or n < 1:
        raise InputError(f"a fraction needs 0 <= k <= n and n >= 1; found k = {k}, n = {n}")
    if not 0 < level < 1 or simultaneous < 1:
        raise InputError(
            f"the level lies between 0 and 1 and at least one interval is asked for; found {level}, {simultaneous}"
        )
    # scipy.stats.binomtest finds the same ends by bisection in 60 times the time, too long for 1,000 classes.
    tail = (1 - level) / (2 * simultaneous)
    low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return Interval(k / n, low, high, n)


def count_intervals(hits: Tensor, totals: Tensor, level: float) -> list[Interval]:
    """Return simultaneous intervals of every class's fraction, from counts (K,); 0 to 1 for a class without a trial."""
    return [
        clopper_pearson(k, n, level, simultaneous=len(hits)) if n else Interval(0.0, 0.0, 1.0, 0)
        for k, n in zip(hits.tolist(), totals.tolist(), strict=True)
    ]


def recall_intervals(counts: Tensor, level: float = 0.95) -> list[Interval]:
    """Return simultaneous intervals of every class's recall, from counts (K, K), or (K, K + 1) with abstention.

    Recall is of what is answered; nothing is known of a class without an answer.
    """
    answers = counts.to(torch.int64)[:, : len(counts)]
    return count_intervals(answers.diagonal(), answers.sum(1), level)


def minimum_interval(intervals: Sequence[Interval]) -> Interval:
    """Return the interval of the minimum, from simultaneous intervals; n belongs to the class with the lowest end."""
    weakest = min(intervals, key=lambda interval: interval.low)
    estimate = min(interval.estimate for interval in intervals)
    return Interval(estimate, weakest.low, min(interval.high for interval in intervals), weakest.n)


def coverage_intervals(counts: Tensor, level: float = 0.95) -> list[Interval]:
    """Return simultaneous intervals of every class's fraction of the predictions, from confusion counts (K, K)."""
    predictions = counts.to(torch.int64).sum(0)[: len(counts)]
    return count_intervals(predictions, counts.to(torch.int64).sum().expand_as(predictions), level)


def precision_intervals(counts: Tensor, level: float = 0.95) -> list[Interval | None]:
    """Return simultaneous intervals of every class's precision; None for a class that is never predicted."""
    answers = counts.to(torch.int64)[:, : len(counts)]
    intervals = count_intervals(answers.diagonal(), answers.sum(0), level)
    return [interval if interval.n else None for interval in intervals]


def intervals(counts: Tensor, level: float = 0.95) -> dict[str, Any]:
    """Return the intervals of metrics.json: recall, precision and coverage of every class, and the minima."""
    recall = recall_intervals(counts, level)
    coverage = coverage_intervals(counts, level)
    precision = precision_intervals(counts, level)
    return {
        "level": level,
        "min_recall": minimum_interval(recall).as_dict(),
        "min_coverage": minimum_interval(coverage).as_dict(),
        "recall": [interval.as_dict() for interval in recall],
        "coverage": [interval.as_dict() for interval in coverage],
        "precision": [interval.as_dict() if interval is not None else None for interval in precision],
    }


def bootstrap_counts(counts: Tensor, draws: int) -> Iterator[Tensor]:
    """Yield counts (K, K) as they might have come out with other examples of every class, one draw at a time.

    From row i of n_i examples, n_i new predictions are drawn as if one more example had been right and one more wrong,
    this one spread over all other classes, so that neither a perfect row nor a hopeless one claims to be certain.
    """
    hits = torch.eye(*counts.shape, dtype=torch.float64)
    rows = counts.double() + hits + (1 - hits) / (counts.shape[1] - 1)
    shares = (rows / rows.sum(1, keepdim=True)).numpy()
    totals = counts.sum(1).long().numpy()
    generator = np.random.default_rng(0)
    for _ in range(draws):
        yield torch.from_numpy(generator.multinomial(totals, shares))


def slack_intervals(objective: Objective, counts: Tensor, level: float = 0.95) -> list[dict[str, Any]]:
    """Return by how much each constraint is met, with simultaneous intervals (Bonferroni), by the bootstrap.

    The widest of three bootstraps: percentile (the tails a and b of the slack over the draws), basic (2 slack - b to
    2 slack - a), and normal (1.1 standard normal quantiles from the slack and from its mean over the draws). An
    approximation, unlike the exact intervals of recall; in simulations with 5 to 50 examples per class its coverage was
    at least the stated one.
    """
    confusion = Confusion.from_counts(counts)
    slack = objective.slack(confusion)
    if not len(slack):
        return []
    draws = torch.stack([objective.slack(Confusion.from_counts(sample)) for sample in bootstrap_counts(counts, DRAWS)])
    tail = (1 - level) / 2 / len(slack)
    a, b = torch.quantile(draws, torch.tensor([tail, 1 - tail], dtype=draws.dtype), dim=0)
    reach = WIDER * NormalDist().inv_cdf(1 - tail) * draws.std(0)
    low = torch.stack([a, 2 * slack - b, slack - reach, draws.mean(0) - reach]).amin(0)
    high = torch.stack([b, 2 * slack - a, slack + reach, draws.mean(0) + reach]).amax(0)
    names = constraint_names(objective, confusion, len(slack))
    rows = zip(names, slack.tolist(), low.tolist(), high.tolist(), strict=True)
    return [dict(zip(("constraint", "slack", "low", "high"), row, strict=True)) for row in rows]


def all_intervals(objective: Objective, counts: Tensor, level: float = 0.95) -> dict[str, Any]:
    """Return the intervals of metrics.json: of the class rates, and of the slack of every constraint."""
    return {**intervals(counts, level), "constraints": slack_intervals(objective, counts, level)}
