"""Endless batches of indices, with a state that can be saved and restored exactly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Sampler:
    """Draws all examples in random order, then again in a new order; a batch may span two rounds.

    Args:
        size: number of examples.
        batch: examples per batch.
        generator: source of the random orders.
        indices: indices of the examples, `size` of them; None for 0 .. size-1.
    """

    def __init__(self, size: int, batch: int, generator: torch.Generator, indices: Tensor | None = None) -> None:
        self.size = size
        self.batch = batch
        self.generator = generator
        self.indices = indices
        self.order = torch.zeros(0, dtype=torch.int64)

    def draw(self) -> Tensor:
        """Return the next batch of indices, (batch,)."""
        indices = self.peek()
        self.order = self.order[self.batch :]
        return indices

    def peek(self) -> Tensor:
        """Return the batch that the next draw will return."""
        while len(self.order) < self.batch:
            order = torch.randperm(self.size, generator=self.generator)
            self.order = torch.cat([self.order, order if self.indices is None else self.indices[order]])
        return self.order[: self.batch]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.clone(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]
        self.generator.set_state(state["generator"])


def stream(seed: int, number: int) -> torch.Generator:
    """Return one of many independent streams of a seed, so that e.g. labeled and unlabeled draws are independent."""
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
