"""Can new rows be explained by the labeled classes in another balance?

    H0:  P_new(x) = sum_k pi_k P(x | y = k)    for some pi

Rows are compared by mean features (`csst.estimation.row_features`): v of the N new rows, m_k of the n_k labeled rows of
class k and, where a fit had unlabeled rows that the same classes explain, u of these M rows:

    v = u + sum_k d_k m_k + noise,  sum_k d_k = 0,     cov(noise) = S_v / N + S_u / M + sum_k d_k^2 S_k / n_k
    v =     sum_k pi_k m_k + noise,                    cov(noise) = S_v / N + sum_k pi_k^2 S_k / n_k    without them

d are the changes of the balance, by least squares in units of the noise (with a ridge; Harchaoui, Bach and Moulines,
2008). What they leave over, the residual, is as large as chance would make it under H0, and larger otherwise. Its
squared length in the features of the kernel, and in those of every column, is compared with draws of the noise from
which the balance is taken out in the same way. S_k of few labels is drawn to S_v, which is larger.

No model is asked: that labeled rows are scored out of fold and others are not makes no difference here. A balance that
a model estimates is used only to make the noise larger: least squares on noisy m_k find a change that is too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from csst.estimation.mean_features import Comparison
from csst.estimation.row_features import Projection, RowFeatures

#: chance of an alarm where the classes explain the rows
LEVEL = 0.02
#: with unlabeled rows, the part of it that columns one by one may use up; the kernel has the rest
COLUMNS_SHARE = 0.25
#: draws of the noise
DRAWS = 1000
#: rows that are looked at: labeled ones, unlabeled ones of the fit, new ones
MOST_LABELED, MOST_UNLABELED, MOST_NEW = 2000, 2000, 4000
#: fewest new rows that are tested
FEWEST_ROWS = 20
#: columns and rows that are named
NAMED_COLUMNS, NAMED_ROWS = 5, 10


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
        names: of the columns; None where they have none.
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
            seed: of the choice.

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


@dataclass(frozen=True)
class ColumnShift:
    """A column whose values no balance of the classes explains.

    Args:
        name: of the column, or its number.
        p_value: simultaneous for all columns.
        change: of its mean, in standard deviations, beyond what the balance explains.
    """

    name: str
    p_value: float
    change: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ShiftTest:
    """Whether new rows are explained by the labeled classes in another balance.

    Args:
        p_value: the chance of rows that differ as much, if they were.
        level: below it they are said not to be.
        columns: what is new, the clearest first; empty where nothing is.
        rows: how many were compared.
        labels: with how many labels.
        unlabeled: and with how many unlabeled rows.
        strange_rows: indices of new rows of which there are more than the classes explain, (at most 10,).
        strangeness: of every new row: how much more of its kind there are, (N,).
    """

    p_value: float
    level: float
    columns: tuple[ColumnShift, ...]
    rows: int
    labels: int
    unlabeled: int
    strange_rows: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    strangeness: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def is_explained(self) -> bool:
        """Whether the labeled classes in some balance explain the rows, as far as chance can tell."""
        return self.p_value > self.level

    @property
    def sentence(self) -> str:
        """The result in plain words."""
        if self.is_explained:
            return f"the labeled classes, in some balance, explain the rows (p = {self.p_value:.3g})"
        words = f"no balance of the labeled classes explains the rows (p = {self.p_value:.3g})"
        if self.columns:
            words += f"; new values are in {', '.join(column.name for column in self.columns)}"
        return words

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "p_value": self.p_value,
            "level": self.level,
            "is_explained": self.is_explained,
            "columns": [column.as_dict() for column in self.columns],
            "strange_rows": self.strange_rows.tolist(),
            "sentence": self.sentence,
        }


def measure_shift(
    reference: Reference,
    rows: Any,
    prior: np.ndarray | None = None,
    *,
    level: float = LEVEL,
    seed: int = 0,
) -> ShiftTest:
    """Test whether the classes of a reference explain new rows.

    Args:
        reference: of the fit.
        rows: new ones, (N, D), encoded like those of the fit.
        prior: the class balance of the new rows as a model estimates it, (K,); None for no model.
        level: of the test.
        seed: of the rows that are looked at, and of the draws.
    """
    rng = np.random.default_rng(seed)
    sample = np.sort(rng.permutation(rows.shape[0])[:MOST_NEW])
    new_rows = reference.projection.apply(rows[sample])
    is_identity = reference.projection.is_identity
    has_unlabeled = len(reference.unlabeled) > 0
    learned_rows = np.concatenate([reference.labeled, reference.unlabeled if has_unlabeled else new_rows])
    features = RowFeatures.learn(learned_rows, reference.sizes, is_identity)
    classes = np.unique(reference.labels)
    comparison = Comparison.of_features(
        [features.apply(reference.labeled[reference.labels == k]) for k in classes],
        features.apply(reference.unlabeled) if has_unlabeled else None,
        features.apply(new_rows),
        None if prior is None else (prior - reference.unlabeled_prior if has_unlabeled else prior)[classes],
        features.groups,
    )
    residual = comparison.take_out_balance(comparison.target[None])
    scores, noise_scores = compare_lengths(residual, comparison.draw_noise(DRAWS, rng), features.groups)
    p_kernel = count_above(noise_scores[:, 0], scores[0])
    p_value = p_kernel
    columns: tuple[ColumnShift, ...] = ()
    if is_identity:
        worst_columns = noise_scores[:, 1:].max(1)
        p_columns = [count_above(worst_columns, score) for score in scores[1:]]
        if has_unlabeled:
            # Few labels may lack a rare value of a column by chance, which normal draws of the noise do not show.
            p_value = min(1.0, p_kernel / (1 - COLUMNS_SHARE), min(p_columns) / COLUMNS_SHARE)
        if p_value <= level:
            columns = name_columns(
                reference, measure_changes(comparison.balance, reference, new_rows), p_columns, level
            )
    kernel = features.groups[0]
    strangeness = np.full(rows.shape[0], -np.inf)
    strangeness[sample] = features.apply(new_rows)[:, kernel] @ comparison.whiten(residual)[0][kernel]
    strange_rows = np.argsort(-strangeness, kind="stable")[: min(NAMED_ROWS, len(sample))]
    return ShiftTest(
        p_value,
        level,
        columns,
        len(sample),
        len(reference.labels),
        len(reference.unlabeled),
        strange_rows if p_value <= level else strange_rows[:0],
        strangeness,
    )


def compare_lengths(residual: np.ndarray, noise: np.ndarray, groups: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return how much longer a residual (1, M) is than noise (B, M), by group, (G,), and the same of the noise, (B, G).

    Cube roots of squared lengths, which are almost normal (Wilson and Hilferty, 1931), standardized.
    """
    roots, noise_roots = (
        np.cbrt(np.stack([(rows[:, group] ** 2).sum(1) for group in groups], axis=1)) for rows in (residual, noise)
    )
    center, spread = noise_roots.mean(0), np.maximum(noise_roots.std(0), 1e-12)
    return ((roots - center) / spread)[0], (noise_roots - center) / spread


