"""The paper's learner: a network trained by SGD, with any method of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.errors import InputError
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.models import Model, Projected, Standardize, build
from csst.models.table import TableInput
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
        all_settings = choose_update(self.settings, objective)
        if not self.folds:
            settings, setup = plan_generation(all_settings, method, task, 0)
            trainer = Trainer(task, self.make(), objective, method, settings, seed, setup)
            return Generations(trainer, all_settings, self.make)
        if method.generation_schedule(all_settings.selftraining).generations > 1:
            raise InputError(
                f"{method.name} trains in generations, which cross-fitting does not: give a validation set, such as "
                "validation=0.2, or leave out --folds"
            )
        return CrossFit(task, self.make, objective, method, all_settings, seed, self.folds)


def choose_update(settings: Settings, objective: Objective | str) -> Settings:
    """Return the settings with which gains are solved for if the objective is about groups of rows.

    Algorithms 1 and 2 have one gain for all rows, and no update by gradient for one gain per group.
    """
    is_about_groups = getattr(read_objective(objective), "column", None) is not None
    if not is_about_groups or settings.dual.update != "gradient":
        return settings
    return replace(settings, dual=replace(settings.dual, update="solve"))


def build_network(model: Model, task: Task, seed: int) -> nn.Module:
    """Return the untrained network for a task, which standardizes its inputs by the training examples.

    Args:
        model: which network.
        task: what there is to learn from.
        seed: seed of the weights.
    """
    sizes = () if task.columns is None else task.column_sizes
    network = build(model, task.input_shape, task.classes, seed, sizes)
    for module in network.modules():
        if isinstance(module, Standardize | TableInput) and task.moments is not None:
            module.use_moments(*task.moments)
        elif isinstance(module, Standardize) and isinstance(task.labeled.inputs, Tensor):
            examples = [part for part in (task.labeled.inputs, task.unlabeled) if isinstance(part, Tensor)]
            module.fit(torch.cat(examples))
    return network if task.projection is None else Projected(network, *task.projection)
