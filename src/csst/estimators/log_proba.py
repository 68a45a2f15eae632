"""Log-probabilities, for whatever of scikit-learn asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np


class LogProbaMixin:
    """Adds `predict_log_proba` to a classifier with `predict_proba`."""

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`; minus infinity for a probability of 0.

        Args:
            X: N rows, as in `fit`.

        Returns:
            Log-probabilities, (N, K).
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))  # type: ignore[attr-defined]
