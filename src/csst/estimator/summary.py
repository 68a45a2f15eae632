"""What a fitted estimator says about itself, in plain words."""

from __future__ import annotations

import torch
from torch import Tensor

from csst.confusion import Confusion
from csst.intervals import least, recall_intervals, too_small
from csst.objectives import Objective
from csst.selection import standing

TOLERANCE = 1e-3
DRAWS = 100


def score_of(objective: Objective, counts: Tensor) -> float:
    """The value on these counts, less ten times what constraints are missed by."""
    return standing(objective, Confusion.from_counts(counts), TOLERANCE).score


def redrawn(counts: Tensor, draws: int) -> Tensor:
    """Counts (draws, K, K) as they might have come out with other examples of every class.

    From row i of n_i examples, n_i new predictions are drawn with probabilities (counts_ij + 1/K) / (n_i + 1), which
    are never 0, so that a perfect row claims no certainty.
    """
    rows, classes = counts.double() + 1 / len(counts), len(counts)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.zeros(draws, classes, classes, dtype=torch.float64)
    for i, n in enumerate(counts.sum(1).long().tolist()):
        picks = torch.multinomial(rows[i], draws * n, replacement=True, generator=generator).reshape(draws, n)
        drawn[:, i].scatter_add_(1, picks, torch.ones(draws, n, dtype=torch.float64))
    return drawn


def noise_of(objective: Objective, counts: Tensor) -> float:
    """The standard error of the score: its spread over counts drawn again."""
    return float(torch.tensor([score_of(objective, one) for one in redrawn(counts, DRAWS)]).std())


def slack_intervals(objective: Objective, counts: Tensor, level: float = 0.95) -> list[tuple[float, float, float]]:
    """(slack, low, high) of every constraint, holding together (Bonferroni), from counts drawn again.

    With a and b the tails of the slack over the draws: from min(a, 2 slack - b) to max(b, 2 slack - a), the wider of
    the percentile and the basic bootstrap. An approximation, unlike the exact intervals of recall.
    """
    seen = objective.slack(Confusion.from_counts(counts))
    if not len(seen):
        return []
    found = torch.stack([objective.slack(Confusion.from_counts(one)) for one in redrawn(counts, 2 * DRAWS)])
    tail = (1 - level) / 2 / len(seen)
    a, b = torch.quantile(found, torch.tensor([tail, 1 - tail], dtype=found.dtype), dim=0)
    low, high = torch.minimum(a, 2 * seen - b), torch.maximum(b, 2 * seen - a)
    return list(zip(seen.tolist(), low.tolist(), high.tolist(), strict=True))


def hurts(objective: Objective, ours: Tensor, labels_only: Tensor) -> str | None:
    """A sentence where the same goal without unlabeled data is reached better, by more than the noise."""
    reached, alone = score_of(objective, ours), score_of(objective, labels_only)
    noise = (noise_of(objective, ours) ** 2 + noise_of(objective, labels_only) ** 2) ** 0.5
    if alone - reached <= noise:
        return None
    return (
        f"the unlabeled data hurts: on validation, labels alone (method='csl') reach {alone:.3f} and this model "
        f"{reached:.3f}, a difference larger than the noise of {noise:.3f}: use method='csl' or 'auto'"
    )


def summary(
    objective: Objective,
    counts: Tensor,
    class_names: list[str],
    labeled: list[int],
    notes: list[str],
    about: str,
    where: str,
) -> str:
    """A few lines: the objective's value, the least recall with its interval, a row per class, what to be wary of."""
    confusion = Confusion.from_counts(counts)
    found = recall_intervals(counts)
    worst = least(found)
    lines = [
        f"{about} '{objective}'",
        f"objective {float(objective.value(confusion)):.3f} on {where}",
        f"min recall {worst.estimate:.2f} (95 % CI {worst.low:.2f}–{worst.high:.2f}, n = {worst.n}), "
        f"mean recall {float(confusion.recall.mean()):.2f}",
    ]
    slack = slack_intervals(objective, counts)
    if slack:
        least_slack, low, high = (min(each) for each in zip(*slack, strict=True))
        said = "constraints met, with a slack of" if least_slack >= 0 else "constraints missed by"
        ends = (low, high) if least_slack >= 0 else (-high, -low)
        lines.append(f"{said} {abs(least_slack):.3f} (95 % CI about {ends[0]:.2f} to {ends[1]:.2f})")
    width = max(len(name) for name in [*class_names, "class"])
    lines.append(f"{'class':<{width}}  labeled  recall  95 % CI     coverage")
    for name, count, one, share in zip(class_names, labeled, found, confusion.coverage.tolist(), strict=True):
        lines.append(f"{name:<{width}}  {count:>7}  {one.estimate:>6.2f}  {one.low:.2f}–{one.high:.2f}  {share:>8.3f}")
    small = too_small(counts)
    return "\n".join([*lines, *([f"note: {small}"] if small else []), *(f"note: {note}" for note in notes)])
