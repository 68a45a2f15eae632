"""The outer loop of methods that train in generations: one `Trainer` after another, resumable in each.

A generation trains from scratch. Then its last averaged model labels the unlabeled examples, and those that the
method's `GenerationSchedule` chooses join the labeled set of the next generation. Most methods have one generation,
which this loop only passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Examples, Labeled, Task
from csst.maths.gain import Gain
from csst.maths.multipliers import Multipliers
from csst.selftraining import Method, Setup
from csst.settings import Settings
from csst.training.evaluation import compute_logits
from csst.training.records import Record
from csst.training.selection import Best
from csst.training.trainer import Trainer


class Generations:
    """Runs a trainer's generations as one training; to be used as the trainer itself is.

        for record in Generations(trainer, settings, lambda: mlp((5,), 3)).run(): ...

    The steps of the settings are those of all generations together, so a comparison with other methods is fair; each
    generation has its own learning rate schedule, multipliers and averaged model. Records count steps through. The
    model that is kept is the best on validation of all generations, as for every other method.

    Args:
        first: the trainer of the first generation, made with the settings of `plan_generation`.
        settings: those of all generations together.
        fresh: makes an untrained model.
    """

    def __init__(self, first: Trainer, settings: Settings, fresh: Callable[[], nn.Module]) -> None:
        self.task, self.engine, self.objective, self.method = first.task, first.engine, first.objective, first.method
        self.settings, self.fresh, self.seed = settings, fresh, first.seed
        self.rule = self.method.generation_schedule(settings.selftraining)
        self.trainer, self.best = first, Best()
        self.number, self.before = 0, 0
        self.index = self.labels = torch.zeros(0, dtype=torch.int64)

    def run(self) -> Iterator[Record]:
        """Train to the end. Resumes where a loaded state left off."""
        while True:
            for record in self.trainer.run():
                selected = record.selected and self._consider()
                # A later generation begins at the step at which the one before ended, which has its record already.
                if self.number == 0 or record.step > 0:
                    yield replace(record, step=self.before + record.step, selected=selected)
            if self.number == self.rule.generations - 1:
                return
            index, labels = self.rule.choose(self._unlabeled_probs(), self.task.train_prior)
            self._begin(self.number + 1, self.step, index, labels)

    def _consider(self) -> bool:
        """Keep the model that this generation has just selected, if it is at least as good as those before."""
        candidate = self.trainer.best
        if not self.settings.keeps_last and candidate.rank < self.best.rank:
            return False
        self.best = replace(candidate, step=self.before + candidate.step)
        return True

    def _unlabeled_probs(self) -> Tensor:
        """The generation's last averaged model on all unlabeled examples, the same on all processes."""
        unlabeled, batch = self.task.unlabeled, self.settings.training.evaluation_batch
        shard, rounds = self.trainer.batches.shard_and_rounds(len(unlabeled), batch)
        logits = compute_logits(self.trainer.ema.module.eval(), unlabeled, batch, self.engine.device, shard, rounds)
        probs = torch.zeros(len(unlabeled), self.task.classes)
        probs[shard] = torch.softmax(logits, 1)
        return self.engine.total(probs)

    def _begin(self, number: int, before: int, index: Tensor, labels: Tensor) -> None:
        self.number, self.before, self.index, self.labels = number, before, index, labels
        settings, setup = plan_generation(self.settings, self.method, self.task, number)
        task = expand_labeled(self.task, index, labels)
        self.trainer = Trainer(task, self.fresh(), self.objective, self.method, settings, self.seed, setup)

    @property
    def step(self) -> int:
        return self.before + self.trainer.step

    @property
    def updated_at(self) -> int:
        return self.before + self.trainer.updated_at

    @property
    def is_complete(self) -> bool:
        return self.number == self.rule.generations - 1 and self.trainer.is_complete

    @property
    def multipliers(self) -> Multipliers:
        return self.trainer.multipliers

    @property
    def measured_gain(self) -> Gain:
        """The gain in the softmax of the last generation's averaged model."""
        return self.trainer.measured_gain

    def best_model(self) -> nn.Module:
        """A new model with the weights selected among all generations, in evaluation mode."""
        return self.trainer.copy_model(self.best.state)

    def selected_weights(self) -> dict[str, Tensor]:
        """A copy of the weights selected among all generations, on the CPU."""
        return self.best.copy_weights()

    def last_weights(self) -> dict[str, Tensor]:
        """A copy of the last generation's averaged weights; where they are sharded, all processes must ask together."""
        return self.trainer.last_weights()

    def state_dict(self) -> dict[str, Any]:
        """The state of the present trainer, and where among the generations it stands."""
        outer = {name: getattr(self, name) for name in self._OUTER}
        return {**self.trainer.state_dict(), "generation": {**outer, "best": self.best.state_dict()}}

    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        outer = state["generation"]
        if outer["number"] > 0:
            self._begin(*(outer[name] for name in self._OUTER))
        self.best.load_state_dict(outer["best"])
        self.trainer.load_state_dict(state, keeps_order)

    _OUTER = ("number", "before", "index", "labels")


def plan_generation(settings: Settings, method: Method, task: Task, generation: int) -> tuple[Settings, Setup]:
    """One generation's part of the steps, and what the method's parts with memory are told."""
    rule, training = method.generation_schedule(settings.selftraining), settings.training
    steps = rule.steps(training.steps, generation)
    done = generation / max(1, rule.generations - 1)
    setup = Setup(task.classes, len(task.unlabeled), task.train_prior, steps, done)
    return replace(settings, training=replace(training, steps=steps)), setup


def expand_labeled(task: Task, index: Tensor, labels: Tensor) -> Task:
    """The task with these unlabeled examples as further labeled ones; they remain among the unlabeled, too."""
    inputs = join_examples(task.labeled.inputs, task.unlabeled, index)
    return replace(task, labeled=Labeled(inputs, torch.cat([task.labeled.labels, labels])))


def join_examples(first: Examples, other: Examples, index: Tensor) -> Examples:
    """Examples followed by some of other examples: a tensor where both are."""
    if isinstance(first, Tensor) and isinstance(other, Tensor):
        return torch.cat([first, other[index]])
    return Joined(first, other, index)


class Joined:
    """Examples followed by some of other examples, fetched from where they are when asked for."""

    def __init__(self, first: Examples, other: Examples, index: Tensor) -> None:
        self.first, self.other, self.index = first, other, index

    def __len__(self) -> int:
        return len(self.first) + len(self.index)

    def __getitem__(self, indices: Tensor) -> Any:
        order = torch.cat([(~self._is_other(indices)).nonzero(), self._is_other(indices).nonzero()]).flatten().argsort()
        chosen = [examples[wanted] for examples, wanted in self._wanted(indices)]
        if all(isinstance(piece, Tensor) for piece in chosen):
            return torch.cat(chosen)[order]
        rows = [row for piece in chosen for row in piece]
        return [rows[i] for i in order.tolist()]

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read these, where the examples can."""
        for examples, wanted in self._wanted(indices):
            if hasattr(examples, "prefetch"):
                examples.prefetch(wanted)

    def _is_other(self, indices: Tensor) -> Tensor:
        return indices >= len(self.first)

    def _wanted(self, indices: Tensor) -> list[tuple[Examples, Tensor]]:
        """Which examples to fetch from where; nowhere is asked for none."""
        other = self._is_other(indices)
        both = [(self.first, indices[~other]), (self.other, self.index[indices[other] - len(self.first)])]
        return [(examples, wanted) for examples, wanted in both if len(wanted)]
