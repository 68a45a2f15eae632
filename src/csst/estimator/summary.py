"""What a fitted estimator says about itself, in plain words."""

from __future__ import annotations

import torch
from torch import Tensor

from csst.confusion import Confusion
from csst.intervals import least, recall_intervals, too_small
from csst.objectives import Objective
from csst.resampling import least_of, redrawn, slack_intervals
from csst.selection import standing

TOLERANCE = 1e-3
DRAWS = 100


def score_of(objective: Objective, counts: Tensor) -> float:
    """The value on these counts, less ten times what constraints are missed by."""
    return standing(objective, Confusion.from_counts(counts), TOLERANCE).score


def noise_of(objective: Objective, counts: Tensor) -> float:
    """The standard error of the score: its spread over counts drawn again."""
    return float(torch.tensor([score_of(objective, one) for one in redrawn(counts, DRAWS)]).std())


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
    constraints = slack_intervals(objective, counts)
    if constraints:
        least_slack, low, high = least_of(constraints)
        said = "constraints met, with a slack of" if least_slack >= 0 else "constraints missed by"
        ends = (low, high) if least_slack >= 0 else (-high, -low)
        lines.append(f"{said} {abs(least_slack):.3f} (95 % CI about {ends[0]:.2f} to {ends[1]:.2f})")
    width = max(len(name) for name in [*class_names, "class"])
    lines.append(f"{'class':<{width}}  labeled  recall  95 % CI     coverage")
    for name, count, one, share in zip(class_names, labeled, found, confusion.coverage.tolist(), strict=True):
        lines.append(f"{name:<{width}}  {count:>7}  {one.estimate:>6.2f}  {one.low:.2f}–{one.high:.2f}  {share:>8.3f}")
    small = too_small(counts)
    return "\n".join([*lines, *([f"note: {small}"] if small else []), *(f"note: {note}" for note in notes)])
