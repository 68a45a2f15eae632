"""CSSTClassifier.suggest: rows of the rare class come first, and what cannot be is refused."""

from __future__ import annotations

import numpy as np
import pytest

from csst import CSSTClassifier, InputError
from tests.learners.samples import gaussians


def test_rows_of_a_rare_hard_class_are_suggested():
    X, y = gaussians(400, np.array([0.6, 0.35, 0.05]), apart=2.2)
    known = np.r_[np.arange(6), np.flatnonzero(y < 2)[6:60]]
    labels = np.full(400, -1)
    labels[known] = y[known]
    clf = CSSTClassifier(learner="linear").fit(X, labels)
    pool = np.flatnonzero(labels == -1)
    rows = clf.suggest(X[pool], 20)
    assert rows.shape == (20,)
    assert len(set(rows.tolist())) == 20
    fraction = (y[pool][rows] == 2).mean()
    assert fraction > 3 * (y[pool] == 2).mean(), "no more rows of the rare class than chance would give"
    np.testing.assert_array_equal(rows[:5], clf.suggest(X[pool], 5))
    for wrong in (0, len(pool) + 1):
        with pytest.raises(InputError, match=f"n must be from 1 to the {len(pool)} rows of X_pool; found {wrong}"):
            clf.suggest(X[pool], wrong)
    with pytest.raises(ValueError, match="not fitted"):
        CSSTClassifier().suggest(X, 3)
