"""Extremely randomized trees and a random forest, averaged; their trees as tensors for storing and exporting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.learners.protocol import SMALLEST_PROBABILITY, FittedLearner, as_array
from csst.models.stored import StoredModule

#: trees of each kind
TREES = 200


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
        order = np.concatenate(list_levels(starts, left, right, is_leaf))
        is_leaf = is_leaf[order]
        child = np.arange(len(order))
        child[~is_leaf] = len(trees) + 2 * np.arange(np.sum(~is_leaf))
        return cls(
            feature=np.where(is_leaf, 0, feature[order]),
            threshold=np.where(is_leaf, np.float32(np.inf), round_down(threshold[order])),
            child=child,
            probs=np.concatenate([tree.value[:, 0, :] for tree in trees])[order],
            count=len(trees),
        )

    def forward(self, x: Tensor) -> Tensor:
        # A traced graph holds tensor operations only.
        if torch.compiler.is_compiling() or x.is_cuda:
            return self.walk((x.to_dense() if x.layout is torch.sparse_csr else x).float())
        if not 0 <= int(self.feature.min()) <= int(self.feature.max()) < x.shape[1]:
            raise ValueError(f"trees look at columns that rows of {x.shape[1]} columns do not have")
        rows = as_array(x).astype(np.float32)  # as in scikit-learn
        fractions = np.zeros((x.shape[0], self.probs.shape[1]))
        for tree in self.native_trees:
            fractions += tree.predict(rows).reshape(fractions.shape)
        return torch.from_numpy(fractions / self.count)

    @cached_property
    def native_trees(self) -> list[Any]:
        """The trees as scikit-learn's own: rows walk down them ten times faster than down tensors."""
        left = self.child.numpy()
        right = left + 1
        is_leaf = left == np.arange(len(left))
        trees = [np.concatenate(list_levels(np.array([root]), left, right, is_leaf)) for root in range(self.count)]
        return [self.make_native(order, is_leaf[order]) for order in trees]

    def make_native(self, order: np.ndarray, is_leaf: np.ndarray) -> Any:
        """Return a tree as scikit-learn's, from its nodes level by level."""
        from sklearn.tree._tree import NODE_DTYPE, TREE_LEAF, Tree

        nodes = np.zeros(len(order), dtype=NODE_DTYPE)
        left = 2 * np.cumsum(~is_leaf) - 1  # two nodes for every parent so far, after the root
        nodes["left_child"] = np.where(is_leaf, TREE_LEAF, left)
        nodes["right_child"] = np.where(is_leaf, TREE_LEAF, left + 1)
        nodes["feature"] = self.feature.numpy()[order]
        nodes["threshold"] = self.threshold.numpy()[order]
        values = self.probs.numpy()[order, None, :].astype(np.float64)
        tree = Tree(int(nodes["feature"].max()) + 1, np.array([values.shape[2]]), 1)
        tree.__setstate__({"max_depth": self.depth, "node_count": len(nodes), "nodes": nodes, "values": values})
        return tree

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


def list_levels(roots: np.ndarray, left: np.ndarray, right: np.ndarray, is_leaf: np.ndarray) -> list[np.ndarray]:
    """Return the nodes of trees level by level, siblings side by side; the last level is empty."""
    levels = [roots]
    while len(levels[-1]):
        parents = levels[-1][~is_leaf[levels[-1]]]
        levels.append(np.stack([left[parents], right[parents]], 1).ravel())
    return levels


def measure_depth(child: np.ndarray, count: int) -> int:
    """Return the depth of the deepest tree; raise an error for nodes that are no trees: a walk might not end."""
    places = np.arange(len(child))
    is_leaf = child == places
    inner_children = child[~is_leaf]
    targets = np.sort(np.concatenate([places[:count], inner_children, inner_children + 1]))
    # Every node is a root or the child of a single node before it.
    if count < 1 or (child < places).any() or not np.array_equal(targets, places):
        raise ValueError("the nodes of a forest are no trees")
    return len(list_levels(places[:count], child, child + 1, is_leaf)) - 2


class FittedForest(FittedLearner):
    """The two forests; their log-probabilities are averaged.

    Args:
        forests: their trees.
    """

    forests: Sequence[Trees]

    def forward(self, x: Tensor) -> Tensor:
        logs = [trees(x).clamp(min=SMALLEST_PROBABILITY).log() for trees in self.forests]
        return torch.log_softmax(torch.stack(logs).mean(0), 1)


@dataclass(frozen=True)
class Forest:
    """scikit-learn's extra trees and random forest, 200 trees each."""

    trees: int = TREES
    name: str = "forest"

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedForest:
        from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

        kinds = (ExtraTreesClassifier, RandomForestClassifier)
        forests = [kind(self.trees, random_state=seed).fit(rows, labels) for kind in kinds]
        return FittedForest(forests=[Trees.from_sklearn(forest) for forest in forests])
