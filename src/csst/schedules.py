"""How learning rate, dual step and training signal change over a run; `progress` goes from 0 to 1."""

from __future__ import annotations

import math


def learning_rate(schedule: str, lr: float, progress: float) -> float:
    """fixmatch: lr cos(7 pi progress / 16), ending near a fifth of where it began; constant: lr."""
    return lr * math.cos(7 * math.pi * progress / 16) if schedule == "fixmatch" else lr


def dual_step(schedule: str, step_size: float, progress: float) -> float:
    """constant, or a linear or cosine decay to 0."""
    if schedule == "linear":
        return step_size * (1 - progress)
    return step_size * (1 + math.cos(math.pi * progress)) / 2 if schedule == "cosine" else step_size


def training_signal(annealing: str, progress: float, classes: int) -> float:
    """UDA's threshold on the probability of the right class: labeled examples above it are left out.

    a (1 - 1/K) + 1/K with a = progress (linear), 1 - exp(-5 progress) (log) or exp(5 (progress - 1)) (exp).
    """
    share = {"linear": progress, "log": 1 - math.exp(-5 * progress), "exp": math.exp(5 * (progress - 1))}[annealing]
    return share * (1 - 1 / classes) + 1 / classes
