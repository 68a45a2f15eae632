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

from csst.data.examples import choose
from csst.data.task import Labeled, Task
from csst.selftraining import Method, Setup
from csst.settings import Settings
from csst.training.records import Record
from csst.training.selection import Best
from csst.training.start import begin_at, return_to_start
from csst.training.trainer import Trainer
from csst.training.training_run import TrainingRun, WhichWeights, choose_weights, judge


class Generations(TrainingRun):
    """Runs a trainer's generations as one training, with the interface of a trainer.

        for record in Generations(trainer, settings, lambda: mlp((5,), 3)).run(): ...

    The settings count the steps of all generations together, so that a comparison with other methods is fair; each
    generation has its own learning rate schedule, multipliers and averaged model. Records count steps over all
    generations. The selected model is the best on validation of all generations, as for every other method.

    Args:
        trainer: the trainer of the first generation, made with the settings of `plan_generation`.
        settings: settings of all generations together.
        fresh: makes an untrained model.
    """

    def __init__(self, trainer: Trainer, settings: Settings, fresh: Callable[[], nn.Module]) -> None:
        self.task = trainer.task
        self.engine = trainer.engine
        self.objective = trainer.objective
        self.method = trainer.method
        self.seed = trainer.seed
        self.settings = settings
        self.fresh = fresh
        self.schedule = self.method.generation_schedule(settings.selftraining)
        self.trainer = trainer
        self.best = Best()
        self.number = 0
        self.index = self.labels

    def run(self) -> Iterator[Record]:
        while True:
            for record in self.trainer.run():
                is_selected = record.selected and self._consider()
                # A later generation begins at the last step of the generation before, which has a record already.
                if self.number == 0 or record.step > 0:
                    yield replace(record, step=self.before + record.step, selected=is_selected)
            if self.number == self.schedule.generations - 1:
                return
            unlabeled = self.task.unlabeled
            logits = self.trainer.measurer.score(unlabeled, torch.arange(len(unlabeled)))
            index, labels = self.schedule.choose(torch.softmax(logits, 1), self.task.train_prior)
            self._begin(self.number + 1, self.step, index, labels)

    def _consider(self) -> bool:
        """Keep the model that this generation has just selected if no earlier generation has a better one."""
        candidate = self.trainer.best
        if not self.settings.keeps_last and candidate.rank < self.best.rank:
            return False
        self.best = replace(candidate, step=self.before + candidate.step)
        return True

    def _begin(self, number: int, before: int, index: Tensor, labels: Tensor) -> None:
        """Start a generation after `before` steps, with pseudo-labels of the unlabeled examples in the index."""
        self.number = number
        self.before = before
        self.index = index
        self.labels = labels
        settings, setup = plan_generation(self.settings, self.method, self.task, number)
        task = expand_labeled(self.task, index, labels)
        objective = self.trainer.stated_objective
        start = self.trainer.start
        self.trainer = Trainer(task, self.fresh(), objective, self.method, settings, self.seed, setup)
        if start is not None:
            begin_at(self.trainer, start.weights)

    def judge(self, weights: WhichWeights) -> tuple[Tensor, Tensor]:
        state = self.best.state if weights == "selected" else choose_weights(self.trainer, weights)
        return judge(self.trainer, state)

    def return_to_start(self) -> None:
        return_to_start(self.trainer)
        self.best = replace(self.trainer.best, step=self.before)

    @property
    def is_complete(self) -> bool:
        return self.number == self.schedule.generations - 1 and self.trainer.is_complete

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the current trainer and its place among the generations."""
        place = {name: getattr(self, name) for name in self._PLACE}
        return {**self.trainer.state_dict(), "generation": {**place, "best": self.best.state_dict()}}

    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        place = state["generation"]
        if place["number"] > 0:
            self._begin(*(place[name] for name in self._PLACE))
        self.best.load_state_dict(place["best"])
        self.trainer.load_state_dict(state, keeps_order)

    _PLACE = ("number", "before", "index", "labels")


def plan_generation(settings: Settings, method: Method, task: Task, generation: int) -> tuple[Settings, Setup]:
    """Return the settings with one generation's part of the steps, and the setup of the method's stateful parts."""
    schedule = method.generation_schedule(settings.selftraining)
    steps = schedule.steps(settings.training.steps, generation)
    progress = generation / max(1, schedule.generations - 1)
    setup = Setup(task.classes, len(task.unlabeled), task.train_prior, steps, progress)
    return replace(settings, training=replace(settings.training, steps=steps)), setup


def expand_labeled(task: Task, index: Tensor, labels: Tensor) -> Task:
    """Return the task with pseudo-labeled examples added to the labeled ones; they stay among the unlabeled, too."""
    groups = None if task.unlabeled_groups is None else task.unlabeled_groups[index]
    pseudo_labeled = Labeled(choose(task.unlabeled, index.numpy()), labels, groups)
    return replace(task, labeled=task.labeled.join(pseudo_labeled))
