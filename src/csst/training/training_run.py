"""What generations of trainers and trainers of several folds have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.maths.gain import Gain
from csst.maths.multipliers import Multipliers
from csst.maths.objectives import Objective
from csst.selftraining import Method
from csst.settings import Settings
from csst.training.engine import Engine
from csst.training.evaluation import compute_logits
from csst.training.records import Record
from csst.training.selection import Best
from csst.training.trainer import Trainer

#: the selected weights, those at the end of training, or those before it
WhichWeights = Literal["selected", "last", "start"]


class TrainingRun(ABC):
    """A training that can be run, saved, resumed, and asked for its models.

    If the model is sharded over processes, all of them must call `state_dict` and `last_weights` together.

    Args:
        task: the examples.
        trainer: the trainer whose model is kept.
        engine: its devices and processes.
        objective: the objective, bound to the classes.
        method: how unlabeled examples are used.
        settings: settings of the whole training.
        best: the selected model.
        before: steps that were taken before this trainer began.
        labels: pseudo-labels that joined the labeled set.
    """

    task: Task
    trainer: Trainer
    engine: Engine
    objective: Objective
    method: Method
    settings: Settings
    best: Best
    before: int = 0
    labels: Tensor = torch.zeros(0, dtype=torch.int64)

    @abstractmethod
    def run(self) -> Iterator[Record]:
        """Train to the end, yielding a record at every multiplier update; continues from a loaded state."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the whole training, for a checkpoint."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any], keeps_order: bool = True) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the whole training.
            keeps_order: whether the stored order of examples goes on; otherwise a new one begins.
        """

    @property
    def step(self) -> int:
        """Steps taken."""
        return self.before + self.trainer.step

    @property
    def updated_at(self) -> int:
        """The step of the last multiplier update."""
        return self.before + self.trainer.updated_at

    @property
    def is_complete(self) -> bool:
        """Whether all steps are taken, or patience has run out."""
        return self.trainer.is_complete

    @property
    def multipliers(self) -> Multipliers:
        """The multipliers that the method's gain follows."""
        return self.trainer.multipliers

    @property
    def measured_gain(self) -> Gain:
        """The gain behind the averaged model."""
        return self.trainer.measured_gain

    @property
    def judges(self) -> list[Trainer]:
        """The trainers whose validation examples judge: of folds, those that did not learn from them."""
        return [self.trainer]

    @property
    def is_cross_fitted(self) -> bool:
        """Whether the examples that judge are scored by other models than the one that is kept."""
        return self.judges != [self.trainer]

    @abstractmethod
    def judge(self, weights: WhichWeights) -> tuple[Tensor, Tensor]:
        """Return logits (n, K) and labels (n,) of the examples that judge, by models that have not learned from them.

        Args:
            weights: which weights the models have.

        Returns:
            The logits and the labels.
        """

    @abstractmethod
    def return_to_start(self) -> None:
        """Keep the model that training began with instead of the trained one; all processes must call this together."""

    def best_model(self) -> nn.Module:
        """Return a new model with the selected averaged weights, in evaluation mode."""
        return self.trainer.copy_model(self.best.state)

    def last_weights(self) -> dict[str, Tensor]:
        """Return a copy of the current averaged weights, on the CPU."""
        return self.trainer.last_weights()


def choose_weights(trainer: Trainer, weights: WhichWeights) -> dict[str, Tensor]:
    """Return weights of a trainer's averaged model."""
    if weights == "start":
        assert trainer.start is not None
        return trainer.start.weights
    return trainer.best.state if weights == "selected" else trainer.last_weights()


def judge(trainer: Trainer, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits of a trainer's validation examples by a model with these weights, (n, K), and their labels."""
    validation = trainer.task.require("validation")
    batch_size = trainer.settings.training.evaluation_batch
    model = trainer.copy_model(weights)
    return compute_logits(model, validation.inputs, batch_size, trainer.engine.device), validation.labels
