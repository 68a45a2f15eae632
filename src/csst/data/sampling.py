"""Endless batches of indices, with a state that can be saved to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Sampler:
    """Every example once in random order, then again in a new order; a batch may span two rounds.

    only: the examples that are drawn, `size` of them; None for 0 .. size-1.
    """

    def __init__(self, size: int, batch: int, generator: torch.Generator, only: Tensor | None = None) -> None:
        self.size, self.batch, self.generator, self.only = size, batch, generator, only
        self.order = torch.zeros(0, dtype=torch.int64)

    def draw(self) -> Tensor:
        drawn = self.peek()
        self.order = self.order[self.batch :]
        return drawn

    def peek(self) -> Tensor:
        """The batch that the next draw will give."""
        while len(self.order) < self.batch:
            order = torch.randperm(self.size, generator=self.generator)
            self.order = torch.cat([self.order, order if self.only is None else self.only[order]])
        return self.order[: self.batch]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]
        self.generator.set_state(state["generator"])


def stream(seed: int, number: int) -> torch.Generator:
    """Independent streams of one seed: labeled and unlabeled draws must not depend on each other."""
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
