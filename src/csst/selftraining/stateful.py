"""Parts of a method that remember something between steps, the same on all processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from csst.selftraining.balance import UnlabeledBalance


@dataclass(frozen=True, eq=False)
class Setup:
    """What a part with memory is made for.

    classes, unlabeled: how many classes and unlabeled examples there are. prior: the class fractions of the labeled
    examples. steps: how many steps it will see. generation: how far an outer loop has come, from 0 to 1. balance: what
    is believed of the unlabeled examples' class fractions, where they are estimated.
    """

    classes: int
    unlabeled: int
    prior: Tensor
    steps: int
    generation: float = 0.0
    balance: UnlabeledBalance | None = None

    @property
    def unlabeled_prior(self) -> Tensor:
        """The class fractions of the unlabeled examples as they are believed now, float64 on the CPU, (K,)."""
        return (self.prior if self.balance is None else self.balance.prior).cpu().double()


class StatefulPart(nn.Module, ABC):
    """A labeler, selector or refiner with state, which lives in buffers and so is saved and resumed.

    While a step runs the state stands still and what the step shows is only noted. `commit` ends the step: it puts the
    noted rows into the order of the whole batch, the same on every process, and lets the part learn from them. So what
    is learned depends neither on the number of processes nor on the parts into which a batch is cut.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recorded: list[tuple[Tensor, ...]] = []

    @abstractmethod
    def bind(self, setup: Setup) -> None:
        """Make the buffers, as they are before the first step.

        Args:
            setup: what is known of the data.
        """

    @abstractmethod
    def update(self, *rows: Tensor) -> None:
        """Take in the rows that were noted, of the whole batch.

        Args:
            *rows: what `record` was called with, each (B, ...) with one row per example of the whole batch.
        """

    def record(self, *rows: Tensor) -> None:
        """Remember rows until the step ends.

        Args:
            *rows: each (b, ...) with one row per example of this process's batch, or of a part of it.
        """
        self._recorded.append(rows)

    @torch.no_grad()
    def commit(self) -> None:
        """End the step: let the part learn from the noted rows of all processes."""
        noted, self._recorded = self._recorded, []
        if noted:
            self.update(*(gather_rows(parts) for parts in zip(*noted, strict=True)))


def gather_rows(parts: Sequence[Tensor]) -> Tensor:
    """Rows in the order of the whole batch: part p of n holds every n-th row of its process, as that does of all."""
    order = torch.cat([torch.arange(len(part)) * len(parts) + at for at, part in enumerate(parts)]).argsort()
    rows = torch.cat(list(parts))[order.to(parts[0].device)]
    if not dist.is_available() or not dist.is_initialized():
        return rows
    pieces = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, rows)
    return torch.stack(pieces, 1).flatten(0, 1)


def put(buffer: Tensor, index: Tensor, rows: Tensor) -> None:
    """buffer[index] = rows; of an example that occurs more than once the last row stays."""
    at = torch.arange(len(index), device=index.device)
    last = torch.full((len(buffer),), -1, device=index.device).scatter_reduce(0, index, at, "amax")
    keep = last[index] == at
    buffer[index[keep]] = rows[keep]
