"""Batches of labeled and unlabeled examples with their views, for this process's part of each step.

Every process draws the same global batch and takes every n-th example of it, so shards are disjoint and a run's order
of examples does not depend on the number of processes. The randomness of views is a function of seed, step and rank:
there is no state to lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.data.prepared_views import IndexedView
from csst.data.sampling import Sampler, stream
from csst.data.task import Examples, Task
from csst.errors import InputError
from csst.settings import Training

LABELED, UNLABELED, VIEWS_OF_LABELED, VIEWS_OF_UNLABELED, DROPOUT = range(5)


@dataclass(frozen=True)
class Batch:
    """What one step of one process learns from; the unlabeled half is None where a method does not use it."""

    x: Tensor
    y: Tensor
    weak: Tensor | None = None
    strong: Tensor | None = None
    index: Tensor | None = None

    def part(self, number: int, of: int) -> Batch:
        """One of several equal parts, for gradient accumulation."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[number::of]

        return Batch(self.x[number::of], self.y[number::of], cut(self.weak), cut(self.strong), cut(self.index))


class Batches:
    """Draws this process's part of every global batch.

    encode: the model's own way from raw examples, such as texts, to a tensor; None where they are tensors already.
    left_out: unlabeled examples that are never drawn.
    """

    def __init__(
        self,
        task: Task,
        training: Training,
        seed: int,
        unlabeled: bool,
        rank: int = 0,
        processes: int = 1,
        encode: Callable[[list[Any]], Tensor] | None = None,
        left_out: Tensor | None = None,
    ) -> None:
        self.task, self.seed, self.rank, self.processes, self.encode = task, seed, rank, processes, encode
        for name, size in (("labeled_batch", training.labeled_batch), ("unlabeled_batch", training.unlabeled_batch)):
            if size % processes:
                raise InputError(f"training.{name} = {size} must be divisible by the {processes} processes")
        self.labeled = Sampler(len(task.labeled), training.labeled_batch, stream(seed, LABELED))
        self.unlabeled: Sampler | None = None
        if unlabeled:
            only = None
            if left_out is not None and len(left_out):
                keep = torch.ones(len(task.unlabeled), dtype=torch.bool)
                keep[left_out] = False
                only = keep.nonzero().flatten()
            size = len(task.unlabeled) if only is None else len(only)
            self.unlabeled = Sampler(size, training.unlabeled_batch, stream(seed, UNLABELED), only)

    def draw(self, step: int, device: torch.device) -> Batch:
        task, index = self.task, self._fetch_index(self.labeled, self.task.labeled.inputs)
        x = task.weak(task.labeled.inputs[index], self.randomness(step, VIEWS_OF_LABELED))
        y = task.labeled.labels[index].to(device)
        if self.unlabeled is None:
            return Batch(self._tensors(device, x)[0], y)
        chosen, views = self._fetch_index(self.unlabeled, task.unlabeled), self.randomness(step, VIEWS_OF_UNLABELED)
        u = task.unlabeled[chosen]
        weak = task.weak(u, views)
        view = task.strong
        strong = view.of_index(chosen, views) if isinstance(view, IndexedView) else view(u, views)
        x, weak, strong = self._tensors(device, x, weak, strong)
        return Batch(x, y, weak, strong, chosen)

    def _tensors(self, device: torch.device, *views: Any) -> list[Tensor]:
        """Views as tensors on the device; texts are encoded together, so that all get the same length."""
        if self.encode is None:
            return [view.to(device) for view in views]
        encoded = self.encode([example for view in views for example in view]).to(device)
        return list(encoded.split([len(view) for view in views]))

    def randomness(self, step: int, use: int) -> torch.Generator:
        """The generator of one use in one step of one process."""
        return stream(self.seed, ((step + 1) * self.processes + self.rank) * 16 + use)

    def shard(self, index: Tensor) -> Tensor:
        return index[self.rank :: self.processes]

    def shard_and_rounds(self, size: int, batch: int) -> tuple[Tensor, int]:
        """This process's part of so many examples, and how many batches the largest share needs."""
        largest = math.ceil(size / self.processes)
        return self.shard(torch.arange(size)), math.ceil(largest / batch)

    def _fetch_index(self, sampler: Sampler, inputs: Examples) -> Tensor:
        drawn = self.shard(sampler.draw())
        prefetch = getattr(inputs, "prefetch", None)
        if prefetch is not None:
            prefetch(drawn)  # nothing to do if the step before asked for it already
            prefetch(self.shard(sampler.peek()))
        return drawn

    def state_dict(self) -> dict[str, Any]:
        return {
            "labeled": self.labeled.state_dict(),
            "unlabeled": self.unlabeled.state_dict() if self.unlabeled is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.labeled.load_state_dict(state["labeled"])
        if self.unlabeled is not None:
            self.unlabeled.load_state_dict(state["unlabeled"])
