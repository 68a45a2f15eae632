"""What new rows have that the unlabeled rows of a fit have not, as a forest finds it: a new class, or a value alone.

New and unlabeled rows are dealt into two halves. A forest learns to tell one kind from the other on one half, and says
of every row of the other half, and of every labeled row, how new it looks, a(x). Then

    s(x) = q(x)^r,      q(x): place of a(x) among those of the unlabeled rows of the half

has the mean v on its N new rows, u on its M unlabeled rows and m_k on the n_k labeled rows of class k. The forest finds
a change of the balance, too, so the change d that a model estimates is taken out:

    z = (v - u - sum_k d_k m_k) / sqrt(S_v / N + S_u / M + sum_k d_k^2 S_k / n_k)

is about standard normal where only the balance has changed. Numerators and squared errors of both halves are averaged.
Both see the same labeled rows, and each has a forest of the other's rows, so the squared error of their mean is
MEAN_VARIANCE of one half's instead of half of it (measured on ten sets without a shift). A high power r looks at the
upper end, where rows of a new class are, and little at a change of the balance that a model does not know well. It is
10, and less where a half has few rows: at least 20 of them count at the upper end, as otherwise z is not normal. S_k of
few labels is drawn to S_u.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesClassifier

#: the power of a place
POWER = 10.0
#: how many rows of a half are at least to be at the upper end, where the power counts
UPPER_ROWS = 20
#: trees of a forest
TREES = 50
#: fewest rows of a leaf
LEAF = 5
#: variance of the mean of both halves, as a part of one half's
MEAN_VARIANCE = 0.75
#: rows' worth of S_u in S_k
PSEUDO_ROWS = 10.0
#: smaller p-values are said to be this one: the noise is normal only where it is not extreme
SMALLEST_P = 1e-3


@dataclass(frozen=True, eq=False)
class Novelty:
    """Whether new rows have something that a change of the balance does not explain.

    Args:
        p_value: the chance of rows that differ as much, if it did.
        shares: how new every new row looks to the forest that has not seen it, (N,).
    """

    p_value: float
    shares: np.ndarray


def measure_novelty(
    labeled: np.ndarray, labels: np.ndarray, unlabeled: np.ndarray, rows: np.ndarray, change: np.ndarray
) -> Novelty:
    """Test whether a forest tells new rows from unlabeled ones by more than a change of the balance.

    Args:
        labeled: labeled rows, (n, E).
        labels: their classes, (n,).
        unlabeled: unlabeled rows of the fit, (M, E), at least 2.
        rows: new rows, (N, E), at least 2.
        change: d, what a class has more in the new rows than in the unlabeled ones, as a model estimates it, (K,).
    """
    rng = np.random.default_rng(0)
    halves = rng.permutation(len(unlabeled)) % 2
    new_halves = rng.permutation(len(rows)) % 2
    shares = np.empty(len(rows))
    excesses = []
    variances = []
    for half in (0, 1):
        forest = fit_forest(unlabeled[halves != half], rows[new_halves != half])
        own_shares, labeled_shares, shares[new_halves == half] = (
            forest.predict_proba(part)[:, 1] for part in (unlabeled[halves == half], labeled, rows[new_halves == half])
        )
        order = np.sort(own_shares)
        new_shares = shares[new_halves == half]
        power = choose_power(min(len(own_shares), len(new_shares)))
        labeled_places, own_places, new_places = (
            place(part, order) ** power for part in (labeled_shares, own_shares, new_shares)
        )
        excess, variance = compare_places(labeled_places, labels, own_places, new_places, change)
        excesses.append(excess)
        variances.append(variance)
    p_value = norm.sf(np.mean(excesses) / max(MEAN_VARIANCE * np.mean(variances), 1e-12) ** 0.5)
    return Novelty(max(float(p_value), SMALLEST_P), shares)


def fit_forest(unlabeled: np.ndarray, rows: np.ndarray) -> ExtraTreesClassifier:
    """Return a forest that tells unlabeled rows (M, E), class 0, from new rows (N, E), both counting the same."""
    from sklearn.ensemble import ExtraTreesClassifier

    forest = ExtraTreesClassifier(TREES, bootstrap=True, min_samples_leaf=LEAF, class_weight="balanced", random_state=0)
    return forest.fit(np.concatenate([unlabeled, rows]), np.repeat([0, 1], [len(unlabeled), len(rows)]))


def compare_places(
    labeled: np.ndarray, labels: np.ndarray, unlabeled_places: np.ndarray, new_places: np.ndarray, change: np.ndarray
) -> tuple[float, float]:
    """Return the numerator of z and its squared error, from s of labeled (n,), unlabeled (M,) and new rows (N,)."""
    excess = new_places.mean() - unlabeled_places.mean()
    variance = new_places.var() / len(new_places) + unlabeled_places.var() / len(unlabeled_places)
    for k in np.unique(labels):
        places = labeled[labels == k]
        spread = (PSEUDO_ROWS * unlabeled_places.var() + len(places) * places.var()) / (PSEUDO_ROWS + len(places) - 1)
        excess -= change[k] * places.mean()
        variance += change[k] ** 2 * spread / len(places)
    return float(excess), float(variance)


def place(shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return q of shares (N,), given sorted shares (M,): the place among them, equal ones by half."""
    sides = np.searchsorted(order, shares, side="left") + np.searchsorted(order, shares, side="right")
    return sides / (2 * len(order))


def choose_power(rows: int) -> float:
    """Return r for so many rows of a half: of the places, a part of 1 / (r + 1) is above their mean share."""
    return float(np.clip(rows / UPPER_ROWS - 1, 1, POWER))
