"""Folds with the same fraction of every class."""

from __future__ import annotations

import numpy as np

from csst.estimation.folds import deal_folds


def test_folds_are_dealt_evenly():
    labels = np.repeat([0, 1, 2], [23, 10, 2])
    found = deal_folds(labels, 5, seed=0)
    for k in range(3):
        sizes = np.bincount(found[labels == k], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(found, deal_folds(labels, 5, seed=0))
    assert not np.array_equal(found, deal_folds(labels, 5, seed=1))
