"""Features of rows whose means tell distributions apart, and these means in units of their noise.

Both serve `csst.estimation.shift_test`.

    phi(x) = ( cos(W z), sin(W z) ) / sqrt(F),   and for every column of numbers   cos(pi q), cos(2 pi q), cos(3 pi q)

q is the place of a value among values of the reference, from 0 to 1, z are these places and indicators of categories,
and W normal frequencies for the median distance of two rows (a Gaussian kernel; Rahimi and Recht, 2007). A column of
categories has their indicators. Rows with many columns are first projected at random. Neither is standardized: a value
that one row in a hundred has would count ten times, and whether a few labels have it is a matter of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import nnls

#: frequencies of the kernel
FREQUENCIES = 128
#: harmonics of a column of numbers
HARMONICS = 3
#: categories of a column with an indicator of their own; the others share one
MOST_INDICATORS = 10
#: rows among which distances are measured
PAIRED_ROWS = 500
#: the ridge of the kernel, in mean variances of its features
RIDGE = 0.5


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
    def learn(
        cls, rows: np.ndarray, sizes: Sequence[int], looks_at_columns: bool = True, new_rows: np.ndarray | None = None
    ) -> RowFeatures:
        """Learn features from reference rows.

        Args:
            rows: (N, D).
            sizes: number of categories of each column, 0 for numbers.
            looks_at_columns: whether columns have features of their own.
            new_rows: rows (N', D) that are to be compared with the reference. Categories are those that are frequent
                in both together: what chance made frequent in the reference alone is rarer in any other rows.

        Returns:
            The features.
        """
        columns = []
        all_rows = rows if new_rows is None else np.concatenate([rows, new_rows])
        for values, all_values, size in zip(rows.T, all_rows.T, sizes, strict=True):
            if size:
                names, counts = np.unique(all_values, return_counts=True)
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


@dataclass(frozen=True, eq=False)
class Comparison:
    """Mean features of new rows against those of a reference, in units of the noise.

    Args:
        target: v - u, or v - mean_k m_k without unlabeled rows, (M,).
        directions: an orthonormal basis of the differences of the m_k, (at most K - 1, M).
        whitening: W, which takes features to units of the noise, (M, M).
        balance: d or pi by least squares, (K,).
        pool: features of all rows without their mean, (R, M).
        weights: weight of every row in v - u - sum_k d_k m_k; the same weights dealt anew make its noise, (R,).
    """

    target: np.ndarray
    directions: np.ndarray
    whitening: np.ndarray
    balance: np.ndarray
    pool: np.ndarray
    weights: np.ndarray

    @classmethod
    def of_features(
        cls,
        labeled: Sequence[np.ndarray],
        unlabeled: np.ndarray | None,
        rows: np.ndarray,
        balance_change: np.ndarray | None,
        groups: Sequence[slice],
    ) -> Comparison:
        """Compare features of labeled rows by class, of unlabeled rows and of new rows, each (N, M)."""
        means = np.stack([class_features.mean(0) for class_features in labeled])
        center = means.mean(0)
        if unlabeled is None:
            other_rows = rows[:0]
            target = rows.mean(0) - center
            balance = fit_simplex(means, rows.mean(0))
        else:
            other_rows = unlabeled
            target = rows.mean(0) - unlabeled.mean(0)
            balance = np.linalg.lstsq((means - center).T, target, rcond=1e-8)[0]
            balance = balance - balance.mean()
        squares = balance**2
        if balance_change is not None:
            changes = np.stack([squares, balance_change**2])
            squares = changes.mean(0) if unlabeled is None else changes.max(0)
        pool = np.concatenate([rows, other_rows, *labeled])
        counts = [len(rows), len(other_rows), *(len(class_features) for class_features in labeled)]
        shares = np.array([1.0, -1.0, *(-np.copysign(np.sqrt(squares), balance))])
        whitening = make_whitening(measure_spread(pool), groups)
        return cls(
            target @ whitening,
            find_directions((means - center) @ whitening),
            whitening,
            balance,
            (pool - pool.mean(0)) @ whitening,
            np.repeat(shares / np.maximum(counts, 1), counts),
        )

    def take_out_balance(self, differences: np.ndarray) -> np.ndarray:
        """Return the part of differences (B, M) that no change of the balance explains, (B, M)."""
        return differences - (differences @ self.directions.T) @ self.directions

    def draw_noise(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Deal differences as chance makes them, without what a change of the balance explains, (number, M)."""
        deals = rng.permuted(np.tile(self.weights.astype(np.float32), (number, 1)), axis=1)
        return self.take_out_balance(deals @ self.pool.astype(np.float32))


def find_directions(means: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of centered means (K, M), (at most K - 1, M)."""
    _, sizes, directions = np.linalg.svd(means, full_matrices=False)
    return directions[sizes > 1e-8 * max(float(sizes[0]), 1e-12)]


def make_whitening(covariance: np.ndarray, groups: Sequence[slice]) -> np.ndarray:
    """Return the matrix that takes features to units of their noise, (M, M).

    (C + ridge)^(-1/2) for the kernel; one number for every column, so that all columns together count as one group.
    """
    matrix = np.zeros_like(covariance)
    kernel = groups[0]
    values, vectors = eigh(covariance[kernel, kernel])
    values = values.clip(min=0)
    matrix[kernel, kernel] = (vectors / np.sqrt(values + RIDGE * values.mean() + 1e-15)) @ vectors.T
    for group in groups[1:]:
        variance = np.trace(covariance[group, group]) / (group.stop - group.start)
        places = np.arange(group.start, group.stop)
        matrix[places, places] = (variance * len(groups) + 1e-12) ** -0.5
    return matrix


def measure_spread(features: np.ndarray) -> np.ndarray:
    """Return the covariance of features (N, M), (M, M)."""
    deviations = features - features.mean(0)
    return deviations.T @ deviations / max(1, len(features) - 1)


def fit_simplex(means: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return fractions pi >= 0, sum_k pi_k = 1, for which sum_k pi_k m_k is nearest to a target (M,); means (K, M)."""
    penalty = 1e3 * max(float(np.abs(means).max()), 1e-9)
    fractions, _ = nnls(np.vstack([means.T, np.full(len(means), penalty)]), np.append(target, penalty))
    return fractions / fractions.sum()
