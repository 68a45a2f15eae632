"""The linear learner: what it computes, how it scales columns, and what its weights come from."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from csst.learners import linear as linear_module
from csst.learners.linear import Linear
from csst.learners.protocol import Rows, apply
from tests.learners.samples import gaussians, mixed, soften, table_of


def reference(model, rows, table, centered=True):
    """log softmax(W x' + b) by plain loops: numbers first, in their order, then the indicators of every category."""
    scores = np.zeros((len(rows), len(model.bias)))
    for i, row in enumerate(np.asarray(rows, dtype=np.float64)):
        x = [(row[d] - centered * table.mean[d]) / table.std[d] for d, size in enumerate(table.sizes) if size == 0]
        for d, size in enumerate(table.sizes):
            x += [1.0 if row[d] == category else 0.0 for category in range(size)]
        for k in range(len(model.bias)):
            scores[i, k] = sum(w * value for w, value in zip(model.weights[k], x, strict=True)) + model.bias[k]
    return soften(scores)


@pytest.mark.parametrize("classes", [2, 3])
def test_log_probs_are_a_softmax_of_the_stored_weights(classes):
    X, y = gaussians(90, np.ones(classes) / classes)
    X = X * [1, 20, 0.1, 3] + [0, 100, -7, 2]
    model = Linear(table_of(X)).fit(X, y)
    assert model.weights.shape == (classes, 4)
    assert model.bias.shape == (classes,)
    assert model.weights.dtype == model.bias.dtype == torch.float64
    found = model.log_probs(X)
    np.testing.assert_allclose(found, reference(model, X, table_of(X)), atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-12)
    assert (found.argmax(1) == y).mean() > 0.8


def test_categories_are_indicators_and_one_never_met_is_none_of_them():
    rows, y, table = mixed()
    model = Linear(table).fit(rows, y)
    assert model.weights.shape == (3, 2 + 4 + 2)
    np.testing.assert_allclose(model.log_probs(rows), reference(model, rows, table), atol=1e-5)
    strange = rows[:5].copy()
    strange[:, 1] = -1
    features = apply(table.as_input(rows), strange)
    assert (features[:, 2:6] == 0).all()
    assert (features[:, 6:].sum(1) == 1).all()
    np.testing.assert_allclose(model.log_probs(strange), reference(model, strange, table), atol=1e-5)
    without = Linear(Rows(table.mean, table.std, (0, 0, 0, 0))).fit(rows, y)
    assert not np.allclose(without.log_probs(rows), model.log_probs(rows), atol=0.01)


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_sparse_rows_are_scaled_but_not_centered(kind):
    X, y = gaussians(120, features=6)
    X = np.where(np.abs(X) > 0.8, X, 0) * np.array([1, 10, 0.2, 1, 1, 1])
    table = table_of(X)
    features = apply(table.as_input(kind(X)), kind(X))
    assert hasattr(features, "tocsr"), "sparse rows were made dense"
    assert features.nnz == (X != 0).sum()
    np.testing.assert_allclose(features.toarray(), X / X.std(0), rtol=1e-5)
    model = Linear(table).fit(kind(X), y)
    found = model.log_probs(kind(X))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, reference(model, X, table, centered=False), atol=1e-5)
    assert (found.argmax(1) == y).mean() > 0.7


def test_common_scale_is_the_root_mean_square_of_the_columns_that_vary():
    table = Rows(np.array([1.0, 2, 3, 4, 5]), np.array([3.0, 4.0, 1.0, 0.25, 12.0]), (0, 0, 0, 7, 0))
    found = table.with_common_scale
    common = ((3**2 + 4**2 + 12**2) / 3) ** 0.5  # neither the constant column nor the categories
    np.testing.assert_allclose(found.std, [common, common, common, 0.25, common], rtol=1e-12)
    assert (found.mean == table.mean).all()
    assert found.sizes == table.sizes
    assert (table.std == [3, 4, 1, 0.25, 12]).all(), "the table itself was changed"


@pytest.mark.parametrize(("std", "sizes"), [([1.0, 1.0], (0, 0)), ([0.3, 2.0], (3, 4)), ([1.0, 2.0], (0, 5))])
def test_common_scale_is_1_where_no_column_of_numbers_varies(std, sizes):
    found = Rows(np.zeros(2), np.array(std), sizes).with_common_scale
    np.testing.assert_array_equal(found.std, std)


def test_common_scale_lets_large_columns_count_most():
    """The class shows in a small column: its own deviation shows it, and with the common one the penalty hides it."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = np.stack([100 * rng.normal(size=200), 0.1 * (rng.normal(size=200) + 3 * y)], 1)
    own, common = (Linear(t, penalty=0.1).fit(X, y) for t in (table_of(X), table_of(X).with_common_scale))
    assert (own.log_probs(X).argmax(1) == y).mean() > 0.9
    assert (common.log_probs(X).argmax(1) == y).mean() < 0.75


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_agrees_with_logistic_regression_on_standardized_columns(classes, penalty):
    X, y = gaussians(200, [0.7, 0.2, 0.1] if classes == 3 else [0.8, 0.2])
    X = (X * [1, 30, 0.1, 2]).astype(np.float32)
    scaled = StandardScaler().fit_transform(X.astype(np.float64))
    wanted = LogisticRegression(C=penalty, tol=1e-9, max_iter=5000).fit(scaled, y).predict_proba(scaled)
    found = np.exp(Linear(table_of(X), penalty).fit(X, y).log_probs(X))
    np.testing.assert_allclose(found, wanted, atol=0.005)
    balanced = LogisticRegression(C=penalty, class_weight="balanced").fit(scaled, y).predict_proba(scaled)
    assert np.abs(found - balanced).max() > 0.05, "the classes were weighted"


def test_a_solver_that_did_not_converge_says_nothing(monkeypatch):
    monkeypatch.setattr(linear_module, "MOST_ITERATIONS", 1)
    X, y = gaussians(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Linear(table_of(X), 1.0).fit(X, y)
