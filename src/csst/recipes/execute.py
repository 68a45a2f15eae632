"""A recipe carried out in a folder: from the data to metrics.json, resumable at any moment."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Task
from csst.errors import InputError
from csst.evaluation import counts, logits, summary
from csst.models import Standardize, build
from csst.priors import estimate_prior
from csst.recipes.recipe import Recipe, differences
from csst.records import Record
from csst.runs import Run
from csst.training import Trainer

#: total variation between labeled and estimated unlabeled class shares above which a run warns
PRIOR_GAP = 0.15


def execute(
    recipe: Recipe,
    folder: str | Path,
    resume: bool = False,
    on_record: Callable[[Trainer, Record], None] | None = None,
    checkpoint_seconds: float = 30.0,
) -> dict[str, Any]:
    """Train by the recipe and return what metrics.json holds. With `resume`, continue what the folder has."""
    old = opened(recipe, folder, resume)
    if old is not None and old.finished:
        return old.metrics()
    trainer = assemble(recipe)
    engine = trainer.engine
    if old is None and engine.first:
        Run.create(folder, recipe.as_dict())
    engine.barrier()
    run = Run.open(folder)
    state = run.load("checkpoint.pt")
    spent = 0.0
    if state is not None:
        if state["split_hash"] != trainer.task.split_hash:
            raise InputError(
                f"the data has changed since the run in {folder} began (split {state['split_hash']}, "
                f"now {trainer.task.split_hash}): restore it, or start a new run"
            )
        trainer.load_state_dict(state["trainer"])
        spent = state["seconds"]
    if engine.first:
        run.rewind(trainer.updated_at)
    start = saved = time.perf_counter()

    def checkpoint() -> None:
        seconds = spent + time.perf_counter() - start
        state = trainer.state_dict()  # all processes, in case each holds a shard of it
        if engine.first:
            run.save("checkpoint.pt", {"trainer": state, "split_hash": trainer.task.split_hash, "seconds": seconds})

    for record in trainer.run():
        if engine.first:
            run.append(record.as_dict())
        if trainer.finished or engine.agreed(time.perf_counter() - saved >= checkpoint_seconds):
            checkpoint()
            saved = time.perf_counter()
        if on_record is not None and engine.first:
            on_record(trainer, record)
    seconds = spent + time.perf_counter() - start
    if not engine.first:
        engine.barrier()
        return run.metrics()
    run.save("model.pt", {"model": trainer.best.state})
    metrics = results(recipe, trainer, seconds, run.journal())
    run.write("metrics.json", json.dumps(metrics, indent=2))
    engine.barrier()
    return metrics


def opened(recipe: Recipe, folder: str | Path, resume: bool) -> Run | None:
    """The run that the folder already holds, if it may be resumed; None for a new one."""
    if not Run.exists(folder):
        return None
    if not resume:
        raise InputError(f"{folder} already holds a run: continue it with --resume, or choose another --out")
    run = Run.open(folder)
    changes = differences(run.recipe(), recipe.as_dict())
    if changes:
        raise InputError(
            f"{folder} holds a run of other settings and cannot be resumed with these ({'; '.join(changes[:5])}): "
            "use the same settings, or another --out"
        )
    return run


def assemble(recipe: Recipe) -> Trainer:
    """The trainer of a recipe, before its first step."""
    task = recipe.data.load(recipe.seed)
    model = build(recipe.model, task.input_shape, task.classes, recipe.seed)
    for module in model.modules():
        if isinstance(module, Standardize) and isinstance(task.labeled.inputs, Tensor):
            known = [task.labeled.inputs, *([task.unlabeled] if isinstance(task.unlabeled, Tensor) else [])]
            module.fit(torch.cat(known))
    return Trainer(task, model, recipe.objective, recipe.method, recipe.settings, recipe.seed)


def trained(folder: str | Path, recipe: Recipe) -> tuple[Task, nn.Module, Trainer]:
    """The task, the selected model and the trainer of a finished run."""
    run = Run.open(folder)
    state = run.load("model.pt")
    if state is None:
        raise InputError(f"the run {folder} has no model yet: continue it with csst train ... --resume")
    trainer = assemble(recipe)
    trainer.best.state = state["model"]
    return trainer.task, trainer.best_model(), trainer


def results(recipe: Recipe, trainer: Trainer, seconds: float, journal: list[dict[str, Any]]) -> dict[str, Any]:
    """The content of metrics.json: the selected model on validation and, for the first time, on test."""
    task, model = trainer.task, trainer.best_model()
    batch = recipe.training.evaluation_batch
    measured = {
        part: summary(counts(model, examples, task.classes, batch, trainer.engine.device), trainer.objective)
        for part, examples in (("validation", task.validation), ("test", task.test))
        if examples is not None
    }
    notes = collapse_notes(journal)
    found: dict[str, Any] = {
        "recipe": recipe.name,
        "method": trainer.method.name,
        "objective": str(trainer.objective),
        "seed": recipe.seed,
        "steps": trainer.step,
        "selected_step": trainer.best.step,
        "seconds": seconds,
        "split_hash": task.split_hash,
        "class_names": list(task.class_names),
        "labeled_counts": task.train_counts.tolist(),
        "unlabeled_count": len(task.unlabeled),
        "unlabeled_ratio": len(task.unlabeled) / len(task.labeled),
        "multipliers": dict(zip(trainer.multipliers.labels, trainer.multipliers.value.tolist(), strict=True)),
        "facts": task.facts,
        **measured,
    }
    if len(task.unlabeled):
        estimate = estimate_prior(
            logits(model, task.unlabeled, batch, trainer.engine.device),
            logits(model, task.validation.inputs, batch, trainer.engine.device),
            task.validation.labels,
        )
        gap = float((estimate - task.train_prior).abs().sum() / 2)
        found["prior"] = {"labeled": task.train_prior.tolist(), "unlabeled_estimate": estimate.tolist(), "gap": gap}
        if gap > PRIOR_GAP:
            notes.append(
                f"the unlabeled data looks differently balanced than the labeled data (total variation {gap:.2f}): "
                "compare prior.labeled and prior.unlabeled_estimate"
            )
    found["warnings"] = notes
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return found


def collapse_notes(journal: list[dict[str, Any]]) -> list[str]:
    """The feedback loop of a tau that is too large: nearly everything is used while the objective falls."""
    best = -float("inf")
    for record in journal:
        if record["used"] is not None and record["used"] > 0.9 and record["score"] < best - 0.1:
            return [
                f"at step {record['step']} {record['used']:.0%} of the pseudo-labels were used while the score fell "
                f"from {best:.3f} to {record['score']:.3f}: wrong pseudo-labels pass the threshold; lower tau"
            ]
        best = max(best, record["score"])
    return []
