"""Small problems for the estimator's tests, and the quickest settings that still learn them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np

from csst import CSSTClassifier
from csst.estimators.settings import EstimatorSettings

QUICK = {"steps": 20, "steps_per_update": 10, "hidden": 16, "depth": 1, "lr": 0.1, "ema": 0.6}
QUICK |= {"scale": "column", "folds": 2}
# The tests are about training: the linear model that it might return to is tested in learners/test_linear_start.py.
QUICK |= {"start": "random"}
GROUPS = {
    setting.name: group.name
    for group in fields(EstimatorSettings)
    if group.name != "embedding" and is_dataclass(getattr(EstimatorSettings(), group.name))
    for setting in fields(getattr(EstimatorSettings(), group.name))
}
GROUPS["cache"] = "embedding"
SINGLE = [each.name for each in fields(EstimatorSettings) if each.name not in GROUPS.values()]


def nest(**single) -> dict:
    """Single settings in their groups: steps=40 becomes {"training": {"steps": 40}}."""
    nested: dict = {name: value for name, value in single.items() if name in SINGLE}
    for name in single.keys() - nested.keys():
        nested.setdefault(GROUPS[name], {})[name] = single[name]
    return nested


def quick(objective="max min(recall)", method="csst", **more) -> CSSTClassifier:
    """The network, trained for a moment; single settings may be named as such."""
    single = {**QUICK, **{name: value for name, value in more.items() if name in GROUPS or name in SINGLE}}
    others = {name: value for name, value in more.items() if name not in GROUPS and name not in SINGLE}
    return CSSTClassifier(
        objective, method=method, settings=nest(**single), **{"learner": "network", "validation": 0.2, **others}
    )


def blobs(rows: int = 240, features: int = 6, classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated classes: class c is far out along feature c."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    X = rng.normal(size=(rows, features))
    X[np.arange(rows), y] += 5.0
    return X.astype(np.float32), y


def hidden(y: np.ndarray, every: int = 2, mark=-1) -> np.ndarray:
    """Some labels taken away: of each class, those of every second row."""
    out = y.astype(object) if mark is None or y.dtype.kind in "US" else y.copy()
    out[(np.arange(len(y)) // len(set(y.tolist()))) % every == 1] = mark
    return out
