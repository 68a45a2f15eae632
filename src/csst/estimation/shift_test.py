"""Can new rows be explained by the labeled classes in another balance?

    H0:  P_new(x) = sum_k pi_k P(x | y = k)    for some pi

Rows are compared by mean features (`csst.estimation.row_features`): v of the N new rows, m_k of the n_k labeled rows of
class k and, where a fit had unlabeled rows that the same classes explain, u of these M rows:

    v = u + sum_k d_k m_k + noise,  sum_k d_k = 0,     cov(noise) = S_v / N + S_u / M + sum_k d_k^2 S_k / n_k
    v =     sum_k pi_k m_k + noise,                    cov(noise) = S_v / N + sum_k pi_k^2 S_k / n_k    without them

d are the changes of the balance, by least squares. What they leave over, the residual, is as large as chance would make
it under H0, and larger otherwise. Its squared length in the features of the kernel, in units of the noise (with a
ridge; Harchaoui, Bach and Moulines, 2008), and in those of every column, is compared with draws of the noise from which
the balance is taken out in the same way. With unlabeled rows the noise of v - u is that of new and unlabeled rows dealt
anew into N and M, a permutation test: a normal noise with the covariance of few rows lacks the directions that these do
not show, and alarmed in every second case with 100 unlabeled rows. That of the m_k is normal. S_k of few labels is
drawn to that of all rows, which is larger. What a forest tells unlabeled from new rows by is looked at as well
(`csst.estimation.novelty`): few labels do not hide it.

No model is asked: that labeled rows are scored out of fold and others are not makes no difference here. A balance that
a model estimates is used only to make the noise larger: least squares on noisy m_k find a change that is too small, the
more so for a rare class beside one that looks like it. Against labels alone, where S_v stands for all S_k and makes the
noise too large, the mean of both covariances is taken.

A fit leans on its unlabeled rows only if its labels explain them: rates and rules weigh these rows by their calibrated
posteriors, which are right where the labeled classes, in some balance, explain the rows. That is tested against the
labels alone (`compare_unlabeled`). Where it is not so, the unlabeled rows are left out of the evidence
(`lean_on_labels`): the balance, the rates and the rule are then those of the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.novelty import Novelty, measure_novelty
from csst.estimation.reference import Reference
from csst.estimation.row_features import Comparison, RowFeatures

#: chance of an alarm where the classes explain the rows
LEVEL = 0.04
#: chance of leaving out unlabeled rows of a fit that the classes explain
FIT_LEVEL = 0.01
#: with unlabeled rows, the parts of it that columns one by one and the forest may use up; the kernel has the rest
COLUMNS_SHARE = 0.1
NOVELTY_SHARE = 0.55
#: draws of the noise
DRAWS = 1000
#: new rows that are looked at
MOST_NEW = 4000
#: fewest new rows that are tested
FEWEST_ROWS = 20
#: fewest unlabeled rows of a fit that are tested against labels alone: fewer say little
FEWEST_ALONE = 100
#: fewest unlabeled rows, and fewest new ones, that a forest tells apart
FEWEST_IN_FOREST = 100
#: rows of the fit from which on rows are compared without categories of a single one: of fewer, it is a matter of luck
MANY_ROWS = 100
#: squared lengths, in units of the noise of a row, that are rounding
SMALLEST_LENGTH = 1e-12
#: columns and rows that are named
NAMED_COLUMNS = 5
NAMED_ROWS = 10


@dataclass(frozen=True)
class ColumnShift:
    """A column whose values no balance of the classes explains.

    Args:
        name: name of the column, or its number.
        p_value: simultaneous for all columns.
        change: change of its mean beyond what the balance explains, in standard deviations.
    """

    name: str
    p_value: float
    change: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class ShiftTest:
    """Whether new rows are explained by the labeled classes in another balance.

    Args:
        p_value: the chance of rows that differ as much, if they were.
        level: below it they are said not to be.
        columns: what is new, the clearest first; empty where nothing is.
        strange_rows: indices of new rows of which there are more than the classes explain, (at most 10,).
        strangeness: how much more of its kind there are than the classes explain, for every new row, (N,).
    """

    p_value: float
    level: float
    columns: tuple[ColumnShift, ...]
    strange_rows: np.ndarray
    strangeness: np.ndarray

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
        """Return plain values for JSON."""
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
    level: float = LEVEL,
) -> ShiftTest:
    """Test whether the classes of a reference explain new rows.

    Args:
        reference: rows of the fit.
        rows: new rows, (N, D), encoded like the rows of the fit.
        prior: the class balance of the new rows as a model estimates it, (K,); None for no model.
        level: level of the test.
    """
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(rows.shape[0])[:MOST_NEW])
    new_rows = reference.projection.apply(rows[sample])
    is_identity = reference.projection.is_identity
    has_unlabeled = len(reference.unlabeled) > 0
    if len(reference.labels) + len(reference.unlabeled) >= MANY_ROWS:
        reference, new_rows = hide_single_categories(reference, new_rows)
    learned_rows = np.concatenate([reference.labeled, reference.unlabeled if has_unlabeled else new_rows])
    features = RowFeatures.learn(learned_rows, reference.sizes, is_identity, new_rows if has_unlabeled else None)
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
    worst_columns = noise_scores[:, 1:].max(1, initial=-np.inf)
    p_columns = [count_above(worst_columns, score) for score in scores[1:]]
    novelty = find_novelty(reference, new_rows, prior)
    # Few labels may lack a rare value of a column by chance, which normal draws of the noise do not show.
    p_value = combine(p_kernel, p_columns if has_unlabeled else [], novelty)
    kernel = features.groups[0]
    strangeness = np.full(rows.shape[0], -np.inf)
    strangeness[sample] = features.apply(new_rows)[:, kernel] @ (residual @ comparison.whitening)[0][kernel]
    if novelty is not None and p_value == novelty.p_value / NOVELTY_SHARE:
        strangeness[sample] = novelty.shares
    strange_rows = np.argsort(-strangeness, kind="stable")[: min(NAMED_ROWS, len(sample))]
    columns: tuple[ColumnShift, ...] = ()
    if p_value <= level:
        columns = name_columns(reference, measure_changes(comparison.balance, reference, new_rows), p_columns, level)
    return ShiftTest(p_value, level, columns, strange_rows if p_value <= level else strange_rows[:0], strangeness)


def hide_single_categories(reference: Reference, rows: np.ndarray) -> tuple[Reference, np.ndarray]:
    """Return a reference and rows (N, D) in which categories that no other row of the reference has are unknown, -1.

    A new row may have a category that rows of the fit happen not to have, always one of an ID. Whether a row of the fit
    has one that the others do not have is a matter of the same chance, so that both kinds of rows are as often unknown.
    """
    fit_rows = np.concatenate([reference.labeled, reference.unlabeled])
    rows = rows.copy()
    for place, size in enumerate(reference.sizes):
        if size:
            values, codes, counts = np.unique(fit_rows[:, place], return_inverse=True, return_counts=True)
            rows[~np.isin(rows[:, place], values), place] = -1
            fit_rows[counts[codes] == 1, place] = -1
    labeled, unlabeled = np.split(fit_rows, [len(reference.labeled)])
    return replace(reference, labeled=labeled, unlabeled=unlabeled), rows


def find_novelty(reference: Reference, rows: np.ndarray, prior: np.ndarray | None) -> Novelty | None:
    """Return what rows (N, D) of a balance (K,) have that unlabeled rows have not; None for few rows or no model."""
    if prior is None or min(len(reference.unlabeled), len(rows)) < FEWEST_IN_FOREST:
        return None
    change = prior - reference.unlabeled_prior
    return measure_novelty(reference.labeled, reference.labels, reference.unlabeled, rows, change)


def combine(p_kernel: float, p_columns: Sequence[float], novelty: Novelty | None) -> float:
    """Return one p-value of up to three tests, each with its part of the level (Bonferroni)."""
    shares = []
    if p_columns:
        shares.append((min(p_columns), COLUMNS_SHARE))
    if novelty is not None:
        shares.append((novelty.p_value, NOVELTY_SHARE))
    shares.append((p_kernel, 1 - sum(share for _, share in shares)))
    return min(1.0, *(p_value / share for p_value, share in shares))


def compare_lengths(residual: np.ndarray, noise: np.ndarray, groups: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return how much longer a residual (1, M) is than noise (B, M), by group, (G,), and the same of the noise, (B, G).

    Cube roots of squared lengths, which are almost normal (Wilson and Hilferty, 1931), standardized.
    """
    roots, noise_roots = (
        np.cbrt(np.maximum(np.stack([(rows[:, group] ** 2).sum(1) for group in groups], axis=1), SMALLEST_LENGTH))
        for rows in (residual, noise)
    )
    center = noise_roots.mean(0)
    spread = np.maximum(noise_roots.std(0), 1e-12)
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
    """Return the p-value of a value among draws."""
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


