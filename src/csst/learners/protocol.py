"""What a learner is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from csst.data.tabular.tables import is_sparse

#: probabilities of a learner below this count as this
SMALLEST_PROBABILITY = 1e-6


class FittedLearner(Protocol):
    """A learner that has learned."""

    def log_probs(self, rows: Any) -> np.ndarray:
        """Log-probabilities of every class for new rows, (N, K)."""
        ...


class Learner(Protocol):
    """Learns classes from rows.

    A learner must not take the class balance out by itself: it learns from rows as they are, unweighted, and the class
    prior of its labels is taken out of its log-probabilities later.
    """

    @property
    def name(self) -> str: ...

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedLearner:
        """Learn from rows (n, D) with classes 0 .. K-1, (n,), each at least once; weights say how much a row counts."""
        ...


@dataclass(frozen=True)
class Rows:
    """What is known about the columns of a table before any label is looked at.

    Args:
        mean: of every column, (D,).
        std: of every column, (D,); 1 where a column is constant.
        sizes: number of categories of every column, 0 for numbers.
    """

    mean: np.ndarray
    std: np.ndarray
    sizes: tuple[int, ...]

    def centered_for(self, rows: Any) -> Rows:
        """Return the standardization of a model that is fitted on these rows: sparse ones are scaled, not centered.

        The model keeps it, so that dense rows, sparse rows and exports get the same scores later.
        """
        return replace(self, mean=np.zeros_like(self.mean)) if is_sparse(rows) else self

    @property
    def is_scale_only(self) -> bool:
        """Whether standardizing leaves zeros zero: no mean is taken off, and no column becomes indicators."""
        return not any(self.sizes) and not self.mean.any()

    @property
    def with_common_scale(self) -> Rows:
        """The same with one deviation for all columns of numbers, so that those that vary most count most.

        Columns of embeddings, pixels or word frequencies share their unit, and small ones are mostly noise.
        """
        is_number = np.array([not size for size in self.sizes])
        varies = is_number & (self.std != 1)  # a constant column has no say
        common = float(np.sqrt(np.mean(self.std[varies] ** 2))) if varies.any() else 1.0
        return replace(self, std=np.where(is_number, common, self.std))
