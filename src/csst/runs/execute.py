"""Carry out a recipe in a folder, from the data to metrics.json; it can be resumed at any moment."""

from __future__ import annotations

import ctypes
import signal
import time
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from csst.data.task import Task
from csst.errors import InputError
from csst.fitting.fit import OnRecord
from csst.fitting.fitted_model import FittedModel
from csst.fitting.network_fit import Fit, NetworkFit
from csst.recipes.recipe import Recipe, absolute_paths, differences, with_absolute_paths
from csst.runs.begin import begin_recipe
from csst.runs.folder import CHECKPOINT, Run
from csst.setting_checks import override
from csst.settings import Settings
from csst.training.crossfit import CrossFit
from csst.training.generations import Generations
from csst.training.interruption import Interrupted, defer_signals, pending_signal
from csst.training.records import Diverged

#: settings that apply after training and may be changed later
AFTER_TRAINING = ("rule", "deployment_prior")


def execute(
    recipe: Recipe,
    folder: str | Path,
    resume: bool = False,
    on_record: OnRecord | None = None,
    checkpoint_seconds: float = 30.0,
) -> dict[str, Any]:
    """Train by a recipe into a folder.

    Args:
        recipe: the data, the model and all settings.
        folder: folder of the run.
        resume: whether to continue the run in the folder.
        on_record: called at every multiplier update of a network.
        checkpoint_seconds: time between two checkpoints.

    Returns:
        The content of metrics.json.
    """
    recipe = with_absolute_paths(recipe)  # the stored recipe must be valid from any working directory
    old_run = find_resumable_run(recipe, folder, resume)
    if old_run is not None and old_run.is_complete and _has_same_end(old_run, recipe):
        return old_run.metrics()
    ongoing_fit = begin_recipe(recipe)
    if not isinstance(ongoing_fit, NetworkFit):
        start = time.perf_counter()
        model = ongoing_fit.conclude()
        run = Run.create(folder, recipe.as_dict()) if old_run is None else old_run
        return save_results(model, ongoing_fit, run, recipe, time.perf_counter() - start)
    run = open_run(recipe, folder, ongoing_fit.runner, is_new=old_run is None)
    checkpoints = Checkpoints(run, ongoing_fit.runner, recipe, checkpoint_seconds)
    checkpoints.restore()
    replay_journal(run, ongoing_fit)
    checkpoints.start_clock()
    train(ongoing_fit, run, checkpoints, on_record)
    seconds = checkpoints.seconds
    ongoing_fit.gather_weights()
    if ongoing_fit.runner.engine.is_main:
        save_results(ongoing_fit.conclude(), ongoing_fit, run, recipe, seconds)
    ongoing_fit.runner.engine.barrier()
    return run.metrics()


def open_run(recipe: Recipe, folder: str | Path, trainer: Generations | CrossFit, is_new: bool) -> Run:
    """Open the run's folder in all processes; the first one creates a new folder."""
    if is_new and trainer.engine.is_main:
        Run.create(folder, recipe.as_dict())
    trainer.engine.barrier()
    return Run.open(folder)