def compare_unlabeled(reference: Reference, rows: Any) -> ShiftTest | None:
    """Test whether the labeled classes explain unlabeled rows.

    Args:
        reference: the rows of the fit.
        rows: its unlabeled rows, (N, D), an array or a sparse matrix.

    Returns:
        The test; None if the rows are too few to be tested.
    """
    if rows.shape[0] < FEWEST_ALONE:
        return None
    return measure_shift(reference.without_unlabeled, rows, reference.unlabeled_prior, level=FIT_LEVEL)


def lean_on_labels(evidence: HeldOutScores, test: ShiftTest) -> HeldOutScores:
    """Leave unlabeled rows out that the labeled classes do not explain.

    Args:
        evidence: scores of labeled and unlabeled rows.
        test: test that says so.

    Returns:
        The evidence of the labels alone, calibrated as before, with a sentence that says why.
    """
    where = f", new values being in {', '.join(column.name for column in test.columns)}" if test.columns else ""
    doubt = (
        f"no balance of the labeled classes explains the unlabeled rows (p = {test.p_value:.3g}{where}): the rule and "
        "what to expect of it are from the labels alone, and hold for rows like these; label some of the others"
    )
    no_scores = np.zeros((0, evidence.classes))
    return replace(evidence, unlabeled_scores=no_scores, start=evidence.calibration, doubt=doubt)
