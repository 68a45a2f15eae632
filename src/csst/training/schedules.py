"""The optimizer; learning rate, dual step, training signal and averaged model as functions of progress, 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from csst.settings import Settings, Training


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """Return SGD with Nesterov momentum, or AdamW; the trainer sets the learning rate at every step."""
    parameters = model.parameters()
    if training.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=training.lr, weight_decay=training.weight_decay)
    return torch.optim.SGD(
        parameters, training.lr, training.momentum, weight_decay=training.weight_decay, nesterov=training.momentum > 0
    )


def learning_rate(schedule: str, lr: float, progress: float) -> float:
    """Return lr cos(7 pi progress / 16), which ends near a fifth of lr (fixmatch), a decay to 0 (linear), or lr."""
    if schedule == "linear":
        return lr * (1 - progress)
    return lr * math.cos(7 * math.pi * progress / 16) if schedule == "fixmatch" else lr


def warmup_factor(step: int, warmup: int) -> float:
    """Return the factor of the learning rate: in the first `warmup` steps 1/warmup, 2/warmup ... 1, then 1."""
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def dual_step(schedule: str, step_size: float, progress: float) -> float:
    """Return the dual step: constant, or with a linear or cosine decay to 0."""
    if schedule == "linear":
        return step_size * (1 - progress)
    return step_size * (1 + math.cos(math.pi * progress)) / 2 if schedule == "cosine" else step_size


def training_signal(annealing: str, progress: float, classes: int) -> float:
    """Return UDA's threshold on the probability of the true class; labeled examples above it are left out.

    a (1 - 1/K) + 1/K with a = progress (linear), 1 - exp(-5 progress) (log) or exp(5 (progress - 1)) (exp).
    """
    share = {"linear": progress, "log": 1 - math.exp(-5 * progress), "exp": math.exp(5 * (progress - 1))}[annealing]
    return share * (1 - 1 / classes) + 1 / classes


def moving_average(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]:
    """Return a function that computes average <- decay average + (1 - decay) values in place, for tensors of one type.

    Integers, such as the positions of tokens, are copied: their average would be rounded down to another number.
    """
    average_floats = get_ema_multi_avg_fn(decay)

    def update(averages: Sequence[Tensor], values: Sequence[Tensor], count: Any) -> None:
        if averages[0].is_floating_point() or averages[0].is_complex():
            average_floats(averages, values, count)
            return
        for average, value in zip(averages, values, strict=True):
            average.copy_(value)

    return update


def describe_long_memory(settings: Settings) -> str:
    """Return the warning about an averaged model that remembers too much of the run."""
    memory = "all" if settings.ema == 1 else f"about {1 / (1 - settings.ema):,.0f}"
    default_decay = replace(settings, training=replace(settings.training, ema=None)).ema
    return (
        f"training.ema = {settings.ema:g} remembers {memory} of the run's {settings.training.steps:,} steps, so that a "
        f"model of the past is measured and kept: lower it to {default_decay:.4g}, or leave it out"
    )
