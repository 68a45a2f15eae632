"""A recipe carried out in a folder: from the data to metrics.json, resumable at any moment."""

from __future__ import annotations

import ctypes
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csst.data import Arrays
from csst.data.embeddings import Embedder, embedded
from csst.data.task import Task
from csst.errors import InputError
from csst.fitting import conclude, start
from csst.learners.dealing import deal_task
from csst.learners.network import Network
from csst.learners.scale import scale_task
from csst.models import Projected, Standardize, build
from csst.models.encoders import encoder
from csst.recipes.paths import absolute_paths, with_absolute_paths
from csst.recipes.recipe import Recipe, differences
from csst.runs.folder import CHECKPOINT, Run
from csst.runs.learners import execute_learners, hash_parts
from csst.setting_checks import override
from csst.settings import Settings
from csst.training.crossfit import CrossFit, learn_validation
from csst.training.diagnostics import CollapseDetector
from csst.training.generations import Generations
from csst.training.interruption import Interrupted, defer_signals, pending_signal
from csst.training.reach import ReachCheck
from csst.training.records import Diverged, Record
from csst.training.trainer import Trainer

#: settings of what comes after training, which may be changed later
AFTER_TRAINING = ("rule", "deployment_prior")


def execute(
    recipe: Recipe,
    folder: str | Path,
    resume: bool = False,
    on_record: Callable[[Trainer, Record], None] | None = None,
    checkpoint_seconds: float = 30.0,
) -> dict[str, Any]:
    """Train by a recipe into a folder.

    Args:
        recipe: what to train, on what, and how.
        folder: the run's.
        resume: whether to continue what the folder has.
        on_record: is called at every multiplier update of a network.
        checkpoint_seconds: time between two checkpoints.

    Returns:
        What metrics.json holds.
    """
    recipe = with_absolute_paths(recipe)  # what the folder keeps must be true wherever it is read
    old = find_resumable_run(recipe, folder, resume)
    if old is not None and old.is_complete and _same_end(old, recipe):
        return old.metrics()
    if not recipe.uses_network:
        return execute_learners(recipe, folder, old)
    trainer = begin_training(recipe)
    engine = trainer.engine
    if old is None and engine.is_main:
        Run.create(folder, recipe.as_dict())
    engine.barrier()
    run = Run.open(folder)
    state = run.checkpoint()
    if state is None and run.is_complete:
        raise InputError(f"{folder} no longer has a checkpoint, so it cannot be completed with other settings")
    spent, saved_at = 0.0, -1
    if state is not None:
        refuse_other(state, recipe, trainer.task, folder)
        trainer.load_state_dict(state["trainer"])
        spent, saved_at = state["seconds"], trainer.step
    del state  # as large as the training itself
    engine.barrier()  # nobody writes while another still reads
    reach = ReachCheck(trainer)
    labels = trainer.multipliers.labels
    detector = CollapseDetector(labels, _shared(trainer), recipe.training.steps, trainer.task.class_names)
    if engine.is_main:
        run.rewind(trainer.updated_at)
        for known, _ in run.records():
            detector.update(known)
    began = saved = time.perf_counter()

    def checkpoint() -> None:
        nonlocal saved, saved_at
        seconds = spent + time.perf_counter() - began
        task, state = trainer.task, trainer.state_dict()  # all processes, in case each holds a shard of it
        if engine.is_main:
            of = {"recipe": recipe.as_dict(), "split_hash": task.split_hash, "classes": task.classes}
            run.save(CHECKPOINT, {"trainer": state, **of, "seconds": seconds})
        del state
        return_freed_memory()
        saved, saved_at = time.perf_counter(), trainer.step

    try:
        with defer_signals():
            for record in trainer.run():
                if engine.is_main:
                    run.append(record.as_dict())
                    for note in detector.update(record.as_dict()):
                        warnings.warn(note, stacklevel=2)
                reach.warn_once(record.step)
                if trainer.is_complete or engine.broadcast_choice(time.perf_counter() - saved >= checkpoint_seconds):
                    checkpoint()
                if on_record is not None and engine.is_main:
                    on_record(trainer.trainer, record)
                if engine.processes > 1 and engine.broadcast_choice(pending_signal() is not None):
                    raise Interrupted(pending_signal() or signal.SIGTERM)
    except Interrupted as stop:
        if saved_at != trainer.step:
            checkpoint()
        sentence = f"stopped by {stop.name} at step {trainer.step}, which {run.path(CHECKPOINT)} holds"
        raise Interrupted(stop.number, sentence) from None
    except Diverged as error:
        good = f"{run.path(CHECKPOINT)} (step {saved_at})" if saved_at >= 0 else "none: it was too early"
        raise InputError(f"{error}; start a new run; the last good checkpoint: {good}") from None
    seconds = spent + time.perf_counter() - began
    is_promised = trainer.multipliers.objective.confidence is not None
    last = trainer.last_weights() if recipe.rule != "none" or is_promised else None
    if not engine.is_main:
        engine.barrier()
        return run.metrics()
    fitted = conclude(trainer, trainer.task, last, recipe.deployment_prior, None, recipe.seed)
    metrics = fitted.save(
        folder,
        recipe=recipe.name,
        seed=recipe.seed,
        seconds=seconds,
        split_hash=trainer.task.split_hash,
        facts=trainer.task.facts,
        unlabeled_true_counts=count_truth(trainer.task),
        warnings=list(detector.notes.values()),
    )
    if not _same_end(run, recipe):  # all else is the same, or it would have been refused
        run.describe(recipe.as_dict())
    engine.barrier()
    return metrics


