"""Any scikit-learn classifier as a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.learners.protocol import SMALLEST_PROBABILITY


@dataclass(frozen=True, eq=False)
class FittedWrapped:
    """A fitted scikit-learn classifier."""

    model: Any

    def log_probs(self, rows: Any) -> np.ndarray:
        probs = np.maximum(self.model.predict_proba(rows), SMALLEST_PROBABILITY)
        return np.log(probs / probs.sum(1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Wrapped:
    """A scikit-learn classifier with `predict_proba`, cloned for every fit."""

    model: Any

    @property
    def name(self) -> str:
        return type(self.model).__name__

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedWrapped:
        from sklearn.base import clone

        model = clone(self.model)
        parameters = model.get_params()
        seeds = {name: seed for name in parameters if name.endswith("random_state") and parameters[name] is None}
        model.set_params(**seeds)
        # A classifier that takes no weights can still be fitted without them.
        return FittedWrapped(model.fit(rows, labels) if weights is None else model.fit(rows, labels, weights))


def wrap(model: Any) -> Wrapped:
    """Return a scikit-learn classifier as a learner; raise an error for anything else."""
    if isinstance(model, type):
        raise InputError(f"a learner is a classifier and not its class: write {model.__name__}()")
    if not hasattr(model, "fit") or not hasattr(model, "predict_proba"):
        raise InputError(
            f"a learner is a name or a scikit-learn classifier with predict_proba; found {type(model).__name__}: wrap "
            "it in CalibratedClassifierCV"
        )
    return Wrapped(model)
