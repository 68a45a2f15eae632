"""Labelers: the model's probabilities on weak views → the target for strong views.

A labeler is any callable (probs (B, K), index (B,)) -> target, class indices (B,) or distributions (B, K). One that
remembers something between steps is a `StatefulPart` as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from csst.errors import InputError


class Labeler(Protocol):
    """(probs (B, K), index (B,)) -> target, class indices (B,) or distributions (B, K)."""

    def __call__(self, probs: Tensor, index: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Hard:
    """The most probable class, as FixMatch does (paper, appendix "Objective", Eq. 21 [loss:supp-hybloss])."""

    def __call__(self, probs: Tensor, index: Tensor) -> Tensor:
        return probs.argmax(1)


@dataclass(frozen=True)
class Sharpened:
    """p^(1/T) / sum p^(1/T), as UDA does (paper, appendix "Objective", Eq. 23).

    Args:
        temperature: T; 1 leaves the probabilities as they are, T → 0 is `Hard`.
    """

    temperature: float = 0.4

    def __post_init__(self) -> None:
        if not 0 < self.temperature <= 1:
            raise InputError(f"the sharpening temperature must lie in (0, 1]; found {self.temperature}")

    def __call__(self, probs: Tensor, index: Tensor) -> Tensor:
        return torch.softmax(probs.log() / self.temperature, 1)
