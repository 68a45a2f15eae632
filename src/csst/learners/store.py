"""A portfolio as plain arrays, and back: no code is run when it is read.

A linear model is its weights; a forest is its trees: for every node the feature, the threshold, the two children and
the class fractions, all trees one after the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from csst.errors import InputError
from csst.learners.forest import FittedForest
from csst.learners.linear import FittedLinear
from csst.learners.portfolio import Member, Portfolio
from csst.learners.protocol import FittedLearner, Rows
from csst.statistics.calibration import Calibration

#: rows that walk down all trees at once
CHUNK = 512
FORMAT = 1


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


def pack(portfolio: Portfolio) -> bytes:
    """The portfolio as a safetensors file; a learner of the user's own is refused."""
    arrays: dict[str, np.ndarray] = {"prior": portfolio.prior}
    members = []
    for number, one in enumerate(portfolio.members):
        mark, model = f"{number}.", one.model
        arrays |= {f"{mark}bias": one.calibration.bias, f"{mark}temperature": np.array([one.calibration.temperature])}
        if isinstance(model, FittedLinear):
            kind = "linear"
            arrays |= {
                f"{mark}weights": model.weights,
                f"{mark}intercept": model.bias,
                f"{mark}mean": model.table.mean,
                f"{mark}std": model.table.std,
                f"{mark}sizes": np.array(model.table.sizes, dtype=np.int64),
            }
        elif isinstance(model, FittedForest):
            kind = "forest"
            for at, forest in enumerate(model.forests):
                trees = forest if isinstance(forest, Trees) else Trees.from_sklearn(forest)
                arrays |= {f"{mark}{at}.{name}": array for name, array in trees.arrays().items()}
        else:
            raise InputError(f"the learner {one.name} cannot be stored without running code: use linear or forest")
        members.append({"name": one.name, "kind": kind, "loss": one.loss})
    about = {"format": FORMAT, "members": members, "left_out": list(portfolio.left_out)}
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(plain, metadata={"csst": json.dumps(about)})


def unpack(content: bytes, what: str) -> Portfolio:
    """A portfolio from what `pack` gave."""
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["csst"])
        arrays = load(content)
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']}, and this csst reads {FORMAT}")
        members = tuple(_member(arrays, number, one) for number, one in enumerate(about["members"]))
        return Portfolio(members, tuple(about["left_out"]), arrays["prior"])
    except Exception as error:  # a damaged file can make its reader raise anything
        raise InputError(f"{what} cannot be read as stored learners: {error}") from None


def _trees(own: dict[str, np.ndarray], at: int) -> Trees:
    names = ("roots", "feature", "threshold", "left", "right", "probs")
    return Trees(**{name: own[f"{at}.{name}"] for name in names}, depth=int(own[f"{at}.depth"][0]))


def _member(arrays: dict[str, np.ndarray], number: int, about: dict[str, Any]) -> Member:
    own = {name[len(f"{number}.") :]: array for name, array in arrays.items() if name.startswith(f"{number}.")}
    model: FittedLearner
    if about["kind"] == "linear":
        table = Rows(own["mean"], own["std"], tuple(own["sizes"].tolist()))
        model = FittedLinear(table, own["weights"], own["intercept"])
    else:
        model = FittedForest(tuple(_trees(own, at) for at in (0, 1)))
    return Member(about["name"], model, Calibration(float(own["temperature"][0]), own["bias"]), float(about["loss"]))
