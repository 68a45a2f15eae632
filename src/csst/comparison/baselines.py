"""Common baselines as rows of a comparison; each learns from the validation labels, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from csst.comparison.rows import FitPredictor

Predict = Callable[[np.ndarray], np.ndarray]


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
