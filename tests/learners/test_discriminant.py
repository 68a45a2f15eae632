"""Linear discriminant analysis where every label is the mean of its class."""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax
from sklearn.covariance import oas

from csst.learners.discriminant import Discriminant
from csst.learners.projection import fit_projection
from tests.learners.samples import gaussians, table_of


def test_with_one_label_per_class_the_spread_is_that_of_the_labeled_rows_around_their_mean():
    """Their mean is not 0: the projection centers all rows, of which the labeled ones are few."""
    X, y = gaussians(200)
    space = fit_projection(X, table_of(X))
    rows = np.array([np.flatnonzero(y == k)[3] for k in range(3)])
    values = space.apply(X[rows]).astype(np.float64)
    assert np.abs(values.mean(0)).max() > 0.3
    centered = values - values.mean(0)
    covariance, _ = oas(centered * (3 / 2) ** 0.5, assume_centered=True)
    points = space.apply(X).astype(np.float64)
    inverse = np.linalg.inv(covariance)
    scores = np.stack([-0.5 * np.einsum("nd,de,ne->n", points - m, inverse, points - m) for m in values], 1)
    found = Discriminant(space).fit(X[rows], y[rows]).log_probs(X)
    np.testing.assert_allclose(found, log_softmax(scores, axis=1), atol=1e-4)
