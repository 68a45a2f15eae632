"""Rows as features whose means tell distributions apart, for `csst.estimation.shift_test`.

    phi(x) = ( cos(W z), sin(W z) ) / sqrt(F),   and for every column of numbers   cos(pi q), cos(2 pi q), cos(3 pi q)

q is the place of a value among values of the reference, from 0 to 1, z are these places and indicators of categories,
and W normal frequencies for the median distance of two rows (a Gaussian kernel; Rahimi and Recht, 2007). A column of
categories has their indicators. Rows with many columns are first projected at random. Neither is standardized: a value
that one row in a hundred has would count ten times, and whether a few labels have it is a matter of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: columns up to which each is looked at; more are projected to so many
MOST_COLUMNS = 64
#: frequencies of the kernel
FREQUENCIES = 128
#: harmonics of a column of numbers
HARMONICS = 3
#: categories of a column with an indicator of their own; the others share one
MOST_INDICATORS = 10
#: standardized values of rows with many columns are cut at this
FARTHEST = 5.0
#: rows among which distances are measured
PAIRED_ROWS = 500


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
class Column:
    """One column: sorted values of the reference, or the categories that have an indicator."""

    values: np.ndarray
    is_category: bool

    def indicators(self, column: np.ndarray) -> np.ndarray:
        """Return (N, M): which category each value is; the last column stands for all others."""
        is_category = column[:, None] == self.values
        return np.column_stack([is_category, ~is_category.any(1)]).astype(np.float64)

    def inputs(self, column: np.ndarray) -> np.ndarray:
        """Return a column (N,) as inputs of the kernel: places (N, 1), or indicators (N, M)."""
        if self.is_category:
            return self.indicators(column)
        sides = [np.searchsorted(self.values, column, side=side) for side in ("left", "right")]
        return ((sides[0] + sides[1]) / (2 * len(self.values)))[:, None]

    def features(self, inputs: np.ndarray) -> np.ndarray:
        """Return features of one column from its inputs, (N, M)."""
        return inputs if self.is_category else np.cos(np.pi * inputs * np.arange(1, HARMONICS + 1))


@dataclass(frozen=True, eq=False)
class RowFeatures:
    """The features phi of rows, as learned from the reference.

    Args:
        columns: one for every column.
        frequencies: W, (E, F).
        looks_at_columns: whether columns have features of their own.
    """

    columns: tuple[Column, ...]
    frequencies: np.ndarray
    looks_at_columns: bool

    @classmethod
    def learn(cls, rows: np.ndarray, sizes: Sequence[int], looks_at_columns: bool = True) -> RowFeatures:
        """Learn features from reference rows (N, D), whose columns have these numbers of categories, 0 for numbers."""
        columns = []
        for values, size in zip(rows.T, sizes, strict=True):
            if size:
                names, counts = np.unique(values, return_counts=True)
                columns.append(Column(names[np.argsort(-counts, kind="stable")][:MOST_INDICATORS], True))
            else:
                columns.append(Column(np.sort(values), False))
        rng = np.random.default_rng(0)
        sample = rows[rng.permutation(len(rows))[:PAIRED_ROWS]]
        inputs = np.concatenate(
            [column.inputs(values) for column, values in zip(columns, sample.T, strict=True)], axis=1
        )
        squares = (inputs**2).sum(1)
        distances = squares[:, None] + squares - 2 * inputs @ inputs.T
        typical = np.median(distances[np.triu_indices(len(inputs), 1)]) if len(inputs) > 1 else 1.0
        frequencies = rng.normal(size=(inputs.shape[1], FREQUENCIES)) / max(float(typical), 1e-9) ** 0.5
        return cls(tuple(columns), frequencies, looks_at_columns)

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return phi of rows (N, D), (N, M): features of the kernel, then of every column."""
        inputs = self._inputs(rows)
        angles = np.concatenate(inputs, axis=1) @ self.frequencies
        blocks = [np.cos(angles) / FREQUENCIES**0.5, np.sin(angles) / FREQUENCIES**0.5]
        if self.looks_at_columns:
            blocks += [column.features(values) for column, values in zip(self.columns, inputs, strict=True)]
        return np.concatenate(blocks, axis=1)

    def _inputs(self, rows: np.ndarray) -> list[np.ndarray]:
        return [column.inputs(values) for column, values in zip(self.columns, rows.T, strict=True)]

    @property
    def groups(self) -> list[slice]:
        """The features that belong together: of the kernel, then of every column."""
        groups = [slice(0, 2 * FREQUENCIES)]
        if self.looks_at_columns:
            for column in self.columns:
                width = len(column.values) + 1 if column.is_category else HARMONICS
                groups.append(slice(groups[-1].stop, groups[-1].stop + width))
        return groups
