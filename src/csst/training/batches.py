"""Batches of labeled and unlabeled examples with their views, for this process's part of each step.

Every process draws the same global batch and takes every n-th example of it, so shards are disjoint and a run's order
of examples does not depend on the number of processes. The randomness of views is a function of seed, step and rank,
so it needs no state in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.data.examples import Examples
from csst.data.prepared_views import IndexedView
from csst.data.sampling import Sampler, stream
from csst.data.task import Task
from csst.errors import InputError
from csst.settings import Training

#: uses of random numbers, each with a stream of its own
LABELED = 0
UNLABELED = 1
VIEWS_OF_LABELED = 2
VIEWS_OF_UNLABELED = 3
DROPOUT = 4


@dataclass(frozen=True)
class Batch:
    """The examples of one step of one process; the unlabeled ones are None for a method that does not use them.

    Args:
        x: weak views of labeled examples, (B, ...).
        y: classes, (B,).
        weak: weak views of unlabeled examples, (U, ...).
        strong: strong views of unlabeled examples, (U, ...).
        index: positions of the unlabeled examples in the task, (U,).
        groups: groups of the labeled rows, (B,), -1 if unknown; None without groups.
        unlabeled_groups: groups of the unlabeled rows, (U,), -1 if unknown; None without groups.
    """

    x: Tensor
    y: Tensor
    weak: Tensor | None = None
    strong: Tensor | None = None
    index: Tensor | None = None
    groups: Tensor | None = None
    unlabeled_groups: Tensor | None = None

    def part(self, number: int, parts: int) -> Batch:
        """Return one of several equal parts, for gradient accumulation."""

        def cut(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[number::parts]

        rows = (self.weak, self.strong, self.index, self.groups, self.unlabeled_groups)
        return Batch(self.x[number::parts], self.y[number::parts], *map(cut, rows))


class Batches:
    """Draws this process's part of every global batch.

    Args:
        task: the examples and their views.
        training: settings with the batch sizes.
        seed: seed of the order of examples and of the views.
        unlabeled: whether unlabeled examples are drawn.
        rank: number of this process.
        processes: number of processes.
        encode: the model's function from raw examples, such as texts, to a tensor; None if they are tensors already.
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
        self.task = task
        self.seed = seed
        self.rank = rank
        self.processes = processes
        self.encode = encode
        for name, size in (("labeled_batch", training.labeled_batch), ("unlabeled_batch", training.unlabeled_batch)):
            if size % processes:
                raise InputError(f"training.{name} = {size} must be divisible by the {processes} processes")
        self.labeled = Sampler(len(task.labeled), training.labeled_batch, stream(seed, LABELED))
        self.unlabeled: Sampler | None = None
        if unlabeled:
            rows = None
            if left_out is not None and len(left_out):
                mask = torch.ones(len(task.unlabeled), dtype=torch.bool)
                mask[left_out] = False
                rows = mask.nonzero().flatten()
            size = len(task.unlabeled) if rows is None else len(rows)
            self.unlabeled = Sampler(size, training.unlabeled_batch, stream(seed, UNLABELED), rows)

    def draw(self, step: int, device: torch.device) -> Batch:
        """Return this process's batch of a step, on the device."""
        task = self.task
        labeled_index = self._fetch_index(self.labeled, task.labeled.inputs)
        x = task.weak(task.labeled.inputs[labeled_index], self.randomness(step, VIEWS_OF_LABELED))
        y = task.labeled.labels[labeled_index].to(device)
        groups = None if task.labeled.groups is None else task.labeled.groups[labeled_index]
        if self.unlabeled is None:
            return Batch(self._as_tensors(device, x)[0], y, groups=groups)
        index = self._fetch_index(self.unlabeled, task.unlabeled)
        generator = self.randomness(step, VIEWS_OF_UNLABELED)
        examples = task.unlabeled[index]
        weak = task.weak(examples, generator)
        view = task.strong
        strong = view.of_index(index, generator) if isinstance(view, IndexedView) else view(examples, generator)
        x, weak, strong = self._as_tensors(device, x, weak, strong)
        unlabeled_groups = None if task.unlabeled_groups is None else task.unlabeled_groups[index]
        return Batch(x, y, weak, strong, index, groups, unlabeled_groups)

    def _as_tensors(self, device: torch.device, *views: Any) -> list[Tensor]:
        """Return views as tensors on the device; texts are encoded together, so that all get the same length."""
        if self.encode is None:
            return [view.to(device) for view in views]
        codes = self.encode([example for view in views for example in view]).to(device)
        return list(codes.split([len(view) for view in views]))

    def randomness(self, step: int, use: int) -> torch.Generator:
        """Return the generator of one use in one step of one process."""
        return stream(self.seed, ((step + 1) * self.processes + self.rank) * 16 + use)

    def shard(self, index: Tensor) -> Tensor:
        """Return this process's part of an index."""
        return index[self.rank :: self.processes]

    def shard_and_rounds(self, size: int, batch: int) -> tuple[Tensor, int]:
        """Return this process's part of `size` examples, and the number of batches that the largest part needs."""
        largest_part = math.ceil(size / self.processes)
        return self.shard(torch.arange(size)), math.ceil(largest_part / batch)

    def _fetch_index(self, sampler: Sampler, inputs: Examples) -> Tensor:
        """Draw this process's part of the next batch; begin to read the batch after it if the examples can."""
        index = self.shard(sampler.draw())
        prefetch = getattr(inputs, "prefetch", None)
        if prefetch is not None:
            prefetch(index)  # no work if the step before has already requested it
            prefetch(self.shard(sampler.peek()))
        return index

    def state_dict(self) -> dict[str, Any]:
        return {
            "labeled": self.labeled.state_dict(),
            "unlabeled": self.unlabeled.state_dict() if self.unlabeled is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.labeled.load_state_dict(state["labeled"])
        if self.unlabeled is not None:
            self.unlabeled.load_state_dict(state["unlabeled"])
