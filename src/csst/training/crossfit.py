"""Multipliers without a validation set: driven by out-of-fold predictions of the labeled examples.

The labeled examples are cut into folds. One trainer per fold learns from the others, and one more from all of them;
they take their steps together. At every multiplier update each fold's trainer predicts its own fold, the counts are
added up, and all trainers take the same dual step: every labeled example has steered, none was predicted by a model
that had learned from it. The trainer of all examples is the one that is kept.

Rates are judged under the class balance of the task's validation examples, of which nothing else is looked at: where
there are none, the labeled ones take their place; where there are, `learn_validation` makes them labeled ones, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.task import Labeled, Task
from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.gain import Gain
from csst.maths.multipliers import Multipliers
from csst.maths.objectives import Objective
from csst.selftraining import Method
from csst.settings import MOST_FOLDS, Settings
from csst.training.engine import Engine
from csst.training.evaluation import compute_logits
from csst.training.generations import join_examples
from csst.training.interruption import step_boundary
from csst.training.measurement import join
from csst.training.records import Record
from csst.training.selection import Best
from csst.training.trainer import Trainer


def split_folds(labels: Tensor, folds: int, seed: int, class_names: tuple[str, ...]) -> list[np.ndarray]:
    """Disjoint folds with the same fraction of every class; a class needs an example in each."""
    counts = torch.bincount(labels, minlength=len(class_names))
    rarest = int(counts.argmin())
    if int(counts[rarest]) < 2:
        raise InputError(
            f"cross-fitting predicts each labeled example by a model that did not see it, so every class needs 2; "
            f"class {class_names[rarest]!r} has {int(counts[rarest])}: label more, or give a validation set"
        )
    folds = min(folds, int(counts[rarest]))
    rng, parts = np.random.default_rng(seed), [[] for _ in range(folds)]  # type: tuple[np.random.Generator, list[list]]
    for c in range(len(class_names)):
        members = rng.permutation(np.flatnonzero(labels.numpy() == c))
        for at, part in enumerate(np.array_split(members, folds)):
            parts[at].append(part)
    return [np.sort(np.concatenate(part)) for part in parts]


class CrossFit:
    """Trainers in lockstep, steered by each other's out-of-fold predictions; see the module.

    task: of its validation part only the class balance is looked at. model: makes an untrained model.
    """

    def __init__(
        self,
        task: Task,
        model: Callable[[], nn.Module],
        objective: Objective | str,
        method: Method | str,
        settings: Settings,
        seed: int = 0,
        folds: int = 3,
    ) -> None:
        if not 2 <= folds <= MOST_FOLDS:
            raise InputError(f"cross-fitting takes 2 to {MOST_FOLDS} folds; found {folds}")
        self.index = split_folds(task.labeled.labels, folds, seed, task.class_names)
        self.task = task
        self.trainer = Trainer(task, model(), objective, method, settings, seed)
        # The objective as bound to all labeled examples: which classes are the tail must not differ between folds.
        bound, parts = self.trainer.objective, [_fold(task, index) for index in self.index]
        self.folds = [Trainer(part, model(), bound, method, settings, seed) for part in parts]

    @property
    def trainers(self) -> list[Trainer]:
        """The trainers of the folds, followed by the trainer of all examples."""
        return [*self.folds, self.trainer]

    def run(self) -> Iterator[Record]:
        """Train all to the end; the records are those of the trainer that is kept."""
        every, kept = self.trainer.settings.steps_per_update, self.trainer
        while True:
            # The trainer that is kept moves last, so that wherever this is stopped it knows how far all must go.
            if kept.updated_at != kept.step and (kept.step % every == 0 or kept.is_complete):
                parts = [fold.measure_validation() for fold in self.folds]
                measurement = join(parts, kept.watched_logits(), kept.balance_logits())
                teaching = kept.measure_teacher(measurement)
                confusion = Confusion(kept.estimate_confusion(measurement).rates, self.task.validation_prior)
                solution = kept.solve_multipliers(measurement)
                for trainer in self.trainers:
                    trainer.teacher.learn(teaching, trainer.task.train_prior)
                yield [trainer.update_multipliers(confusion, solution) for trainer in self.trainers][-1]
            if kept.is_complete:
                return
            until = min(kept.step - kept.step % every + every, self.settings.training.steps)
            for trainer in self.trainers:
                while trainer.step < until:
                    trainer.train_step()
                    if self.engine.processes == 1:
                        step_boundary()

    @property
    def settings(self) -> Settings:
        return self.trainer.settings

    @property
    def engine(self) -> Engine:
        return self.trainer.engine

    @property
    def objective(self) -> Objective:
        return self.trainer.objective

    @property
    def method(self) -> Method:
        return self.trainer.method

    @property
    def multipliers(self) -> Multipliers:
        return self.trainer.multipliers

    @property
    def measured_gain(self) -> Gain:
        """The gain in the softmax of the averaged model of all examples."""
        return self.trainer.measured_gain

    @property
    def best(self) -> Best:
        return self.trainer.best

    @property
    def step(self) -> int:
        return self.trainer.step

    @property
    def updated_at(self) -> int:
        return self.trainer.updated_at

    @property
    def is_complete(self) -> bool:
        return self.trainer.is_complete

    @property
    def labels(self) -> Tensor:
        """Pseudo-labels that joined the labeled set: none."""
        return torch.zeros(0, dtype=torch.int64)

    def best_model(self) -> nn.Module:
        """A copy of the averaged model of all examples that was selected, in evaluation mode."""
        return self.trainer.best_model()

    def selected_weights(self) -> dict[str, Tensor]:
        """Those of `best_model`."""
        return self.trainer.selected_weights()

    def last_weights(self) -> dict[str, Tensor]:
        """The averaged model of all examples as it is now."""
        return self.trainer.last_weights()

    def state_dict(self) -> dict[str, Any]:
        """The states of all trainers."""
        return {"trainers": [trainer.state_dict() for trainer in self.trainers]}

    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        for trainer, saved in zip(self.trainers, state["trainers"], strict=True):
            trainer.load_state_dict(saved, keeps_order)

    def out_of_fold(self, model: Callable[[Trainer], nn.Module] = Trainer.best_model) -> tuple[Tensor, Tensor]:
        """Logits and labels of the labeled examples, each by the model of the trainer that did not see it."""
        batch = self.trainer.settings.training.evaluation_batch
        scored = [
            compute_logits(model(fold), fold.task.validation.inputs, batch, fold.engine.device) for fold in self.folds
        ]
        return torch.cat(scored), torch.cat([fold.task.validation.labels for fold in self.folds])


def learn_validation(task: Task) -> Task:
    """The task whose validation examples are labeled ones, too: to be cross-fitted, so that none judges itself."""
    held, every = task.validation, torch.arange(len(task.validation))
    inputs = join_examples(task.labeled.inputs, held.inputs, every)
    return replace(task, labeled=Labeled(inputs, torch.cat([task.labeled.labels, held.labels])))


def _fold(task: Task, index: np.ndarray) -> Task:
    keep = np.setdiff1d(np.arange(len(task.labeled)), index)

    def part(chosen: np.ndarray) -> Labeled:
        at = torch.from_numpy(chosen)
        return Labeled(task.labeled.inputs[at], task.labeled.labels[at])

    return replace(task, labeled=part(keep), validation=part(index))
