"""Rows of a comparison that fit a function: common baselines, or one of the user."""

from __future__ import annotations

import time
from collections.abc import Callable
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

Predict = Callable[[np.ndarray], np.ndarray]


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


def fit_logistic(rows: Any, labels: np.ndarray, unlabeled: Any, objective: str, seed: int) -> Predict:
    """Fit a balanced logistic regression, which many people would try first."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not hasattr(rows, "tocsr"))
    model = make_pipeline(scaler, LogisticRegression(class_weight="balanced", max_iter=2000))
    return model.fit(rows, labels).predict


def fit_forest(rows: Any, labels: np.ndarray, unlabeled: Any, objective: str, seed: int) -> Predict:
    """Fit a class-weighted random forest, which they would try next."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(300, class_weight="balanced", random_state=seed).fit(rows, labels).predict


#: values of --methods beside the methods of the network and csst's own learners
BASELINES: dict[str, FitPredictor] = {"logistic-regression": fit_logistic, "weighted-forest": fit_forest}
