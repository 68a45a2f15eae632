"""A row of a comparison that fits a function of the user instead of a recipe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.comparison.rows import FitPredictor
from csst.data.examples import as_rows
from csst.errors import InputError
from csst.fitting.metrics import measure
from csst.maths.confusion import confusion_counts
from csst.recipes.recipe import Recipe
from csst.runs.begin import embed_rows
from csst.runs.folder import Run


def execute_fit(fit: FitPredictor, recipe: Recipe, folder: str | Path) -> dict[str, Any]:
    """Fit on all labels of the recipe's task, measure on its test examples, and return the content of metrics.json."""
    task = recipe.data.load(recipe.seed)
    if task.test is None:
        raise InputError(
            f"{recipe.method} learns from all labels, so only a test set can judge it, and there is none: leave it "
            "out, or add test examples"
        )
    rows = embed_rows(task, recipe, recipe.method)
    labeled = rows.join_validation().labeled
    labels = labeled.labels.numpy()
    test = rows.require("test")
    start = time.perf_counter()
    predict = fit(as_rows(labeled.inputs), labels, as_rows(rows.unlabeled), recipe.objective, recipe.seed)
    seconds = time.perf_counter() - start
    names = rows.class_names
    counts = np.bincount(labels, minlength=len(names))
    # Head and tail come from the labeled examples without validation, as for the other rows of the comparison.
    objective = recipe.bind_objective(names).bind_prior(rows.train_prior)
    predictions = torch.from_numpy(np.asarray(predict(as_rows(test.inputs)), dtype=np.int64))
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
        "unlabeled_count": len(rows.unlabeled),
        "multipliers": {},
        "warnings": [],
        "test": measure(confusion_counts(test.labels, predictions, len(names)), objective),
    }
    run = Run.create(folder, recipe.as_dict())
    run.write_metrics(metrics)
    return metrics
