"""The bootstrap: confusion counts as they might have been with other examples, and the constraints' intervals."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.estimation.expectation import constraint_names
from csst.estimation.intervals import intervals
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective

#: bootstrap draws behind an interval
DRAWS = 200
#: factor by which a normal interval is widened because the draws are few
WIDER = 1.1


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
