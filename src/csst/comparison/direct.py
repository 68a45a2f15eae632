"""A row of a comparison that fits a function of the user instead of a recipe."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.comparison.rows import FitPredictor
from csst.data.tabular.tables import stack
from csst.data.task import RowTask
from csst.errors import InputError
from csst.fitting.metrics import measure
from csst.maths.confusion import confusion_counts
from csst.recipes.recipe import Recipe
from csst.runs.folder import Run
from csst.runs.learners import as_parts, embed_rows


def execute_fit(fit: FitPredictor, recipe: Recipe, folder: str | Path) -> dict[str, Any]:
    """Fit on all labels of the recipe's task, measure on its test examples, and return the content of metrics.json."""
    rows = RowTask.from_task(recipe.data.load(recipe.seed))
    if rows.test is None:
        raise InputError(
            f"{recipe.method} learns from all labels, so only a test set can judge it, and there is none: leave it "
            "out, or add test examples"
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
    counts = np.bincount(labels, minlength=len(names))
    # Head and tail come from the labeled examples without validation, as for the other rows of the comparison.
    prior = np.bincount(parts.labels, minlength=len(names)) / len(parts.labels)
    objective = recipe.bind_objective(names).bind_prior(torch.from_numpy(prior))
    predictions = np.asarray(predict(parts.test[0]), dtype=np.int64)
    metrics = {
        "method": recipe.method,
        "objective": str(objective),
        "recipe": recipe.name,
        "seed": recipe.seed,
        "seconds": seconds,
        "split_hash": rows.split_hash,
        "class_names": list(names),
        "kind": rows.kind,
        "labeled_counts": counts.tolist(),
        "unlabeled_count": parts.unlabeled.shape[0],
        "multipliers": {},
        "warnings": [],
        "test": measure(confusion_counts(parts.test[1], predictions, len(names)), objective),
    }
    run = Run.create(folder, recipe.as_dict())
    run.write("metrics.json", json.dumps(metrics, indent=2))
    return metrics


def join(rows: Any, labels: np.ndarray, validation: tuple[Any, np.ndarray] | None) -> tuple[Any, np.ndarray]:
    """Return labeled rows followed by validation rows, and the labels of both."""
    if validation is None:
        return rows, labels
    return stack(rows, validation[0]), np.concatenate([labels, validation[1]])
