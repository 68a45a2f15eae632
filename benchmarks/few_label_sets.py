"""Long-tailed sets with few labels for the benchmarks: the same rows for every method, rare classes differ by seed.

    split = load("satimage", seed=0, data_dir=Path("..."))

digits, breast cancer and wine come with scikit-learn; satimage, segment, Fashion-MNIST (64 principal components of the
pixels) and CIFAR-10 (EfficientNet features) are read from the data folder. A split has labeled, unlabeled, held-out
validation (25 or 100 per class, of which a benchmark may use fewer) and test rows; they never overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Plan(NamedTuple):
    """Rows of the most frequent class, the imbalance, and validation and test rows per class."""

    labeled: int
    unlabeled: int
    imbalance: float
    validation: int
    test: int


PLANS = {
    "digits": Plan(30, 60, 10, 25, 60),
    "breast_cancer": Plan(30, 100, 5, 25, 60),
    "satimage": Plan(60, 250, 10, 100, 200),
    "segment": Plan(40, 140, 10, 25, 120),
    "fashion": Plan(300, 2400, 100, 100, 500),
    "cifar10_features": Plan(500, 2000, 100, 100, 500),
}


@dataclass(frozen=True)
class Split:
    name: str
    classes: int
    x_labeled: np.ndarray
    y_labeled: np.ndarray
    x_unlabeled: np.ndarray
    y_unlabeled: np.ndarray
    x_validation: np.ndarray
    y_validation: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def prior(self) -> np.ndarray:
        return np.bincount(self.y_labeled, minlength=self.classes) / len(self.y_labeled)

    def validation(self, per_class: int) -> np.ndarray:
        """Indices of the first so many validation rows of every class."""
        return np.concatenate([np.flatnonzero(self.y_validation == c)[:per_class] for c in range(self.classes)])


@lru_cache(maxsize=2)
def read(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """x, y and, where the set has them, test rows of its own."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return *load_digits(return_X_y=True), None, None
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer

        return *load_breast_cancer(return_X_y=True), None, None
    if data_dir is None:
        raise SystemExit(f"{name} is read from a folder: give --data-dir")
    files = {"fashion": "fashion_mnist.npz"}
    with np.load(data_dir / files.get(name, f"{name}.npz")) as stored:
        if "x" in stored:
            return stored["x"].astype(float), stored["y"].astype(int), None, None
        flat = [stored[k].reshape(len(stored[k]), -1).astype(np.float32) for k in ("x_train", "x_test")]
        return flat[0], stored["y_train"].astype(int), flat[1], stored["y_test"].astype(int)


def tail_sizes(head: int, imbalance: float, classes: int) -> np.ndarray:
    """n_r = head imbalance^(-r / (K - 1)), at least 2."""
    return np.maximum(2, np.round(head * imbalance ** (-np.arange(classes) / (classes - 1)))).astype(int)


def load(name: str, seed: int, data_dir: Path | None = None, labeled: int | None = None) -> Split:
    """The split of a seed. labeled: rows of the most frequent class, if not the plan's."""
    plan = PLANS[name]
    x, y, x_held, y_held = read(name, data_dir)
    rng, classes = np.random.default_rng(1000 + seed), int(y.max()) + 1
    size_l = tail_sizes(labeled or plan.labeled, plan.imbalance, classes)
    size_u = tail_sizes(plan.unlabeled, plan.imbalance, classes)
    available = np.bincount(y, minlength=classes)
    taken = 0 if x_held is not None else plan.validation + plan.test
    for _ in range(10_000):  # a rank for every class that has the rows for it
        rank = rng.permutation(classes)
        if (size_l[rank] + size_u[rank] + taken <= available).all():
            break
    else:
        raise SystemExit(f"{name} has too few rows for this plan")
    order = rng.permutation(len(y))
    parts: dict[str, list[np.ndarray]] = {k: [] for k in ("labeled", "unlabeled", "validation", "test")}
    held_order = rng.permutation(len(y_held)) if y_held is not None else None
    for c in range(classes):
        rows = order[y[order] == c]
        if held_order is None:
            ends = np.cumsum([plan.test, plan.validation])
            parts["test"].append(rows[: ends[0]])
            parts["validation"].append(rows[ends[0] : ends[1]])
            rows = rows[ends[1] :]
        else:
            held = held_order[y_held[held_order] == c]
            parts["validation"].append(held[: plan.validation])
            parts["test"].append(held[-plan.test :])
        n, m = size_l[rank[c]], size_u[rank[c]]
        parts["labeled"].append(rows[:n])
        parts["unlabeled"].append(rows[n : n + m])
    index = {k: np.concatenate(v) for k, v in parts.items()}
    index = {k: v if k == "validation" else rng.permutation(v) for k, v in index.items()}
    xs = {k: (x_held if k in ("validation", "test") and x_held is not None else x)[v] for k, v in index.items()}
    ys = {k: (y_held if k in ("validation", "test") and y_held is not None else y)[v] for k, v in index.items()}
    if name == "fashion":
        from sklearn.decomposition import PCA

        pca = PCA(64, random_state=0).fit(np.vstack([xs["labeled"], xs["unlabeled"]]) / 255)
        xs = {k: pca.transform(v / 255) for k, v in xs.items()}
    xs = {k: v.astype(np.float64) for k, v in xs.items()}
    both = [(xs[k], ys[k]) for k in ("labeled", "unlabeled", "validation", "test")]
    return Split(name, classes, *(array for pair in both for array in pair))
