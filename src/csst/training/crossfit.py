"""Multipliers without a validation set: driven by out-of-fold predictions of the labeled examples.

The labeled examples are cut into folds. One trainer per fold learns from the other folds, and one more trainer learns
from all examples; they take their steps together. At every multiplier update each fold's trainer predicts its own fold,
the counts are added up, and all trainers take the same dual step: every labeled example drives the multipliers, and
none is predicted by a model that learned from it. The model of the trainer of all examples is kept.

Rates are judged under the class prior of the task's validation examples, which are not used otherwise: if there are
none, the labeled ones take their place; if there are, `Task.join_validation` makes them labeled ones, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective
from csst.selftraining import Method
from csst.settings import MOST_FOLDS, Settings
from csst.training.interruption import step_boundary
from csst.training.measurement import join
from csst.training.records import Record
from csst.training.start import return_to_start
from csst.training.trainer import Trainer
from csst.training.training_run import TrainingRun, WhichWeights, choose_weights, judge


def split_folds(labels: Tensor, folds: int, seed: int, class_names: tuple[str, ...]) -> list[np.ndarray]:
    """Return disjoint folds with the same fraction of every class; each class needs an example in every fold."""
    counts = torch.bincount(labels, minlength=len(class_names))
    rarest_class = int(counts.argmin())
    smallest_count = int(counts[rarest_class])
    if smallest_count < 2:
        raise InputError(
            f"cross-fitting predicts each labeled example by a model that did not see it, so every class needs 2; "
            f"class {class_names[rarest_class]!r} has {smallest_count}: label more, or give a validation set"
        )
    folds = min(folds, smallest_count)
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(folds)]
    for c in range(len(class_names)):
        members = rng.permutation(np.flatnonzero(labels.numpy() == c))
        for part, rows in zip(parts, np.array_split(members, folds), strict=True):
            part.append(rows)
    return [np.sort(np.concatenate(part)) for part in parts]


class CrossFit(TrainingRun):
    """Trainers in lockstep, driven by each other's out-of-fold predictions; see the module.

    Args:
        task: the examples; of the validation part only the class prior is used.
        model: makes an untrained model.
        objective: a sentence, a short name or an `Objective`.
        method: a name of `csst.selftraining.METHODS`, package.module:name, or a `Method`.
        settings: settings of every trainer.
        seed: seed of the folds, the order of examples and the views.
        folds: number of folds; a class with fewer labeled examples lowers it.
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
        self.objective = self.trainer.objective
        fold_tasks = [_leave_out(task, index) for index in self.index]
        stated_objective = self.trainer.stated_objective
        self.folds = [Trainer(part, model(), stated_objective, method, settings, seed) for part in fold_tasks]
        self.settings = self.trainer.settings
        self.engine = self.trainer.engine
        self.method = self.trainer.method
        self.best = self.trainer.best

    @property
    def trainers(self) -> list[Trainer]:
        """The trainers of the folds, followed by the trainer of all examples."""
        return [*self.folds, self.trainer]

    def run(self) -> Iterator[Record]:
        """Train all to the end; the records are of the trainer of all examples."""
        interval = self.settings.steps_per_update
        trainer = self.trainer
        while True:
            # The trainer of all examples moves last, so that a stopped run knows how far the others must go.
            if trainer.updated_at != trainer.step and (trainer.step % interval == 0 or trainer.is_complete):
                yield self._update_multipliers()
            if trainer.is_complete:
                return
            end = min(trainer.step - trainer.step % interval + interval, self.settings.training.steps)
            for member in self.trainers:
                while member.step < end:
                    member.train_step()
                    if self.engine.processes == 1:
                        step_boundary()

    def _update_multipliers(self) -> Record:
        """Let all trainers take the same dual step, driven by the out-of-fold predictions."""
        trainer = self.trainer
        measurement = join(
            [fold.measurer.measure_validation() for fold in self.folds],
            trainer.measurer.score_unlabeled(trainer.watched),
            trainer.measurer.score_unlabeled(trainer.balance_rows),
        )
        teacher_quality = trainer.measure_teacher(measurement)
        confusion = Confusion(trainer.estimate_confusion(measurement).rates, self.task.validation_prior)
        solution = trainer.solve_multipliers(measurement)
        for member in self.trainers:
            member.teacher.learn(teacher_quality, member.task.train_prior)
        records = [member.update_multipliers(confusion, solution) for member in self.trainers]
        return records[-1]

    @property
    def judges(self) -> list[Trainer]:
        return self.folds

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all trainers."""
        return {"trainers": [trainer.state_dict() for trainer in self.trainers]}

    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        for trainer, trainer_state in zip(self.trainers, state["trainers"], strict=True):
            trainer.load_state_dict(trainer_state, keeps_order)

    def judge(self, weights: WhichWeights = "selected") -> tuple[Tensor, Tensor]:
        logits, labels = zip(*(judge(fold, choose_weights(fold, weights)) for fold in self.folds), strict=True)
        return torch.cat(logits), torch.cat(labels)

    def return_to_start(self) -> None:
        for trainer in self.trainers:
            return_to_start(trainer)


def _leave_out(task: Task, fold: np.ndarray) -> Task:
    """Return the task that learns from all labeled examples but a fold, which validates."""
    other_rows = np.setdiff1d(np.arange(len(task.labeled)), fold)
    return replace(task, labeled=task.labeled.part(other_rows), validation=task.labeled.part(fold))
