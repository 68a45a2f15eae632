"""A recipe whose learner is not a network: fitted in seconds, in a run's folder like any other."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.data.embeddings import Embedder
from csst.data.input_spec import InputSpec
from csst.data.row_hashes import hash_rows
from csst.data.tabular.rows import RowParts, as_rows
from csst.data.task import Labeled, RowTask
from csst.errors import InputError
from csst.fitted import make_embedder
from csst.fitting import fit
from csst.models.encoders import encoder
from csst.recipes.recipe import Recipe, RowSource
from csst.runs.folder import Run


def execute_learners(recipe: Recipe, folder: str | Path, old: Run | None) -> dict[str, Any]:
    """Fit the recipe's learners and write the run; what metrics.json holds."""
    raw = load_rows(recipe)
    rows = embed_rows(raw, recipe) if recipe.frozen else raw
    if not recipe.frozen and rows.kind == "text":
        raise InputError(
            f"learner {recipe.learner} takes numbers, and this task's inputs are texts: add --encoder words --frozen"
        )
    start = time.perf_counter()
    prior = None if recipe.deployment_prior == "validation" else recipe.deployment_prior
    shape = tuple(rows.labeled.inputs[torch.tensor([0])].shape[1:])
    embed = make_embedder(recipe, rows.kind, rows.facts["encoder"]) if recipe.frozen else None
    inputs = InputSpec(rows.kind, shape, embed=embed, is_embedded=recipe.frozen)
    objective = recipe.bind_objective(rows.class_names)
    hashes = hash_parts(raw.labeled.inputs, raw.unlabeled, raw.validation)
    fitted = fit(
        replace(as_parts(rows), row_hashes=hashes),
        recipe.learner,
        objective,
        deployment_prior=prior,
        inputs=inputs,
        seed=recipe.seed,
        certifying=recipe.certifying,
    )
    seconds = time.perf_counter() - start
    run = Run.create(folder, recipe.as_dict()) if old is None else old
    metrics = fitted.save(
        folder,
        recipe=recipe.name,
        seed=recipe.seed,
        seconds=seconds,
        split_hash=rows.split_hash,
        facts=rows.facts,
    )
    run.describe(recipe.as_dict())
    return metrics


def hash_parts(labeled: Any, unlabeled: Any, validation: Labeled | None) -> np.ndarray:
    """Hashes of all raw examples that take part in a fit, (N,)."""
    parts = [labeled, unlabeled, *([] if validation is None else [validation.inputs])]
    return np.concatenate([hash_rows(part) for part in parts])


def load_rows(recipe: Recipe) -> RowTask:
    """The rows of a recipe's data: as the file has them, or with the validation set that its task has."""
    if isinstance(recipe.data, RowSource):
        return recipe.data.load_rows(recipe.seed)
    return RowTask.from_task(recipe.data.load(recipe.seed))


def embed_rows(rows: RowTask, recipe: Recipe) -> RowTask:
    """Every example as a vector of the recipe's frozen encoder."""
    embedder = Embedder(encoder(recipe.encoder, rows.kind, recipe.embedding.max_length), recipe.embedding)

    def part(labeled: Labeled | None, what: str) -> Labeled | None:
        return None if labeled is None else Labeled(embedder(labeled.inputs, what), labeled.labels)

    labeled = part(rows.labeled, "labeled examples")
    assert labeled is not None
    width = as_rows(labeled.inputs).shape[1]
    unlabeled = embedder(rows.unlabeled, "unlabeled examples") if len(rows.unlabeled) else torch.zeros(0, width)
    return replace(
        rows,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=part(rows.validation, "validation examples"),
        test=part(rows.test, "test examples"),
        facts={**rows.facts, "encoder": embedder.fingerprint},
    )


def as_parts(rows: RowTask) -> RowParts:
    """The examples as float32 rows, in the order of their content."""

    def pair(labeled: Labeled) -> tuple[Any, np.ndarray]:
        return as_rows(labeled.inputs), labeled.labels.numpy()

    labeled, labels = pair(rows.labeled)
    parts = RowParts(
        labeled,
        labels,
        as_rows(rows.unlabeled) if len(rows.unlabeled) else labeled[:0],
        None if rows.validation is None else pair(rows.validation),
        rows.class_names,
        [0] * labeled.shape[1],
        None if rows.test is None else pair(rows.test),
    )
    return parts.in_content_order()
