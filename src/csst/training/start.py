"""The model that training begins with, such as a linear one, and to which it may return."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from csst.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Start:
    """Weights and their gain before the first step, and the states of the multipliers.

    Args:
        weights: weights, by name.
        gain: gain that the weights belong to, (K,) or (K, K).
        multipliers: state of the multipliers.
        updates: state of what moves the multipliers.
    """

    weights: dict[str, Tensor]
    gain: Tensor
    multipliers: dict[str, Any]
    updates: dict[str, Any]


def begin_at(trainer: Trainer, weights: dict[str, Tensor]) -> None:
    """Let an untrained network begin with these weights, to which `return_to_start` returns.

    If the model is sharded, all processes must call this together.

    Args:
        trainer: before its first step.
        weights: weights of the network, by name.
    """
    load_weights(trainer, weights)
    gain = trainer.measured_gain.entries.detach().cpu().clone()
    multipliers = copy.deepcopy(trainer.multipliers.state_dict())
    updates = copy.deepcopy(trainer.updates.state_dict())
    trainer.start = Start(weights, gain, multipliers, updates)


def return_to_start(trainer: Trainer) -> None:
    """Select the weights that training began with, under their gain, as if it had not taken place.

    If the model is sharded, all processes must call this together.
    """
    start = trainer.start
    assert start is not None
    load_weights(trainer, start.weights)
    trainer.multipliers.load_state_dict(start.multipliers)
    trainer.updates.load_state_dict(start.updates)
    trainer.best.step = 0
    trainer.best.state = start.weights
    trainer.best.gain = start.gain


def load_weights(trainer: Trainer, weights: dict[str, Tensor]) -> None:
    """Load weights into a trainer's network and into its average."""
    trainer.engine.load_weights(trainer.model, weights)
    trainer.engine.load_weights(trainer.ema.module, weights)
