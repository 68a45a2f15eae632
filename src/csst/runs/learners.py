"""Carry out a recipe whose learner is not a network."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from csst.data.embeddings import Embedder, embed_parts
from csst.data.examples import as_examples, as_rows
from csst.data.input_spec import InputSpec
from csst.data.task import Task
from csst.errors import InputError
from csst.fitting.fit import fit
from csst.fitting.model_file import make_embedder
from csst.models.encoders import encoder
from csst.recipes.recipe import Recipe
from csst.runs.folder import Run


def execute_learners(recipe: Recipe, folder: str | Path, old_run: Run | None) -> dict[str, Any]:
    """Fit the recipe's learners, write the run, and return the content of metrics.json."""
    task = recipe.data.load(recipe.seed, recipe.holds_out)
    task = replace(task, row_hashes=task.hash_rows())
    if recipe.folds:
        task = replace(task.join_validation(), validation=None)
    rows = embed_rows(task, recipe, f"learner {recipe.learner}")
    start = time.perf_counter()
    prior = None if recipe.deployment_prior == "validation" else recipe.deployment_prior
    shape = rows.input_shape if recipe.frozen else task.input_shape
    embed = make_embedder(recipe, rows.kind, rows.facts["encoder"]) if recipe.frozen else None
    inputs = InputSpec(rows.kind, shape, embed=embed, is_embedded=recipe.frozen)
    objective = recipe.bind_objective(rows.class_names)
    model = fit(
        rows,
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


def embed_rows(task: Task, recipe: Recipe, learner: str) -> Task:
    """Return the task as rows of numbers sorted by content, embedded by the recipe's encoder if it has one.

    Args:
        task: examples of any kind.
        recipe: names the encoder.
        learner: who takes the rows, for the error.
    """
    if recipe.frozen:
        model = encoder(recipe.encoder, task.kind, recipe.embedding.max_length)
        task = embed_parts(task, Embedder(model, recipe.embedding))
    elif task.kind == "text":
        raise InputError(f"{learner} takes numbers, and these inputs are texts: add --encoder words --frozen")
    return task.with_inputs(lambda inputs, _: as_examples(as_rows(inputs))).in_content_order()
