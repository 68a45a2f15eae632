"""The paper's learner: a network trained by SGD, with any method of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from csst.data.task import Task
from csst.errors import InputError
from csst.maths.objectives import Objective
from csst.selftraining import Method
from csst.selftraining import method as read_method
from csst.settings import Settings
from csst.training.crossfit import CrossFit
from csst.training.generations import Generations, plan_generation
from csst.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Network:
    """How a network is made and trained.

    Args:
        make: makes an untrained network.
        method: a name of `csst.selftraining.METHODS`, package.module:name, or a Method.
        settings: of training, self-training, the multipliers, selection and hardware.
        folds: of cross-fitting, where the labeled examples are judged, too; 0 judges the validation examples.
    """

    make: Callable[[], nn.Module]
    method: Method | str = "csst"
    settings: Settings = field(default_factory=Settings)
    folds: int = 0

    def start(self, task: Task, objective: Objective | str, seed: int) -> Generations | CrossFit:
        """The training before its first step: generations, or folds in lockstep.

        Args:
            task: what there is to learn from.
            objective: a sentence, a short name or an `Objective`.
            seed: of the weights, the folds and the order of examples.

        Returns:
            The training, to be run.
        """
        method = read_method(self.method, task.kind)
        if not self.folds:
            settings, setup = plan_generation(self.settings, method, task, 0)
            first = Trainer(task, self.make(), objective, method, settings, seed, setup)
            return Generations(first, self.settings, self.make)
        if method.generation_schedule(self.settings.selftraining).generations > 1:
            raise InputError(
                f"{method.name} trains in generations, which cross-fitting does not: give a validation set, such as "
                "validation=0.2, or leave out --folds"
            )
        return CrossFit(task, self.make, objective, method, self.settings, seed, self.folds)
