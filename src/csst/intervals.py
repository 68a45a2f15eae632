"""How sure the numbers are: simultaneous confidence intervals, and shrinkage of rates seen on few examples.

Intervals are Clopper and Pearson's exact ones for a share k of n, at a level raised (Bonferroni) so that all classes'
intervals hold together with at least the stated probability. If all hold, the least recall lies between the least
lower and the least upper end; that is the interval of a minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.confusion import Confusion
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


def needed(estimate: float, half_width: float, classes: int, level: float = 0.95) -> int:
    """Examples per class so that intervals of that many classes around the estimate reach no further than this."""
    if not 0 < half_width < 1:
        raise InputError(f"the half width of an interval lies between 0 and 1; found {half_width}")
    n = 1
    while _reach(estimate, n, classes, level) > half_width:
        n *= 2
    low, high = n // 2, n
    while high - low > 1:  # the reach falls with n, up to rounding of k
        middle = (low + high) // 2
        low, high = (low, middle) if _reach(estimate, middle, classes, level) <= half_width else (middle, high)
    return high


def _reach(estimate: float, n: int, classes: int, level: float) -> float:
    found = share(round(estimate * n), n, level, classes)
    return max(found.estimate - found.low, found.high - found.estimate)


def too_small(counts: Tensor, half_width: float = 0.1, level: float = 0.95) -> str | None:
    """A sentence where the worst class's recall is known worse than ± half_width; None where it is known well."""
    found = recall_intervals(counts, level)
    worst = min(range(len(found)), key=lambda i: found[i].estimate)
    one = found[worst]
    if max(one.estimate - one.low, one.high - one.estimate) <= half_width:
        return None
    n = needed(one.estimate, half_width, len(found), level)
    return (
        f"the least recall, {one.estimate:.2f}, rests on {one.n} examples and may be anything from "
        f"{least(found).low:.2f} to {least(found).high:.2f}: about {n} per class are needed to know it within "
        f"± {half_width:g}"
    )


def shrunk(counts: Tensor) -> Confusion:
    """The confusion with every class's recall drawn towards the classes' common level, the more the fewer examples.

    Recall_i is modelled as Beta(a, b) across classes and the hits of class i as Binomial(n_i, recall_i); a and b are
    the most likely ones (empirical Bayes), and recall_i becomes (k_i + a) / (n_i + a + b). The errors of a class keep
    their proportions; a class without errors spreads what it is given evenly.
    """
    plain = Confusion.from_counts(counts)
    hits, totals = counts.diagonal().double(), counts.sum(1).double()
    a, b = beta_binomial(hits, totals)
    recall = (hits + a) / (totals + a + b)
    errors = counts.double() - torch.diag(hits)
    missed = errors.sum(1, keepdim=True)
    classes = len(counts)
    even = (1 - torch.eye(classes, dtype=torch.float64)) / max(1, classes - 1)
    spread = torch.where(missed > 0, errors / missed.clamp(min=1), even)
    rates = torch.diag(recall) + (1 - recall)[:, None] * spread
    return Confusion(rates.to(plain.rates), plain.prior)


def certainty(counts: Tensor) -> float:
    """How far a dual step may go, 0 .. 1: the mean of n_i / (n_i + 4), as if four examples more said nothing."""
    totals = counts.sum(1).double()
    return float((totals / (totals + 4)).mean())


def beta_binomial(hits: Tensor, totals: Tensor) -> tuple[float, float]:
    """The Beta(a, b) that makes the counts most likely, with a + b between 0.5 and 10,000."""
    from scipy.optimize import minimize
    from scipy.special import betaln

    k, n = hits.numpy(), totals.numpy()
    start = float((k.sum() + 0.5) / (n.sum() + 1))

    def surprise(at: Any) -> float:
        mean, size = 1 / (1 + math.exp(-at[0])), math.exp(at[1])
        a, b = mean * size, (1 - mean) * size
        return float(-(betaln(k + a, n - k + b) - betaln(a, b)).sum())

    box = [(-8.0, 8.0), (math.log(0.5), math.log(10_000))]
    first = math.log(start / (1 - start))
    found = min(
        (minimize(surprise, [first, math.log(size)], bounds=box, method="L-BFGS-B") for size in (2.0, 20.0, 200.0)),
        key=lambda one: float(one.fun),
    )
    mean, size = 1 / (1 + math.exp(-found.x[0])), math.exp(found.x[1])
    return mean * size, (1 - mean) * size