class Checkpoints:
    """The checkpoints of a training, and the time it has taken over all its resumptions.

    Args:
        run: the run's folder.
        trainer: the training.
        recipe: its recipe.
        interval: seconds between two checkpoints.
    """

    def __init__(self, run: Run, trainer: Generations | CrossFit, recipe: Recipe, interval: float) -> None:
        self.run = run
        self.trainer = trainer
        self.recipe = recipe
        self.interval = interval
        #: step of the newest checkpoint; -1 before the first
        self.step = -1
        self.seconds_before = 0.0
        self.start_clock()

    def start_clock(self) -> None:
        """Count time from now on."""
        self.start = time.perf_counter()
        self.last_write = self.start

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.seconds_before + time.perf_counter() - self.start

    def restore(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        state = self.run.checkpoint()
        if state is None and self.run.is_complete:
            raise InputError(
                f"{self.run.folder} no longer has a checkpoint, so it cannot be completed with other settings"
            )
        if state is not None:
            refuse_other(state, self.recipe, self.trainer.task, self.run.folder)
            self.trainer.load_state_dict(state["trainer"])
            self.seconds_before = state["seconds"]
            self.step = self.trainer.step
        self.trainer.engine.barrier()  # no process may write while another still reads

    def write(self) -> None:
        """Write a checkpoint of the current step."""
        seconds = self.seconds
        task = self.trainer.task
        state = self.trainer.state_dict()  # in all processes, since each may hold a shard of it
        if self.trainer.engine.is_main:
            identity = {"recipe": self.recipe.as_dict(), "split_hash": task.split_hash, "classes": task.classes}
            self.run.save(CHECKPOINT, {"trainer": state, **identity, "seconds": seconds})
        del state
        return_freed_memory()
        self.last_write = time.perf_counter()
        self.step = self.trainer.step

    def write_if_due(self) -> None:
        """Write a checkpoint at the end of training, or if the last one is older than the interval."""
        is_late = time.perf_counter() - self.last_write >= self.interval
        if self.trainer.is_complete or self.trainer.engine.broadcast(is_late):
            self.write()


def replay_journal(run: Run, fit: NetworkFit) -> None:
    """Drop journal records newer than the checkpoint, and show the others to the detector of collapsing multipliers."""
    if fit.runner.engine.is_main:
        run.rewind(fit.runner.updated_at)
        for record, _ in run.records():
            fit.detector.update(record)


def train(fit: NetworkFit, run: Run, checkpoints: Checkpoints, on_record: OnRecord | None) -> None:
    """Train to the end, and write the journal and checkpoints."""
    trainer = fit.runner
    engine = trainer.engine
    try:
        with defer_signals():
            for record in fit.run():
                if engine.is_main:
                    run.append(record.as_dict())
                checkpoints.write_if_due()
                if on_record is not None and engine.is_main:
                    on_record(trainer.trainer, record)
                if engine.processes > 1 and engine.broadcast(pending_signal() is not None):
                    raise Interrupted(pending_signal() or signal.SIGTERM)
    except Interrupted as stop:
        if checkpoints.step != trainer.step:
            checkpoints.write()
        sentence = f"stopped by {stop.name} at step {trainer.step}, which {run.path(CHECKPOINT)} holds"
        raise Interrupted(stop.number, sentence) from None
    except Diverged as error:
        place = "none: it was too early"
        if checkpoints.step >= 0:
            place = f"{run.path(CHECKPOINT)} (step {checkpoints.step})"
        raise InputError(f"{error}; start a new run; the last good checkpoint: {place}") from None


def save_results(model: FittedModel, fit: Fit, run: Run, recipe: Recipe, seconds: float) -> dict[str, Any]:
    """Save the model, and return the content of metrics.json."""
    metrics = model.save(
        run.folder,
        recipe=recipe.name,
        seed=recipe.seed,
        seconds=seconds,
        split_hash=fit.task.split_hash,
        facts=fit.task.facts,
        **fit.facts,
    )
    run.write_columns(fit.task.columns)
    if not _has_same_end(run, recipe):  # everything else is the same, or it would have been refused
        run.describe(recipe.as_dict())
    return metrics


def return_freed_memory() -> None:
    """Return freed memory to the system; does nothing without glibc.

    glibc keeps freed memory in ever smaller pieces, so that hours of fine-tuning on a CPU would take several times the
    memory in use.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _has_same_end(run: Run, recipe: Recipe) -> bool:
    """Return whether a stored run has the same settings for what follows training."""
    return all(run.recipe().get(name) == getattr(recipe, name) for name in AFTER_TRAINING)


def refuse_other(state: dict[str, Any], recipe: Recipe, task: Task, folder: str | Path) -> None:
    """Raise an error if a checkpoint was written with other settings or other data."""
    changes = _list_changes(state["recipe"], recipe)
    if changes:
        raise InputError(
            f"the checkpoint in {folder} was written with other settings than its recipe.yaml has "
            f"({'; '.join(changes[:5])}): undo the change, or start a new run in another --out"
        )
    if state["classes"] != task.classes:
        raise InputError(
            f"the checkpoint in {folder} has {state['classes']} classes, but the data now has {task.classes}: restore "
            "the data, or start a new run in another --out"
        )
    if state["split_hash"] != task.split_hash:
        raise InputError(
            f"the data has changed since the run in {folder} began (split {state['split_hash']}, "
            f"now {task.split_hash}): restore it, or start a new run"
        )


def _list_changes(stored: dict[str, Any], recipe: Recipe) -> list[str]:
    """List settings that affect training and differ from a stored run; missing ones count as defaults."""
    end = {name: getattr(recipe, name) for name in AFTER_TRAINING}
    old_values = set_clock({**add_defaults(stored, recipe), **end})
    return differences(absolute_paths(old_values), absolute_paths(set_clock(recipe.as_dict())))


def add_defaults(stored: dict[str, Any], settings: Any) -> dict[str, Any]:
    """Return stored settings with defaults for settings that an earlier version did not have.

    Args:
        stored: settings, with groups as dictionaries.
        settings: a dataclass with the same groups.
    """
    values = dict(stored)
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if is_dataclass(value) and isinstance(stored.get(setting.name), dict):
            values[setting.name] = add_defaults(stored[setting.name], value)
        elif setting.default is not MISSING:
            values.setdefault(setting.name, setting.default)
    return values


def set_clock(values: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe's values with the settings that follow from the length of the run filled in."""
    groups = ("training", "dual", "selection")
    settings = override(Settings(), {name: values[name] for name in groups})
    clock = {
        "training": {"ema": settings.ema},
        "dual": {"steps_per_update": settings.steps_per_update, "warmup": settings.dual_warmup},
        "selection": {"keep": "last" if settings.keeps_last else "best"},
    }
    return {**values, **{name: {**values[name], **clock[name]} for name in groups}}


def find_resumable_run(recipe: Recipe, folder: str | Path, resume: bool) -> Run | None:
    """Return the run that the folder holds; None if there is none, an error if it may not be resumed."""
    if not Run.exists(folder):
        return None
    if not resume:
        raise InputError(f"{folder} already holds a run: continue it with --resume, or choose another --out")
    run = Run.open(folder)
    changes = _list_changes(run.recipe(), recipe)
    if changes:
        raise InputError(
            f"{folder} holds a run of other settings and cannot be resumed with these ({'; '.join(changes[:5])}): "
            "use the same settings, or another --out"
        )
    return run
