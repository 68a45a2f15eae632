"""A row of a comparison that is no recipe: anything that fits on the same rows, in a run's folder like any other."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.data.tabular.tables import is_sparse
from csst.data.task import RowTask
from csst.errors import InputError
from csst.maths.confusion import confusion_counts
from csst.recipes.recipe import Recipe
from csst.runs.folder import Run
from csst.runs.learners import as_parts, embed_rows
from csst.runs.results import measured
from csst.runs.rows import FitPredictor


def execute_fit(fit: FitPredictor, recipe: Recipe, folder: str | Path) -> dict[str, Any]:
    """Fit on every label of the recipe's task and measure on its test examples; what metrics.json holds."""
    rows = RowTask.from_task(recipe.data.load(recipe.seed))
    if rows.test is None:
        raise InputError(
            f"{recipe.method} learns from every label, so that only a test set can judge it, and there is none: leave "
            "it out, or add test examples"
        )
    if recipe.frozen:
        rows = embed_rows(rows, recipe)
    elif rows.kind == "text":
        raise InputError(f"{recipe.method} takes numbers, and these inputs are texts: add --encoder words --frozen")
    parts = as_parts(rows)
    assert parts.test is not None
    labeled, labels = join(parts.labeled, parts.labels, parts.validation)
    start = time.perf_counter()
    predict = fit(labeled, labels, parts.unlabeled, recipe.objective, recipe.seed)
    seconds = time.perf_counter() - start
    names = rows.class_names
    per_class = np.bincount(labels, minlength=len(names))
    prior = np.bincount(parts.labels, minlength=len(names)) / len(parts.labels)  # of the task, for its head and tail
    objective = recipe.bind_objective(names).bind_prior(torch.from_numpy(prior))
    predicted = np.asarray(predict(parts.test[0]), dtype=np.int64)
    metrics = {
        "method": recipe.method,
        "objective": str(objective),
        "recipe": recipe.name,
        "seed": recipe.seed,
        "seconds": seconds,
        "split_hash": rows.split_hash,
        "class_names": list(names),
        "kind": rows.kind,
        "labeled_counts": per_class.tolist(),
        "unlabeled_count": parts.unlabeled.shape[0],
        "multipliers": {},
        "warnings": [],
        "test": measured(confusion_counts(parts.test[1], predicted, len(names)), objective),
    }
    run = Run.create(folder, recipe.as_dict())
    run.write("metrics.json", json.dumps(metrics, indent=2))
    return metrics


def join(rows: Any, labels: np.ndarray, more: tuple[Any, np.ndarray] | None) -> tuple[Any, np.ndarray]:
    """Labeled rows and those for validation, one below the other."""
    if more is None:
        return rows, labels
    if is_sparse(rows):
        from scipy.sparse import vstack

        return vstack([rows, more[0]]).tocsr(), np.concatenate([labels, more[1]])
    return np.concatenate([rows, more[0]]), np.concatenate([labels, more[1]])