def return_freed_memory() -> None:
    """Give freed memory back to the system.

    glibc keeps what was freed, in pieces that fit less and less: hours of fine-tuning on a CPU would grow to several
    times what is in use. Where there is no glibc nothing is done.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def count_truth(task: Task) -> list[int] | None:
    """Unlabeled examples of every class, where the truth is known: for pictures of the data alone."""
    truth = task.unlabeled_truth
    return None if truth is None else torch.bincount(truth, minlength=task.classes).tolist()


def _same_end(run: Run, recipe: Recipe) -> bool:
    """Whether what comes after training is the same in a run's folder."""
    return all(run.recipe().get(name) == getattr(recipe, name) for name in AFTER_TRAINING)


def _shared(trainer: Generations | CrossFit) -> list[bool]:
    """Which multipliers weigh the entries of a worst case."""
    multipliers = trainer.multipliers
    return multipliers.objective.domain.simplex_mask(len(multipliers.value)).tolist()


def refuse_other(state: dict[str, Any], recipe: Recipe, task: Task, folder: str | Path) -> None:
    """Stop if a checkpoint is of other settings or other data than these."""
    changes = _of_training(state["recipe"], recipe)
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


def _of_training(known: dict[str, Any], recipe: Recipe) -> list[str]:
    """List settings that affect training and differ from a stored run; missing ones count as defaults."""
    after = {name: getattr(recipe, name) for name in AFTER_TRAINING}
    stored = set_clock({**add_defaults(known, recipe), **after})
    return differences(absolute_paths(stored), absolute_paths(set_clock(recipe.as_dict())))


def add_defaults(known: dict[str, Any], settings: Any) -> dict[str, Any]:
    """Stored settings with the defaults of those that a version before did not have, group by group.

    Args:
        known: as stored.
        settings: a dataclass of the same groups.
    """
    values = dict(known)
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if is_dataclass(value) and isinstance(known.get(setting.name), dict):
            values[setting.name] = add_defaults(known[setting.name], value)
        elif setting.default is not MISSING:
            values.setdefault(setting.name, setting.default)
    return values


def set_clock(values: dict[str, Any]) -> dict[str, Any]:
    """A recipe's values with what follows from the length of the run spelled out."""
    groups = ("training", "dual", "selection")
    settings = override(Settings(), {name: values[name] for name in groups})
    clock = {
        "training": {"ema": settings.ema},
        "dual": {"steps_per_update": settings.steps_per_update, "warmup": settings.dual_warmup},
        "selection": {"keep": "last" if settings.keeps_last else "best"},
    }
    return {**values, **{name: {**values[name], **clock[name]} for name in groups}}


def find_resumable_run(recipe: Recipe, folder: str | Path, resume: bool) -> Run | None:
    """The run that the folder already holds, if it may be resumed; None for a new one."""
    if not Run.exists(folder):
        return None
    if not resume:
        raise InputError(f"{folder} already holds a run: continue it with --resume, or choose another --out")
    run = Run.open(folder)
    changes = _of_training(run.recipe(), recipe)
    if changes:
        raise InputError(
            f"{folder} holds a run of other settings and cannot be resumed with these ({'; '.join(changes[:5])}): "
            "use the same settings, or another --out"
        )
    return run


def load_task(recipe: Recipe) -> Task:
    """The examples of a recipe, embedded where its encoder is frozen; cross-fitted, all labels are to learn from."""
    task = recipe.data.load(recipe.seed)
    hashes = hash_parts(task.labeled.inputs, task.unlabeled, task.validation)
    task = replace(task, row_hashes=hashes)
    task = deal_task(
        task, recipe.bind_objective(task.class_names), recipe.deployment_prior, recipe.seed, recipe.certifying
    )
    if recipe.folds:
        task = learn_validation(task)
    if isinstance(recipe.data, Arrays) and task.moments is not None:  # a table: as CSSTClassifier has it
        task = scale_task(task, recipe.seed)
    if recipe.frozen:
        task = embedded(
            task, Embedder(encoder(recipe.encoder, task.kind, recipe.embedding.max_length), recipe.embedding)
        )
    return task


def begin_training(recipe: Recipe) -> Generations | CrossFit:
    """The training of a recipe before its first step."""
    task = load_task(recipe)
    learner = Network(lambda: build_network(recipe, task), recipe.method, recipe.settings, recipe.folds)
    return start(task, learner, recipe.bind_objective(task.class_names), recipe.seed, recipe.deployment_prior)


def assemble(recipe: Recipe) -> Trainer:
    """The trainer of a recipe (of its first generation, if there are several), before its first step."""
    return begin_training(recipe).trainer


def build_network(recipe: Recipe, task: Task) -> nn.Module:
    """The untrained model of a recipe."""
    model = build(recipe.network, task.input_shape, task.classes, recipe.seed)
    for module in model.modules():
        if isinstance(module, Standardize) and task.moments is not None:
            module.use_moments(*task.moments)
        elif isinstance(module, Standardize) and isinstance(task.labeled.inputs, Tensor):
            known = [task.labeled.inputs, *([task.unlabeled] if isinstance(task.unlabeled, Tensor) else [])]
            module.fit(torch.cat(known))
    return model if task.projection is None else Projected(model, *task.projection)
