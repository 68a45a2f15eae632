"""The paper's learner: a network trained by SGD, with any method of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.examples import as_rows
from csst.data.tabular.tables import compute_moments
from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.folds import deal_folds
from csst.learners.linear import Linear
from csst.learners.linear_start import start_at_linear
from csst.learners.portfolio import compute_losses
from csst.learners.protocol import Rows
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.models import Model, Projected, Standardize, build
from csst.models.table import TableInput, choose_deviation
from csst.selftraining import Method
from csst.selftraining import method as read_method
from csst.settings import Settings
from csst.training.crossfit import CrossFit
from csst.training.generations import Generations, plan_generation
from csst.training.start import begin_at
from csst.training.trainer import Trainer
from csst.training.training_run import TrainingRun

FOLDS = 3
#: labeled rows used, at most
ROWS = 2000


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

    def start(self, task: Task, objective: Objective | str, seed: int) -> TrainingRun:
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
            self._choose_start([trainer])
            return Generations(trainer, all_settings, self.make)
        if method.generation_schedule(all_settings.selftraining).generations > 1:
            raise InputError(
                f"{method.name} trains in generations, which cross-fitting does not: give a validation set, such as "
                "validation=0.2, or leave out --folds"
            )
        game = CrossFit(task, self.make, objective, method, all_settings, seed, self.folds)
        self._choose_start(game.trainers)
        return game

    def _choose_start(self, trainers: list[Trainer]) -> None:
        """Let each network begin as a linear model of its labels, if the settings say so and it has room for one."""
        if self.settings.model.start != "linear":
            return
        for trainer in trainers:
            network = trainer.copy_model(trainer.last_weights())
            if start_at_linear(network, trainer.task, trainer.multipliers.gain.diagonal):
                begin_at(trainer, network.state_dict())


def choose_update(settings: Settings, objective: Objective | str) -> Settings:
    """Return the settings with which gains are solved for if the objective is about groups of rows.

    Algorithms 1 and 2 have one gain for all rows, and no update by gradient for one gain per group.
    """
    if read_objective(objective).column is None or settings.dual.update != "gradient":
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


def choose_scale(task: Task, scale: str, seed: int) -> tuple[Rows, bool]:
    """Return the standardization of the columns, and whether one deviation is used for all columns of numbers.

    Columns that share a unit (embeddings, pixels) want a common one: divided by its own deviation, a component that
    hardly varies counts as much as the first, and on principal components of images a network then learns noise. If
    the columns of a table have different units, the opposite is true. The labels decide: logistic regression is fitted
    both ways and compared by its balanced log-loss out of fold.

    Args:
        task: rows of numbers.
        scale: "column", "common", or "auto", which lets the labels decide.
        seed: seed of the folds.
    """
    mean, std = compute_moments(task.measured)
    table = Rows(mean, choose_deviation(mean, std), task.column_sizes)
    common_table = table.with_common_scale
    is_common = scale == "common"
    if scale == "auto":
        sample = task.labeled.part(np.random.default_rng(seed).permutation(len(task.labeled))[:ROWS])
        rows = as_rows(sample.inputs)
        labels = sample.labels.numpy()
        is_common = measure_loss(common_table, rows, labels, seed) < measure_loss(table, rows, labels, seed)
    return (common_table if is_common else table), is_common


def scale_task(task: Task, seed: int) -> Task:
    """Return the task of a table with the standardization and the views that suit its labels.

    Args:
        task: rows of numbers, standardized column by column.
        seed: seed of the folds.
    """
    table, is_common = choose_scale(task, "auto", seed)
    return replace(task.with_views("embedding"), moments=(table.mean, table.std)) if is_common else task


def measure_loss(table: Rows, rows: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Return the balanced log-loss of logistic regression on columns scaled like this, out of fold."""
    labels = np.unique(labels, return_inverse=True)[1]  # a sample may lack a class
    prior = np.bincount(labels) / len(labels)
    scores = np.zeros((len(labels), len(prior)))
    folds = deal_folds(labels, FOLDS, seed)
    is_only_label = np.bincount(labels)[labels] < 2  # the only label of a class is always learned from
    for fold in range(FOLDS):
        fold_rows = np.flatnonzero(folds == fold)
        other_rows = np.flatnonzero((folds != fold) | is_only_label)
        if len(fold_rows):
            model = Linear(table).fit(rows[other_rows], labels[other_rows], seed)
            scores[fold_rows] = model.log_probs(rows[fold_rows]) - np.log(prior)
    return float(compute_losses(scores, labels).mean())
