"""Any scikit-learn classifier as a learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.learners.protocol import SMALLEST_PROBABILITY, FittedLearner, Learner, as_array


class FittedClassifier(FittedLearner):
    """A fitted scikit-learn classifier, which can be used but neither stored nor exported."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        probs = np.maximum(self.classifier.predict_proba(as_array(x)), SMALLEST_PROBABILITY)
        return torch.from_numpy(np.log(probs / probs.sum(1, keepdims=True)))

    def describe_parts(self) -> dict[str, Any]:
        raise InputError(
            f"the learner {type(self.classifier).__name__} can be neither stored nor exported, which would take its "
            "code: use csst's own learners, or one of yours whose fit returns a csst.learners.FittedLearner"
        )


@dataclass(frozen=True, eq=False)
class SklearnLearner:
    """A scikit-learn classifier with `predict_proba`, cloned for every fit."""

    classifier: Any

    @property
    def name(self) -> str:
        return type(self.classifier).__name__

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedClassifier:
        from sklearn.base import clone

        classifier = clone(self.classifier)
        parameters = classifier.get_params()
        seeds = {name: seed for name in parameters if name.endswith("random_state") and parameters[name] is None}
        return FittedClassifier(classifier.set_params(**seeds).fit(rows, labels))


def as_learner(entry: Any) -> Learner:
    """Return a learner as it is, and a scikit-learn classifier as a learner; raise an error for anything else."""
    if isinstance(entry, type):
        raise InputError(f"a learner is an object and not its class: write {entry.__name__}()")
    if hasattr(entry, "fit") and hasattr(entry, "predict_proba"):
        return SklearnLearner(entry)
    if isinstance(entry, Learner):
        return entry
    raise InputError(
        f"a learner is a name, a scikit-learn classifier with predict_proba or a csst.learners.Learner; found "
        f"{type(entry).__name__}: wrap a classifier in CalibratedClassifierCV"
    )
