"""Parts of a method with state that lasts over steps, the same on all processes."""

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
    """Facts about the data and the training, for stateful parts.

    Args:
        classes: number of classes.
        unlabeled: number of unlabeled examples.
        prior: class fractions of the labeled examples, (K,).
        steps: number of training steps.
        generation: progress of the outer loop, 0 to 1.
        balance: current estimate of the class prior of the unlabeled examples; None if it is not estimated.
    """

    classes: int
    unlabeled: int
    prior: Tensor
    steps: int
    generation: float = 0.0
    balance: UnlabeledBalance | None = None

    @property
    def unlabeled_prior(self) -> Tensor:
        """Current class prior of the unlabeled examples, float64 on the CPU, (K,)."""
        return (self.prior if self.balance is None else self.balance.prior).cpu().double()


class StatefulPart(nn.Module, ABC):
    """A labeler, selector or refiner with state in buffers, so that it is saved and resumed.

    During a step the state does not change: `record` only stores rows. `commit` ends the step: it puts the recorded
    rows into the order of the whole batch, the same on every process, and lets the part learn from them. So the state
    depends neither on the number of processes nor on the parts into which a batch is cut.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recorded: list[tuple[Tensor, ...]] = []

    @abstractmethod
    def bind(self, setup: Setup) -> None:
        """Make the buffers with their initial values.

        Args:
            setup: facts about the data.
        """

    @abstractmethod
    def update(self, *rows: Tensor) -> None:
        """Learn from the recorded rows of the whole batch.

        Args:
            *rows: the arguments of `record`, each (B, ...) with one row per example of the whole batch.
        """

    def record(self, *rows: Tensor) -> None:
        """Store rows until the step ends.

        Args:
            *rows: each (b, ...) with one row per example of this process's batch, or of a part of it.
        """
        self._recorded.append(rows)

    @torch.no_grad()
    def commit(self) -> None:
        """End the step: let the part learn from the recorded rows of all processes."""
        records = self._recorded
        self._recorded = []
        if records:
            self.update(*(gather_rows(parts) for parts in zip(*records, strict=True)))


def gather_rows(parts: Sequence[Tensor]) -> Tensor:
    """Return rows in the order of the whole batch.

    A process holds every n-th row of the batch, and a part of it every n-th row of its process.
    """
    places = [torch.arange(len(part)) * len(parts) + number for number, part in enumerate(parts)]
    order = torch.cat(places).argsort()
    rows = torch.cat(list(parts))[order.to(parts[0].device)]
    if not dist.is_available() or not dist.is_initialized():
        return rows
    pieces = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(pieces, rows)
    return torch.stack(pieces, 1).flatten(0, 1)


def put(buffer: Tensor, index: Tensor, rows: Tensor) -> None:
    """Set buffer[index] = rows; of an example that occurs more than once the last row counts."""
    positions = torch.arange(len(index), device=index.device)
    last_positions = torch.full((len(buffer),), -1, device=index.device).scatter_reduce(0, index, positions, "amax")
    is_last = last_positions[index] == positions
    buffer[index[is_last]] = rows[is_last]
