"""Which labels to buy next: rows that may be of a class that may be the worst.

    n_k = n ((1 - e) P(class k has the lowest recall) + e / K)
    P(row i) proportional to  sum_k n_k V_ik / sum_j V_jk,    V = Q (1 - Q)

P(class k has the lowest recall) is counted over recalls drawn around their estimate, so that a class with a low recall
and a class of which little is known both get labels. V_ik is the variance of whether row i is of class k: a label
decides most where it is 1/4. Rows are drawn and not sorted, so that those that are bought are not all alike. (Drawn by
Q itself, suggested labels were no better than random ones.)
"""

from __future__ import annotations

import numpy as np

from csst.estimation.class_rates import RateEstimate
from csst.estimation.rate_draws import draw_recalls

#: the part of the labels that all classes share alike
SHARED = 0.5


def allocate_labels(estimate: RateEstimate) -> np.ndarray:
    """Return the fraction of new labels that every class should get, (K,)."""
    worst_classes = draw_recalls(estimate).argmin(1)
    chances = np.bincount(worst_classes, minlength=estimate.classes) / len(worst_classes)
    return (1 - SHARED) * chances + SHARED / estimate.classes


def rank_rows(posterior: np.ndarray, fractions: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Return rows, (count,), drawn one after the other without replacement, as the module says.

    Args:
        posterior: Q, the class probabilities of the rows under their own class balance, (N, K).
        fractions: fractions of the labels that the classes should get, (K,).
        count: how many rows.
        seed: seed of the draws.
    """
    variance = posterior * (1 - posterior)
    mass = variance.sum(0)
    chances = variance @ np.where(mass > 0, fractions / np.where(mass > 0, mass, 1.0), 0.0)
    # The largest log P + Gumbel noise are draws without replacement (Efraimidis and Spirakis, 2006).
    keys = np.log(np.maximum(chances, 1e-300)) + np.random.default_rng(seed).gumbel(size=len(chances))
    return np.argsort(-keys, kind="stable")[:count]
