"""A toy whose posteriors are known: one number per row, normal around its class's mean; rates by integration."""

from __future__ import annotations

import numpy as np
import torch

from csst.maths.confusion import Confusion

MEANS = np.array([0.0, 2.0, 4.5])
PRIOR = np.array([0.6, 0.3, 0.1])
GRID = np.linspace(-7, 11.5, 4001)
#: probability of every place on the grid, given the class, (4001, K)
DENSITY = np.exp(-0.5 * (GRID[:, None] - MEANS) ** 2)
DENSITY /= DENSITY.sum(0)


def sample(n, prior=PRIOR, seed=0):
    """Places (n,) and classes (n,), every class at least once."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(prior), n, p=prior)
    labels[: len(prior)] = np.arange(len(prior))
    return MEANS[labels] + rng.normal(size=n), labels


def probs(x, prior=PRIOR):
    """P(y | x) where the class prior is this one."""
    raw = np.asarray(prior) * np.exp(-0.5 * (x[:, None] - MEANS) ** 2)
    return raw / raw.sum(1, keepdims=True)


def rates_of(decide):
    """R_kj = P(F(x) = j | y = k), exactly; decide: probabilities (N, K) to classes."""
    decided = np.asarray(decide(probs(GRID)))
    return np.stack([DENSITY[decided == j].sum(0) for j in range(3)], 1)


def confusion_of(decide, prior=PRIOR):
    return Confusion(torch.from_numpy(rates_of(decide)), torch.from_numpy(np.asarray(prior)))


def lowest_recall(decide):
    return float(np.diag(rates_of(decide)).min())


def plain(p):
    return p.argmax(1)


def best_lowest_recall():
    """The minimax rule: two thresholds, with all three recalls alike. Bisection on the first, the rest follows."""

    def cut(k, share):
        """The place below which class k has this share."""
        return float(np.interp(share, np.cumsum(DENSITY[:, k]), GRID))

    low, high = 0.3, 1.0
    for _ in range(60):
        recall = (low + high) / 2
        first, second = cut(0, recall), cut(2, 1 - recall)
        below = np.interp([first, second], GRID, np.cumsum(DENSITY[:, 1]))
        low, high = (recall, high) if below[1] - below[0] > recall else (low, recall)
    return low
