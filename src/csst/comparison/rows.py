"""The rows of a comparison, each of which fits on the same task: a network, learners, or a function of the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from csst.data.examples import as_rows
from csst.errors import InputError
from csst.fitting.metrics import measure
from csst.learners import LEARNERS
from csst.learners.portfolio import FOLDS
from csst.maths.confusion import confusion_counts
from csst.recipes.recipe import Recipe, with_overrides
from csst.runs.begin import embed_rows
from csst.runs.folder import Run

#: learners that can be a row beside the methods of the network
OTHER_LEARNERS = tuple(name for name in LEARNERS if name != "network")


class FitPredictor(Protocol):
    """A function that learns from rows and returns a predictor, such as a wrapper of a scikit-learn classifier."""

    def __call__(
        self, rows: np.ndarray, labels: np.ndarray, unlabeled: np.ndarray, objective: str, seed: int
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Learn from labeled rows (n, D) and unlabeled rows (m, D); return a function from new rows to classes."""
        ...


class Setting(NamedTuple):
    """The name of the setting that an ablation varies and its value in one row: the x-axis of its curve."""

    name: str
    value: float


@dataclass(frozen=True)
class Row:
    """One row of a comparison: a method for an objective.

    Args:
        label: name of the row in the table.
        method: method of the network; for other rows, the name of the learner or function.
        objective: a sentence or a short name.
        changes: settings of the recipe that differ in this row.
        setting: the setting that an ablation varies.
        learner: network, or another of `csst.learners.LEARNERS`, which learns from all labels of the task, including
            validation labels, and always has a decision rule.
        fit: a function to fit instead; it learns from all labels, too, and only its test numbers are stored.
    """

    label: str
    method: str
    objective: str
    changes: dict[str, Any] = field(default_factory=dict)
    setting: Setting | None = None
    learner: str = "network"
    fit: FitPredictor | None = None

    @property
    def is_network(self) -> bool:
        """Whether a network is trained."""
        return self.learner == "network" and self.fit is None

    def recipe(self, base: Recipe, seed: int, rule: str) -> Recipe:
        """Return the recipe of one run of this row."""
        values = {**self.changes, "objective": self.objective, "seed": seed, "learner": self.learner}
        if self.is_network:
            return with_overrides(base, {**values, "method": self.method, "rule": rule})
        if self.fit is not None:
            return with_overrides(base, {**values, "method": self.method, "rule": "none"})
        recipe = with_overrides(base, {**values, "rule": "none", "folds": FOLDS})
        if recipe.uses_network:
            raise InputError(f"{self.learner} fits no network, and this recipe fine-tunes one: add --frozen")
        return recipe

    @property
    def folder(self) -> str:
        """Name of the folder of its runs, without the seed.

        Characters that are not allowed in folder names become _, and long names are cut; a hash keeps names distinct.
        """
        text = f"{self.label}-{self.objective}"
        name = "".join(letter if letter.isalnum() or letter in "-+.=_" else "_" for letter in text)[:90]
        return name if name == text else f"{name}-{sha256(text.encode()).hexdigest()[:8]}"


def make_rows(
    methods: Sequence[str],
    objectives: Sequence[str],
    changes: dict[str, Any] | None = None,
    fits: dict[str, FitPredictor] | None = None,
) -> list[Row]:
    """Return a row for every method and objective.

    Args:
        methods: names of methods or of learners, or keys of `fits`.
        objectives: sentences or short names.
        changes: settings of the recipe that differ in these rows.
        fits: functions to fit instead of a network, by name.

    Returns:
        The rows, grouped by objective.
    """
    if not methods or not objectives:
        raise InputError("a comparison needs at least one method and one objective")
    fits = fits or {}
    learners = {name: name for name in OTHER_LEARNERS if name not in fits}
    rows = [
        Row(name, name, objective, dict(changes or {}), learner=learners.get(name, "network"), fit=fits.get(name))
        for objective in objectives
        for name in methods
    ]
    if len({row.folder for row in rows}) < len(rows):
        raise InputError(f"a method or objective appears twice: {', '.join(methods)}; {', '.join(objectives)}")
    return rows


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
