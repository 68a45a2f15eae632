"""A recipe whose learner is not a network: fitted in seconds, in a run's folder like any other."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.embeddings import Embedder
from csst.data.task import Examples, Labeled, RowTask
from csst.errors import InputError
from csst.learners.fit import MembersFit, RowParts, fit_members
from csst.learners.store import pack
from csst.maths.gain import Gain
from csst.models.encoders import encoder
from csst.recipes.recipe import Recipe
from csst.runs.folder import Run
from csst.runs.results import Outputs, describe_rule, estimated, measured, packed, warn_about_balance
from csst.statistics.expectation import describe_minimum
from csst.training.evaluation import summarize_counts

MODEL = "learners.safetensors"


def execute_members(recipe: Recipe, folder: str | Path, old: Run | None) -> dict[str, Any]:
    """Fit the recipe's learners and write the run; what metrics.json holds."""
    rows = load_rows(recipe)
    if recipe.frozen:
        rows = embed_rows(rows, recipe)
    elif rows.kind == "text":
        raise InputError(
            f"learner {recipe.learner} takes numbers, and this task's inputs are texts: add --encoder words --frozen"
        )
    start = time.perf_counter()
    prior = None if recipe.deployment_prior == "validation" else recipe.deployment_prior
    fit = fit_members(parts_of(rows), recipe.learner, recipe.objective, prior, recipe.frozen, recipe.seed)
    metrics, outputs = describe(recipe, rows, fit, time.perf_counter() - start)
    run = Run.create(folder, recipe.as_dict()) if old is None else old
    run.path("metrics.json").unlink(missing_ok=True)
    run.write(MODEL, pack(fit.portfolio))
    if outputs is not None:
        run.write("outputs.npz", outputs)
    run.write("metrics.json", json.dumps(metrics, indent=2))
    run.describe(recipe.as_dict())
    for note in metrics["warnings"]:
        warnings.warn(note, stacklevel=2)
    return metrics


def load_rows(recipe: Recipe) -> RowTask:
    """The rows of a recipe's data: as the file has them, or with the validation set that its task has."""
    if hasattr(recipe.data, "load_rows"):
        return recipe.data.load_rows()
    return RowTask.from_task(recipe.data.load(recipe.seed))


def embed_rows(rows: RowTask, recipe: Recipe) -> RowTask:
    """Every example as a vector of the recipe's frozen encoder."""
    embedder = Embedder(encoder(recipe.encoder, rows.kind, recipe.embedding.max_length), recipe.embedding)

    def part(labeled: Labeled | None, what: str) -> Labeled | None:
        return None if labeled is None else Labeled(embedder(labeled.inputs, what), labeled.labels)

    labeled = part(rows.labeled, "labeled examples")
    assert labeled is not None
    width = flatten(labeled.inputs).shape[1]
    unlabeled = embedder(rows.unlabeled, "unlabeled examples") if len(rows.unlabeled) else torch.zeros(0, width)
    return replace(
        rows,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=part(rows.validation, "validation examples"),
        test=part(rows.test, "test examples"),
        facts={**rows.facts, "encoder": embedder.fingerprint},
    )


def flatten(inputs: Examples) -> np.ndarray:
    """Examples as float32 rows."""
    values = inputs[torch.arange(len(inputs))]
    return np.asarray(values, dtype=np.float32).reshape(len(inputs), -1)


def parts_of(rows: RowTask) -> RowParts:
    labeled = flatten(rows.labeled.inputs)
    validation = None
    if rows.validation is not None:
        validation = (flatten(rows.validation.inputs), rows.validation.labels.numpy())
    unlabeled = flatten(rows.unlabeled) if len(rows.unlabeled) else labeled[:0]
    sizes = [0] * labeled.shape[1]
    return RowParts(labeled, rows.labeled.labels.numpy(), unlabeled, validation, rows.class_names, sizes)


def describe(recipe: Recipe, rows: RowTask, fit: MembersFit, seconds: float) -> tuple[dict[str, Any], bytes | None]:
    """metrics.json and outputs.npz."""
    fitted, classes = fit.fitted, len(rows.class_names)
    evidence, objective = fitted.evidence, fitted.objective
    log_prior = torch.from_numpy(np.log(evidence.train_prior))

    def scores_of(z: np.ndarray) -> Tensor:
        return torch.from_numpy(z) + log_prior

    parts = {"validation": (scores_of(evidence.scores), torch.from_numpy(evidence.labels))}
    if rows.test is not None:
        probs = torch.from_numpy(fit.probs(flatten(rows.test.inputs)))
        parts["test"] = (probs.clamp(min=1e-300).log(), rows.test.labels)
    unlabeled = scores_of(evidence.unlabeled_scores)
    outputs = Outputs(parts, unlabeled, Gain(torch.ones(classes, dtype=torch.float64)))
    prior = torch.from_numpy(fit.portfolio.prior)
    metrics: dict[str, Any] = {
        "recipe": recipe.name,
        "learner": recipe.learner,
        "method": " + ".join(one.name for one in fit.portfolio.members),
        "members": [{"name": one.name, "balanced_log_loss": one.loss} for one in fit.portfolio.members],
        "left_out": list(fit.portfolio.left_out),
        "objective": str(objective),
        "seed": recipe.seed,
        "seconds": seconds,
        "split_hash": rows.split_hash,
        "class_names": list(rows.class_names),
        "kind": rows.kind,
        "input_shape": list(rows.labeled.inputs[torch.tensor([0])].shape[1:]),
        "labeled_counts": np.bincount(rows.labeled.labels.numpy(), minlength=classes).tolist(),
        "unlabeled_count": len(rows.unlabeled),
        "unlabeled_ratio": len(rows.unlabeled) / len(rows.labeled),
        "multipliers": {},
        "facts": rows.facts,
        "validation": estimated(torch.from_numpy(fitted.unadjusted.counts), objective, fitted.unadjusted),
    }
    if rows.test is not None:
        metrics["test"] = measured(outputs.counts("test"), objective)
    metrics["posthoc"] = describe_rule(fitted, outputs, rows.class_names)
    metrics["posthoc"]["unadjusted"] = {name: summarize_counts(outputs.counts(name), objective) for name in parts}
    small = describe_minimum(fitted.intervals, rows.class_names)
    notes = [*fit.notes, *([small] if small else [])]
    if len(rows.unlabeled):
        metrics["prior"], note = warn_about_balance(fitted.estimate, prior)
        notes += [note] if note else []
    metrics["warnings"] = notes
    return metrics, packed(outputs)