def name_columns(
    reference: Reference, changes: np.ndarray, p_values: Sequence[float], level: float
) -> tuple[ColumnShift, ...]:
    """Return the columns that are new, the clearest first, from changes (D,) and p-values (D,)."""
    places = sorted(range(len(p_values)), key=lambda place: (p_values[place], -abs(changes[place])))
    return tuple(
        ColumnShift(
            f"column {place}" if reference.names is None else reference.names[place],
            p_values[place],
            float(changes[place]),
        )
        for place in places[:NAMED_COLUMNS]
        if p_values[place] <= level
    )


def count_above(draws: np.ndarray, value: float) -> float:
    """The p-value of a value among draws."""
    return float((1 + (draws >= value).sum()) / (len(draws) + 1))


def measure_changes(balance: np.ndarray, reference: Reference, rows: np.ndarray) -> np.ndarray:
    """Return by how much the mean of every column differs from what the balance explains, in deviations, (D,)."""
    classes = np.unique(reference.labels)
    expected_mean = sum(
        fraction * reference.labeled[reference.labels == k].mean(0, dtype=np.float64)
        for fraction, k in zip(balance, classes, strict=True)
    )
    pool = reference.labeled
    if len(reference.unlabeled):
        expected_mean = expected_mean + reference.unlabeled.mean(0, dtype=np.float64)
        pool = reference.unlabeled
    deviation = pool.std(0, dtype=np.float64)
    return (rows.mean(0, dtype=np.float64) - expected_mean) / np.where(deviation > 0, deviation, 1.0)
