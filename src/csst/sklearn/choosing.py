"""The network behind `CSSTClassifier(learner="network")`: trained by the method asked for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from csst.data.task import Task
from csst.errors import InputError
from csst.selftraining import method as read_method
from csst.settings import Settings
from csst.sklearn.fitting import Fit, trained
from csst.training.records import Record
from csst.training.trainer import Trainer


def train_network(
    estimator: Any,
    task: Task,
    make: Callable[[], nn.Module],
    settings: Settings,
    seed: int,
    folds: int,
    before: Fit | None,
) -> tuple[Fit, list[str]]:
    """The training that is kept, and notes for the summary. `before` is the fit to go on from."""
    name, notes = str(estimator.method), []
    if before is not None:
        done = int(before.states[-1]["step"])
        settings = replace(settings, training=replace(settings.training, steps=settings.training.steps + done))
    if read_method(name, task.kind).select is not None and not len(task.unlabeled):
        notes.append(f"there are no unlabeled rows, so {name} learned from labels alone (csl)")
        warnings.warn(notes[-1], stacklevel=3)
        name = "csl"
    if before is not None and before.method != name:
        raise InputError(
            f"warm_start goes on with the same method; the last fit was {before.method}, this one is {name}"
        )
    watch = _watch(settings.training.steps, name) if estimator.verbose else None
    ruled, prior = estimator.finish == "posthoc", estimator.deployment_prior
    return trained(task, make, estimator.objective, name, settings, seed, folds, ruled, prior, watch, before), notes


def _watch(steps: int, method: str) -> Callable[[Trainer, Record], None]:
    def show(trainer: Trainer, record: Record) -> None:
        line = f"worst recall {min(record.recall):.3f}  objective {record.value:.3f}"
        if record.step % max(1, steps // 10) < trainer.settings.dual.steps_per_update:
            print(f"{method} step {record.step:>6}/{steps}  {line}", file=sys.stderr, flush=True)

    return show
