"""Extremely randomized trees and a random forest, averaged; their trees as plain arrays for storing and exporting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

#: trees of each kind
TREES = 200
#: class fractions below this count as this: a forest of few trees says 0 too easily
SMALLEST_FRACTION = 1e-4
#: rows that walk down all trees at once
CHUNK = 512
#: names of the arrays of a forest
ARRAYS = ("roots", "feature", "threshold", "left", "right", "probs")


@dataclass(frozen=True, eq=False)
class FittedForest:
    """The two forests; their log-probabilities are averaged."""

    forests: tuple[Any, ...]

    def log_probs(self, rows: Any) -> np.ndarray:
        logs = [np.log(np.maximum(forest.predict_proba(rows), SMALLEST_FRACTION)) for forest in self.forests]
        mean = np.mean(logs, axis=0)
        return mean - np.log(np.exp(mean).sum(1, keepdims=True))


@dataclass(frozen=True)
class Forest:
    """scikit-learn's extra trees and random forest, 200 trees each."""

    trees: int = TREES
    name: str = "forest"

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedForest:
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        forests = [kind(self.trees, random_state=seed) for kind in (ExtraTreesClassifier, RandomForestClassifier)]
        return FittedForest(tuple(forest.fit(rows, labels, sample_weight=weights) for forest in forests))


@dataclass(frozen=True, eq=False)
class Trees:
    """One forest as arrays over all nodes of all trees; a leaf is its own child.

    Args:
        roots: the first node of every tree, (T,).
        feature: the column that a node looks at, (M,).
        threshold: rows at or below it go to the left, (M,).
        left, right: the children, (M,).
        probs: class fractions of the training rows in a node, (M, K).
        depth: depth of the deepest tree.
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    probs: np.ndarray
    depth: int

    @classmethod
    def from_sklearn(cls, forest: Any) -> Trees:
        """Copy the arrays of a fitted scikit-learn forest."""
        pieces: dict[str, list[Any]] = {name: [] for name in ARRAYS}
        start = 0
        for estimator in forest.estimators_:
            tree = estimator.tree_
            nodes = np.arange(tree.node_count)
            is_leaf = tree.children_left < 0
            fractions = tree.value[:, 0, :]
            pieces["roots"].append([start])
            pieces["feature"].append(np.where(is_leaf, 0, tree.feature))
            pieces["threshold"].append(tree.threshold)
            pieces["left"].append(start + np.where(is_leaf, nodes, tree.children_left))
            pieces["right"].append(start + np.where(is_leaf, nodes, tree.children_right))
            pieces["probs"].append(fractions / fractions.sum(1, keepdims=True))
            start += tree.node_count
        arrays = {name: np.concatenate(values) for name, values in pieces.items()}
        for name in ("roots", "feature", "left", "right"):
            arrays[name] = arrays[name].astype(np.int64)
        return cls(**arrays, depth=max(int(estimator.tree_.max_depth) for estimator in forest.estimators_))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str) -> Trees:
        """Read a forest from stored arrays whose names have this prefix, see `arrays`."""
        values = {name: arrays[prefix + name] for name in ARRAYS}
        return cls(**values, depth=int(arrays[f"{prefix}depth"][0]))

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Return the mean class fractions of the trees, (N, K); rows become float32, as in scikit-learn."""
        values = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
        values = values.astype(np.float32)
        pieces = [self._walk(values[start : start + CHUNK]) for start in range(0, len(values), CHUNK)]
        return np.concatenate(pieces) if pieces else np.zeros((0, self.probs.shape[1]))

    def _walk(self, rows: np.ndarray) -> np.ndarray:
        place = np.repeat(np.arange(len(rows))[:, None], len(self.roots), axis=1)
        node = np.repeat(self.roots[None], len(rows), axis=0)
        for _ in range(self.depth):
            goes_left = rows[place, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return self.probs[node].mean(1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all arrays by name, with the depth as an array."""
        return {**{name: getattr(self, name) for name in ARRAYS}, "depth": np.array([self.depth])}


def read_trees(forest: Any) -> Trees:
    """Return the trees of a fitted scikit-learn forest; trees read from a file are returned unchanged."""
    return forest if isinstance(forest, Trees) else Trees.from_sklearn(forest)
