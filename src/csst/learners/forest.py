"""Extremely randomized trees and a random forest, averaged; their trees as tensors for storing and exporting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.learners.protocol import FittedLearner, as_array
from csst.models.stored import StoredModule

#: trees of each kind
TREES = 200
#: class fractions below this count as this: a forest of few trees says 0 too easily
SMALLEST_FRACTION = 1e-4
#: rows that walk down all trees at once
CHUNK = 1024


class Trees(StoredModule):
    """One forest as tensors over the nodes of all trees, level by level: rows (N, D) → mean class fractions (N, K).

    A row with a value above the threshold goes to the node after `child`, any other row to `child`. A leaf is its own
    child with an infinite threshold.

    Args:
        feature: the column that a node looks at, (M,).
        threshold: the largest value that stays left, float32, (M,).
        child: the left child of a node, (M,).
        probs: class fractions of the training rows in a node, (M, K).
        count: number of trees; their roots are the first nodes.
    """

    feature: Tensor
    threshold: Tensor
    child: Tensor
    probs: Tensor
    count: int

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.depth = measure_depth(self.child.numpy(), self.count)

    @classmethod
    def from_sklearn(cls, forest: Any) -> Trees:
        """Copy the trees of a fitted scikit-learn forest, renumbered so that siblings are neighbors."""
        trees = [estimator.tree_ for estimator in forest.estimators_]
        sizes = [tree.node_count for tree in trees]
        starts = np.cumsum([0, *sizes[:-1]])
        left, right = (
            np.concatenate([getattr(tree, name) + start for tree, start in zip(trees, starts, strict=True)])
            for name in ("children_left", "children_right")
        )
        feature = np.concatenate([tree.feature for tree in trees])
        threshold = np.concatenate([tree.threshold for tree in trees])
        is_leaf = feature < 0
        levels = [starts]
        while len(levels[-1]):
            parents = levels[-1][~is_leaf[levels[-1]]]
            levels.append(np.stack([left[parents], right[parents]], 1).ravel())
        order = np.concatenate(levels)
        is_leaf = is_leaf[order]
        child = np.arange(len(order))
        child[~is_leaf] = len(trees) + 2 * np.arange(np.sum(~is_leaf))
        fractions = np.concatenate([tree.value[:, 0, :] for tree in trees])[order]
        return cls(
            feature=np.where(is_leaf, 0, feature[order]),
            threshold=np.where(is_leaf, np.float32(np.inf), round_down(threshold[order])),
            child=child,
            probs=fractions / fractions.sum(1, keepdims=True),
            count=len(trees),
        )

    def forward(self, x: Tensor) -> Tensor:
        values = (x.to_dense() if x.layout is torch.sparse_csr else x).float()  # as in scikit-learn
        if torch.compiler.is_compiling():  # a graph takes all rows at once
            return self.walk(values)
        return torch.cat([self.walk(rows) for rows in values.split(CHUNK)])

    def walk(self, rows: Tensor) -> Tensor:
        """Let all rows walk down all trees, a level at a time."""
        node = torch.arange(self.count, device=rows.device).expand(rows.shape[0], -1)
        for _ in range(self.depth):
            values = rows.gather(1, look_up(self.feature, node))
            node = look_up(self.child, node) + (values > look_up(self.threshold, node))
        return look_up(self.probs, node).mean(1)


def look_up(table: Tensor, places: Tensor) -> Tensor:
    """Return table[places], which is slower."""
    return table.index_select(0, places.flatten()).view(*places.shape, *table.shape[1:])


def round_down(values: np.ndarray) -> np.ndarray:
    """Return the largest float32 that is at most as large; numbers in float32 compare to both alike."""
    rounded = values.astype(np.float32)
    return np.where(rounded > values, np.nextafter(rounded, np.float32(-np.inf)), rounded)


def measure_depth(child: np.ndarray, count: int) -> int:
    """Return the depth of the deepest tree; raise an error for nodes that are no trees: a walk might not end."""
    places = np.arange(len(child))
    is_leaf = child == places
    if not 0 < count <= len(child) or (child < places).any() or (child[~is_leaf] + 2 > len(child)).any():
        raise ValueError("the nodes of a forest are no trees")
    depth = 0
    parents = places[:count][~is_leaf[:count]]
    while len(parents):
        depth += 1
        level = np.unique(np.concatenate([child[parents], child[parents] + 1]))
        parents = level[~is_leaf[level]]
    return depth


class FittedForest(FittedLearner):
    """The two forests; their log-probabilities are averaged.

    Args:
        forests: their trees.
        originals: the fitted forests of scikit-learn, which are faster than their tensors; () after loading.
    """

    forests: Sequence[Trees]

    def __init__(self, forests: Sequence[Trees], originals: tuple[Any, ...] = ()) -> None:
        super().__init__(forests=forests)
        self.originals = originals

    def forward(self, x: Tensor) -> Tensor:
        # A traced graph must neither leave torch nor look at the number of rows.
        if not torch.compiler.is_compiling() and self.originals and len(x):
            rows = as_array(x)
            fractions = [torch.from_numpy(forest.predict_proba(rows)) for forest in self.originals]
        else:
            fractions = [trees(x) for trees in self.forests]
        logs = [values.clamp(min=SMALLEST_FRACTION).log() for values in fractions]
        return torch.log_softmax(torch.stack(logs).mean(0), 1)


@dataclass(frozen=True)
class Forest:
    """scikit-learn's extra trees and random forest, 200 trees each."""

    trees: int = TREES
    name: str = "forest"

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedForest:
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        kinds = (ExtraTreesClassifier, RandomForestClassifier)
        originals = tuple(kind(self.trees, random_state=seed).fit(rows, labels) for kind in kinds)
        return FittedForest([Trees.from_sklearn(forest) for forest in originals], originals)
