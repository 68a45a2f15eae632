"""How learning rate, dual step, training signal and averaged model follow a run; `progress` goes from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from csst.settings import Settings


def learning_rate(schedule: str, lr: float, progress: float) -> float:
    """fixmatch: lr cos(7 pi progress / 16), ending near a fifth of where it began; linear: down to 0; constant: lr."""
    if schedule == "linear":
        return lr * (1 - progress)
    return lr * math.cos(7 * math.pi * progress / 16) if schedule == "fixmatch" else lr


def warmup_factor(step: int, warmup: int) -> float:
    """The factor of the learning rate in the first `warmup` steps, 1/warmup, 2/warmup ... 1; 1 afterwards."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


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


def moving_average(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]:
    """average <- decay average + (1 - decay) new, in place, for tensors of one type.

    Whole numbers, such as the positions of tokens, are copied: rounded down, their average would be another number.
    """
    average = get_ema_multi_avg_fn(decay)

    def update(averaged: Sequence[Tensor], new: Sequence[Tensor], count: Any) -> None:
        if averaged[0].is_floating_point() or averaged[0].is_complex():
            average(averaged, new, count)
            return
        for old, other in zip(averaged, new, strict=True):
            old.copy_(other)

    return update


def describe_long_memory(settings: Settings) -> str:
    """What to say of an averaged model that remembers too much of the run."""
    memory = "all" if settings.ema == 1 else f"about {1 / (1 - settings.ema):,.0f}"
    derived = replace(settings, training=replace(settings.training, ema=None)).ema
    return (
        f"training.ema = {settings.ema:g} remembers {memory} of the run's {settings.training.steps:,} steps, so that a "
        f"model of the past is measured and kept: lower it to {derived:.4g}, or leave it out"
    )
