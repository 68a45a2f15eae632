"""The rows of a fit that new rows are compared with (`csst.estimation.shift_test`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: columns up to which each is looked at; more are projected to so many
MOST_COLUMNS = 64
#: standardized values of rows with many columns are cut at this
FARTHEST = 5.0
#: rows of each kind that are kept
MOST_LABELED = 2000
MOST_UNLABELED = 2000


@dataclass(frozen=True, eq=False)
class Projection:
    """Rows with many columns, projected at random; rows with few stay as they are.

    Args:
        width: D, the columns of a row.
        mean: mean of every column, (D,); empty for rows that stay as they are, and for sparse ones.
        deviation: standard deviation of every column, (D,); empty likewise.
    """

    width: int
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def learn(cls, rows: Any) -> Projection:
        """Measure the columns of rows (N, D), an array or a sparse matrix."""
        width = rows.shape[1]
        if width <= MOST_COLUMNS or not isinstance(rows, np.ndarray):
            return cls(width, np.zeros(0), np.zeros(0))
        deviation = rows.std(0, dtype=np.float64)
        return cls(width, rows.mean(0, dtype=np.float64), np.where(deviation > 0, deviation, 1.0))

    @property
    def is_identity(self) -> bool:
        """Whether rows stay as they are."""
        return self.width <= MOST_COLUMNS

    def apply(self, rows: Any) -> np.ndarray:
        """Return rows (N, D) as float32, (N, D) or (N, MOST_COLUMNS)."""
        if self.is_identity:
            return np.asarray(rows.todense() if hasattr(rows, "todense") else rows, dtype=np.float32)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(self.width, MOST_COLUMNS)) / self.width**0.5
        if len(self.mean):
            dense = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
            rows = np.clip((dense - self.mean) / self.deviation, -FARTHEST, FARTHEST)
        return np.asarray(rows @ signs, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Reference:
    """The rows of a fit that new rows are compared with.

    Args:
        labeled: (n, D), float32, projected if there are many columns.
        labels: their classes, (n,).
        unlabeled: rows without labels that the classes explain, (M, D); M may be 0.
        unlabeled_prior: their class balance as a model estimates it, (K,).
        projection: applies to new rows, too.
        sizes: number of categories of each column, 0 for numbers.
        names: names of the columns; None if they have none.
    """

    labeled: np.ndarray
    labels: np.ndarray
    unlabeled: np.ndarray
    unlabeled_prior: np.ndarray
    projection: Projection
    sizes: tuple[int, ...]
    names: tuple[str, ...] | None = None

    @classmethod
    def sample(
        cls,
        labeled: Any,
        labels: np.ndarray,
        unlabeled: Any,
        unlabeled_prior: np.ndarray,
        sizes: Sequence[int],
        seed: int = 0,
    ) -> Reference:
        """Keep some of the rows of a fit.

        Args:
            labeled: (n, D), an array or a sparse matrix.
            labels: class indices, (n,).
            unlabeled: (M, D), likewise.
            unlabeled_prior: their class balance as a model estimates it, (K,).
            sizes: number of categories of each column, 0 for numbers.
            seed: seed of the choice.

        Returns:
            At most `MOST_LABELED` labeled and `MOST_UNLABELED` unlabeled rows.
        """
        rng = np.random.default_rng(seed)
        part = np.sort(rng.permutation(len(labels))[:MOST_LABELED])
        other_part = np.sort(rng.permutation(unlabeled.shape[0])[:MOST_UNLABELED])
        measured_rows = unlabeled[other_part] if len(other_part) else labeled[part]
        projection = Projection.learn(measured_rows)
        plain_sizes = tuple(sizes) if projection.is_identity else (0,) * projection.apply(measured_rows[:1]).shape[1]
        return cls(
            projection.apply(labeled[part]),
            labels[part],
            projection.apply(unlabeled[other_part]),
            unlabeled_prior,
            projection,
            plain_sizes,
        )

    def with_names(self, names: Sequence[str] | None) -> Reference:
        """Return the same with names of its columns.

        Args:
            names: one for every column; None for none.

        Returns:
            The reference; as it was if its columns were projected.
        """
        if names is None or len(names) != len(self.sizes) or not self.projection.is_identity:
            return self
        return replace(self, names=tuple(names))

    @property
    def without_unlabeled(self) -> Reference:
        """The labeled rows alone."""
        return replace(self, unlabeled=self.unlabeled[:0])
