"""The optimizers that a run can name."""

from __future__ import annotations

import torch
from torch import nn

from csst.settings import Training


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum, or AdamW; the trainer sets the learning rate at every step."""
    parameters = model.parameters()
    if training.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=training.lr, weight_decay=training.weight_decay)
    nesterov = training.momentum > 0
    return torch.optim.SGD(
        parameters, training.lr, training.momentum, weight_decay=training.weight_decay, nesterov=nesterov
    )
