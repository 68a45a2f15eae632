"""How far new rows are from the unlabeled rows of a fit: rows of a new class have no near neighbor there.

    s(x) = q(x)^4,     q(x): place of the distance of x to the nearest unlabeled row among such distances of these rows

s has the mean v on N new rows, u on M unlabeled rows (their nearest neighbor being another row) and m_k on the n_k
labeled rows of class k. Rows of a rare class have few neighbors, too, so a change d of the balance is taken out:

    z = (v - u - sum_k d_k m_k) / sqrt(S_v / N + 1.5 S_u / M + sum_k d_k^2 S_k / n_k)

is about standard normal where only the balance has changed; 1.5, as unlabeled rows are often each other's neighbors.
The fourth power looks at the upper end: with 1 and 10 in its place, and the third or fifth neighbor, about as many new
classes are found. S_k of few labels is drawn to S_u.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

#: the power of a place
POWER = 4
#: how much more the mean of unlabeled rows varies than that of independent ones
MUTUAL = 1.5
#: rows' worth of S_u in S_k
PSEUDO_ROWS = 10.0
#: rows whose distances are measured at a time
CHUNK = 1000
#: smaller p-values are said to be this one: the noise is normal only where it is not extreme
SMALLEST_P = 1e-3
#: squared distances below this are those of identical rows
IDENTICAL = 1e-12


@dataclass(frozen=True, eq=False)
class Novelty:
    """Whether new rows are farther from the unlabeled rows than a change of the balance explains.

    Args:
        p_value: the chance of rows that are as far, if it did.
        distances: of every new row to the nearest unlabeled row, (N,).
    """

    p_value: float
    distances: np.ndarray


def measure_novelty(
    labeled: np.ndarray, labels: np.ndarray, unlabeled: np.ndarray, rows: np.ndarray, change: np.ndarray
) -> Novelty:
    """Test whether new rows are too far from the unlabeled rows.

    Args:
        labeled: coordinates of labeled rows, (n, E).
        labels: their classes, (n,).
        unlabeled: coordinates of unlabeled rows of the fit, (M, E), at least 2.
        rows: coordinates of new rows, (N, E).
        change: d, what a class has more in the new rows than in the unlabeled ones, as a model estimates it, (K,).
    """
    own_distances = find_nearest(unlabeled, unlabeled)[:, 1]  # the nearest is the row itself
    pairs = find_nearest(labeled, unlabeled)
    # A labeled row may be among the unlabeled ones.
    labeled_distances = np.where(pairs[:, 0] > 0, pairs[:, 0], pairs[:, 1])
    distances = find_nearest(rows, unlabeled)[:, 0]
    order = np.sort(own_distances)
    new_places = place(distances, order)
    own_places = place(own_distances, order)
    labeled_places = place(labeled_distances, order)
    excess = new_places.mean() - own_places.mean()
    variance = new_places.var() / len(rows) + MUTUAL * own_places.var() / len(unlabeled)
    for k in np.unique(labels):
        places = labeled_places[labels == k]
        spread = (PSEUDO_ROWS * own_places.var() + len(places) * places.var()) / (PSEUDO_ROWS + len(places) - 1)
        excess -= change[k] * places.mean()
        variance += change[k] ** 2 * spread / len(places)
    p_value = norm.sf(excess / max(variance, 1e-12) ** 0.5)
    return Novelty(max(float(p_value), SMALLEST_P), distances)


def find_nearest(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return distances of rows (N, E) to the nearest two of other rows (M, E), (N, 2), identical ones being 0."""
    squares = (others**2).sum(1)
    smallest_squares = np.empty((len(rows), 2))
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        squared_distances = (part**2).sum(1)[:, None] + squares - 2 * part @ others.T
        smallest_squares[start : start + CHUNK] = np.partition(squared_distances, 1, axis=1)[:, :2]
    return np.sqrt(np.where(smallest_squares > IDENTICAL, smallest_squares, 0.0))


def place(distances: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return s of distances (N,), given sorted distances (M,): the place among them, equal ones by half, ^4."""
    sides = np.searchsorted(order, distances, side="left") + np.searchsorted(order, distances, side="right")
    return (sides / (2 * len(order))) ** POWER
