"""Principal components, logistic regression on Nyström features, and linear discriminants, by plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.covariance import oas
from sklearn.linear_model import LogisticRegression

from csst.learners.discriminant import Discriminant
from csst.learners.kernel import PENALTY, Kernel
from csst.learners.linear import FittedLinear
from csst.learners.projection import COMPONENTS, fit_projection
from csst.learners.protocol import Rows, apply
from tests.learners.samples import bent, gaussians, mixed, soften, table_of


def test_projection_is_onto_principal_components():
    X, _ = gaussians(200)
    X = X @ np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    space = fit_projection(X, table_of(X))
    values = apply(space, X).astype(np.float64)
    covariance = values.T @ values / len(values)
    np.testing.assert_allclose(covariance - np.diag(np.diag(covariance)), 0, atol=1e-4)
    standardized = apply(table_of(X).as_input(X), X).astype(np.float64)
    variances = np.sort(np.linalg.eigvalsh(np.cov(standardized.T, bias=True)))[::-1]
    np.testing.assert_allclose(np.diag(covariance), variances, rtol=1e-3)
    lengths = np.linalg.norm(apply(space.with_unit_length(), X), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_projection_of_wide_sparse_and_constant_rows():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(60, 1500)).astype(np.float32)
    assert fit_projection(wide, table_of(wide)).matrix.shape == (1500, 59), "60 centered rows"
    many = rng.normal(size=(400, 300)).astype(np.float32)
    assert fit_projection(many, table_of(many)).matrix.shape == (300, COMPONENTS)
    sparse = csr_matrix(np.where(many > 1, many, 0))
    space = fit_projection(sparse, table_of(sparse.toarray()))
    assert not space.shift.any()
    scaled = apply(space.input, sparse[:5])
    assert scaled.nnz == sparse[:5].nnz, "sparse rows were made dense"
    np.testing.assert_allclose(apply(space, sparse[:5]), scaled @ space.matrix.numpy(), atol=1e-4)
    constant = np.ones((9, 3), dtype=np.float32)
    table = Rows(constant.mean(0), np.ones(3), (0, 0, 0))
    assert not apply(fit_projection(constant, table).with_unit_length(), constant).any()


@pytest.mark.parametrize("classes", [2, 3])
def test_kernel_is_logistic_regression_on_nystrom_features(classes, monkeypatch):
    monkeypatch.setattr("csst.learners.linear.TOLERANCE", 1e-8)
    monkeypatch.setattr("csst.learners.linear.MOST_ITERATIONS", 2000)
    X, y = gaussians(90, np.ones(classes) / classes, apart=1.5)
    new, _ = gaussians(30, np.ones(classes) / classes, apart=1.5, seed=1)
    space = fit_projection(X, table_of(X))
    model = Kernel(space, X).fit(X, y)
    points, landmarks = apply(space, X).astype(float), model.landmarks.numpy().astype(float)
    assert len(landmarks) == 90
    pairs = [((landmarks[i] - landmarks[j]) ** 2).sum() for i in range(90) for j in range(i)]
    assert model.gamma == pytest.approx(1 / np.median(pairs), rel=1e-3)

    def near(rows, others):
        return np.exp(-model.gamma * np.array([[((a - b) ** 2).sum() for b in others] for a in rows]))

    values, vectors = np.linalg.eigh(near(landmarks, landmarks))
    root = vectors @ np.diag(np.maximum(values, 1e-4) ** -0.5) @ vectors.T
    plain = LogisticRegression(C=PENALTY, max_iter=2000, tol=1e-8).fit(near(points, landmarks) @ root, y)
    wanted = plain.predict_log_proba(near(apply(space, new).astype(float), landmarks) @ root)
    np.testing.assert_allclose(model.log_probs(new), wanted, atol=2e-3)
    assert np.exp(model.log_probs(new)).sum(1) == pytest.approx(np.ones(30))


def test_a_kernel_tells_apart_what_no_line_can():
    X, y = bent(400)
    X[:, 0] = np.where(y == 0, X[:, 0] * np.sign(np.arange(400) % 2 - 0.5), X[:, 0])
    new, truth = bent(400, seed=1)
    new[:, 0] = np.where(truth == 0, new[:, 0] * np.sign(np.arange(400) % 2 - 0.5), new[:, 0])
    space = fit_projection(X, table_of(X))
    assert (Kernel(space, X).fit(X, y).log_probs(new).argmax(1) == truth).mean() > 0.7


def test_lda_is_the_gaussian_posterior_with_a_shrunk_covariance():
    X, y = gaussians(60, apart=1.5)
    space = fit_projection(X, table_of(X))
    model = Discriminant(space).fit(X, y)
    assert isinstance(model, FittedLinear), "it is stored and exported like any linear model"
    points = apply(space, X).astype(float)
    means = [points[y == k].mean(0) for k in range(3)]
    residuals = np.array([point - means[label] for point, label in zip(points, y, strict=True)])
    covariance, shrinkage = oas(residuals * (60 / 57) ** 0.5, assume_centered=True)
    assert 0 < shrinkage < 1
    inverse = np.linalg.inv(covariance)
    scores = np.array(
        [[-(p - m) @ inverse @ (p - m) / 2 + np.log((y == k).mean()) for k, m in enumerate(means)] for p in points]
    )
    np.testing.assert_allclose(model.log_probs(X), soften(scores), atol=1e-4)


def test_lda_with_a_label_per_class_and_with_categories():
    X, y = gaussians(60, apart=4.0)
    first = np.array([np.flatnonzero(y == k)[0] for k in range(3)])
    found = Discriminant(fit_projection(X, table_of(X))).fit(X[first], y[first]).log_probs(X)
    assert np.isfinite(found).all()
    rows, labels, table = mixed(90)
    found = Discriminant(fit_projection(rows, table)).fit(rows, labels).log_probs(rows)
    assert (found.argmax(1) == labels).mean() > 0.6


def test_with_one_label_per_class_the_spread_is_that_of_the_labeled_rows_around_their_mean():
    """Their mean is not 0: the projection centers all rows, of which the labeled ones are few."""
    X, y = gaussians(200)
    space = fit_projection(X, table_of(X))
    rows = np.array([np.flatnonzero(y == k)[3] for k in range(3)])
    values = apply(space, X[rows]).astype(np.float64)
    assert np.abs(values.mean(0)).max() > 0.3
    centered = values - values.mean(0)
    covariance, _ = oas(centered * (3 / 2) ** 0.5, assume_centered=True)
    points = apply(space, X).astype(np.float64)
    inverse = np.linalg.inv(covariance)
    scores = np.stack([-0.5 * np.einsum("nd,de,ne->n", points - m, inverse, points - m) for m in values], 1)
    found = Discriminant(space).fit(X[rows], y[rows]).log_probs(X)
    np.testing.assert_allclose(found, soften(scores), atol=1e-4)
