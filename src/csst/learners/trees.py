"""The trees of a forest as plain arrays: of every node the column, the threshold, the children, the fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: rows that walk down all trees at once
CHUNK = 512


@dataclass(frozen=True, eq=False)
class Trees:
    """One forest as arrays over all nodes of all trees; a leaf is its own child.

    Args:
        roots: the first node of every tree, (T,).
        feature: the column that a node looks at, (M,).
        threshold: rows at or below it go to the left, (M,).
        left, right: the children, (M,).
        probs: class fractions of the training rows in a node, (M, K).
        depth: of the deepest tree.
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
        parts: dict[str, list[np.ndarray]] = {key: [] for key in ("feature", "threshold", "left", "right", "probs")}
        roots, start, depth = [], 0, 0
        for estimator in forest.estimators_:
            tree = estimator.tree_
            nodes = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            roots.append(start)
            parts["feature"].append(np.where(leaf, 0, tree.feature))
            parts["threshold"].append(tree.threshold)
            parts["left"].append(start + np.where(leaf, nodes, tree.children_left))
            parts["right"].append(start + np.where(leaf, nodes, tree.children_right))
            fractions = tree.value[:, 0, :]
            parts["probs"].append(fractions / fractions.sum(1, keepdims=True))
            start, depth = start + tree.node_count, max(depth, int(tree.max_depth))
        joined = {key: np.concatenate(value) for key, value in parts.items()}
        whole = {key: joined[key].astype(np.int64) for key in ("feature", "left", "right")}
        return cls(
            np.array(roots, dtype=np.int64),
            whole["feature"],
            joined["threshold"],
            whole["left"],
            whole["right"],
            joined["probs"],
            depth,
        )

    def predict_proba(self, rows: Any) -> np.ndarray:
        """The mean of the trees' class fractions, (N, K); rows are float32, as in scikit-learn."""
        dense = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
        values = dense.astype(np.float32)
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
        names = ("roots", "feature", "threshold", "left", "right", "probs")
        return {**{name: getattr(self, name) for name in names}, "depth": np.array([self.depth])}


def read_trees(forest: Any) -> Trees:
    """The trees of a fitted scikit-learn forest, or of one that was stored."""
    return forest if isinstance(forest, Trees) else Trees.from_sklearn(forest)
