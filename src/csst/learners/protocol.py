"""The interface of learners, and the standardization of columns that they share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from csst.data.tabular.tables import is_sparse

#: probabilities of a scikit-learn classifier below this count as this
SMALLEST_PROBABILITY = 1e-6


class FittedLearner(Protocol):
    """A learner that has learned."""

    def log_probs(self, rows: Any) -> np.ndarray:
        """Return log-probabilities of all classes for new rows, (N, K)."""
        ...


class Learner(Protocol):
    """Learns classes from rows.

    A learner must not correct for the class prior: it learns from unweighted rows, and the class prior of its labels is
    subtracted from its log-probabilities later.
    """

    @property
    def name(self) -> str: ...

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedLearner:
        """Learn from rows (n, D), classes 0 .. K-1 (n,), each at least once, and weights of the rows, (n,)."""
        ...


@dataclass(frozen=True)
class Rows:
    """The standardization of the columns of a table, measured without labels.

    Args:
        mean: mean of each column, (D,).
        std: deviation of each column, (D,); 1 for a constant column.
        sizes: number of categories of each column, 0 for numbers.
    """

    mean: np.ndarray
    std: np.ndarray
    sizes: tuple[int, ...]

    def centered_for(self, rows: Any) -> Rows:
        """Return the standardization for a model fitted on these rows: sparse rows are scaled but not centered.

        The model stores it, so that dense rows, sparse rows and exports get the same scores later.
        """
        return replace(self, mean=np.zeros_like(self.mean)) if is_sparse(rows) else self

    @property
    def is_scale_only(self) -> bool:
        """Whether standardizing leaves zeros zero: no mean is subtracted, and no column becomes indicators."""
        return not any(self.sizes) and not self.mean.any()

    @property
    def with_common_scale(self) -> Rows:
        """The standardization with one deviation for all columns of numbers, so that columns that vary most count most.

        Columns of embeddings, pixels or word frequencies share their unit; columns that vary little are mostly noise.
        """
        is_number = np.array([not size for size in self.sizes])
        varies = is_number & (self.std != 1)  # constant columns do not count
        deviation = float(np.sqrt(np.mean(self.std[varies] ** 2))) if varies.any() else 1.0
        return replace(self, std=np.where(is_number, deviation, self.std))
