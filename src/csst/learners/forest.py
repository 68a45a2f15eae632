"""Extremely randomized trees and a random forest, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: trees of each kind
TREES = 200
#: class fractions below this count as this: a forest of few trees says 0 too easily
SMALLEST_FRACTION = 1e-4


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
