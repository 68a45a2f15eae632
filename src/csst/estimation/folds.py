"""Rows dealt into folds with the same fraction of every class, and into those that fit and those that certify."""

from __future__ import annotations

import numpy as np

from csst.errors import InputError

#: of the labels, those that certify and are learned from by nothing
CERTIFYING = 0.5


def deal_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return a fold 0 .. folds-1 for every row, each class dealt out evenly, (n,)."""
    rng = np.random.default_rng(seed)
    numbers = np.zeros(len(labels), dtype=np.int64)
    for c in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == c))
        numbers[rows] = (np.arange(len(rows)) + rng.integers(folds)) % folds
    return numbers


def deal_certification(labels: np.ndarray, share: float, seed: int, is_random: bool) -> np.ndarray:
    """Deal labels at random into those that are learned from and those that certify.

    Within classes, every class keeps at least one label to learn from. As a random sample, the rows are put in random
    order, and those after the first part certify; the first part goes on until every class is in it, which leaves the
    rows after it a random sample.

    Args:
        labels: class indices, (n,).
        share: share of the labels that certify, between 0 and 1.
        seed: seed of the deal.
        is_random: whether the labels that certify must be a random sample, whatever their classes.

    Returns:
        Indices of the rows that certify, sorted.
    """
    if not 0 < share < 1:
        raise InputError(f"the fraction of labels that certify must lie between 0 and 1; found {share}")
    labels = np.asarray(labels)
    rng = np.random.default_rng(seed)
    if is_random:
        order = rng.permutation(len(labels))
        _, places = np.unique(labels[order], return_index=True)
        start = max(int(places.max()) + 1, len(labels) - round(share * len(labels)))
        return np.sort(order[start:])
    parts = []
    for c in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == c))
        parts.append(members[: min(len(members) - 1, round(share * len(members)))])
    return np.sort(np.concatenate(parts))
