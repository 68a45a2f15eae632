"""How sure counted numbers are: simultaneous confidence intervals.

Intervals are Clopper and Pearson's exact ones for a share k of n, at a level raised (Bonferroni) so that all classes'
intervals hold together with at least the stated probability. If all hold, the least recall lies between the least
lower and the least upper end; that is the interval of a minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError


@dataclass(frozen=True)
class Interval:
    """low <= estimate <= high, from n examples."""

    estimate: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.2f} ({self.low:.2f}–{self.high:.2f}, n = {self.n})"

    def as_dict(self) -> dict[str, float | int]:
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "n": self.n}


def share(k: int, n: int, level: float = 0.95, together: int = 1) -> Interval:
    """The interval of a share, k of n, that holds together with `together - 1` others at the level.

    low, high: the shares for which k or more, or k or fewer, would be seen with probability (1 - level) / (2 together).
    """
    if not 0 <= k <= n or n < 1:
        raise InputError(f"a share needs 0 <= k <= n and n >= 1; found k = {k}, n = {n}")
    if not 0 < level < 1 or together < 1:
        raise InputError(
            f"the level lies between 0 and 1 and at least one interval is asked for; found {level}, {together}"
        )
    from scipy.special import betaincinv

    tail = (1 - level) / (2 * together)
    low = float(betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return Interval(k / n, low, high, n)


def recall_intervals(counts: Tensor, level: float = 0.95) -> list[Interval]:
    """Intervals of every class's recall that hold together, from confusion counts (K, K)."""
    counts = counts.to(torch.int64)
    return [share(int(counts[i, i]), int(counts[i].sum()), level, together=len(counts)) for i in range(len(counts))]


def least(intervals: Sequence[Interval]) -> Interval:
    """The interval of the minimum, given intervals that hold together; n is that of the class that sets its low end."""
    weakest = min(intervals, key=lambda one: one.low)
    return Interval(min(one.estimate for one in intervals), weakest.low, min(one.high for one in intervals), weakest.n)


def coverage_intervals(counts: Tensor, level: float = 0.95) -> list[Interval]:
    """Intervals of the share of predictions of every class that hold together, for examples drawn as these were."""
    counts = counts.to(torch.int64)
    total = int(counts.sum())
    return [share(int(counts[:, j].sum()), total, level, together=len(counts)) for j in range(len(counts))]


def precision_intervals(counts: Tensor, level: float = 0.95) -> list[Interval | None]:
    """Intervals of every class's precision that hold together; None for a class that is never predicted."""
    counts = counts.to(torch.int64)
    predicted = counts.sum(0).tolist()
    return [
        share(int(counts[j, j]), predicted[j], level, together=len(counts)) if predicted[j] else None
        for j in range(len(counts))
    ]


def intervals(counts: Tensor, level: float = 0.95) -> dict[str, Any]:
    """What metrics.json says about certainty: recall, precision and coverage of every class, and the minima."""
    recall, coverage = recall_intervals(counts, level), coverage_intervals(counts, level)
    precision = precision_intervals(counts, level)
    return {
        "level": level,
        "min_recall": least(recall).as_dict(),
        "min_coverage": least(coverage).as_dict(),
        "recall": [one.as_dict() for one in recall],
        "coverage": [one.as_dict() for one in coverage],
        "precision": [one.as_dict() if one is not None else None for one in precision],
    }
