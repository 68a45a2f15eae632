"""Carry out a recipe whose learner is not a network."""

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
from csst.fitting.fit import fit
from csst.fitting.model_file import make_embedder
from csst.models.encoders import encoder
from csst.recipes.recipe import Recipe, RowSource
from csst.runs.folder import Run


def execute_learners(recipe: Recipe, folder: str | Path, old_run: Run | None) -> dict[str, Any]:
    """Fit the recipe's learners, write the run, and return the content of metrics.json."""
    rows = load_rows(recipe)
    hashes = hash_parts(rows.labeled.inputs, rows.unlabeled, rows.validation)
    if recipe.frozen:
        rows = embed_rows(rows, recipe)
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
    model = fit(
        replace(as_parts(rows), row_hashes=hashes),
        recipe.learner,
        objective,
        deployment_prior=prior,
        inputs=inputs,
        seed=recipe.seed,
        certifying=recipe.certifying,
    )
    seconds = time.perf_counter() - start
    run = Run.create(folder, recipe.as_dict()) if old_run is None else old_run
    metrics = model.save(
        folder,
        recipe=recipe.name,
        seed=recipe.seed,
        seconds=seconds,
        split_hash=rows.split_hash,
        facts=rows.facts,
    )
    run.describe(recipe.as_dict())
    run.write_columns(rows.columns)
    return metrics


def hash_parts(labeled: Any, unlabeled: Any, validation: Labeled | None) -> np.ndarray:
    """Return hashes of all examples of a fit, before any embedding, (N,)."""
    parts = [labeled, unlabeled]
    if validation is not None:
        parts.append(validation.inputs)
    return np.concatenate([hash_rows(part) for part in parts])


def load_rows(recipe: Recipe) -> RowTask:
    """Load the rows of a recipe's data; a source of tasks sets validation examples aside, a source of rows does not."""
    if isinstance(recipe.data, RowSource):
        return recipe.data.load_rows(recipe.seed)
    return RowTask.from_task(recipe.data.load(recipe.seed))


def embed_rows(rows: RowTask, recipe: Recipe) -> RowTask:
    """Replace every example by its vector from the recipe's frozen encoder."""
    embedder = Embedder(encoder(recipe.encoder, rows.kind, recipe.embedding.max_length), recipe.embedding)

    def embed(part: Labeled, what: str) -> Labeled:
        return Labeled(embedder(part.inputs, what), part.labels)

    labeled = embed(rows.labeled, "labeled examples")
    width = as_rows(labeled.inputs).shape[1]
    return replace(
        rows,
        labeled=labeled,
        unlabeled=embedder(rows.unlabeled, "unlabeled examples") if len(rows.unlabeled) else torch.zeros(0, width),
        validation=None if rows.validation is None else embed(rows.validation, "validation examples"),
        test=None if rows.test is None else embed(rows.test, "test examples"),
        facts={**rows.facts, "encoder": embedder.fingerprint},
    )


def as_parts(rows: RowTask) -> RowParts:
    """Return the examples as float32 rows, sorted by their content."""

    def pair(labeled: Labeled) -> tuple[Any, np.ndarray]:
        return as_rows(labeled.inputs), labeled.labels.numpy()

    labeled, labels = pair(rows.labeled)
    parts = RowParts(
        labeled,
        labels,
        as_rows(rows.unlabeled) if len(rows.unlabeled) else labeled[:0],
        None if rows.validation is None else pair(rows.validation),
        rows.class_names,
        [0] * labeled.shape[1] if rows.columns is None else rows.columns.sizes,
        None if rows.test is None else pair(rows.test),
    )
    return parts.in_content_order()
