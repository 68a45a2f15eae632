"""Folds with the same fraction of every class."""

from __future__ import annotations

import numpy as np


def deal_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """A fold 0 .. folds-1 for every row, each class dealt out evenly, (n,)."""
    rng, dealt = np.random.default_rng(seed), np.zeros(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        dealt[rows] = (np.arange(len(rows)) + rng.integers(folds)) % folds
    return dealt
