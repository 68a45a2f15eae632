"""Rows are ordered by what they hold: whatever order, unit or kind of matrix they come in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csc_matrix, csr_matrix

from csst.data import row_hashes
from csst.data.row_hashes import order_by_content


def table(rows=300, columns=5, seed=0):
    """Numbers with many zeros, negative ones, a constant column and one without any zero."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((rows, columns)) < 0.5, 0, rng.normal(size=(rows, columns)).round(1)).astype(np.float32)
    X[:, 1] = 3
    X[:, 2] = np.abs(X[:, 2]) + 1
    return X


def hash_by_loops(X):
    """The formula of the module, in plain Python."""
    weights = [int(w) for w in row_hashes.draw_weights(X.shape[1])]
    ranks = [{v: r for r, v in enumerate(sorted(set(column.tolist())))} for column in X.T]
    return [sum(w * r[v] for w, r, v in zip(weights, ranks, row.tolist(), strict=True)) % 2**64 for row in X]


def test_the_order_is_that_of_the_formula():
    X = table()
    hashes = hash_by_loops(X)
    ordered = [hashes[at] for at in order_by_content(X)]
    assert ordered == sorted(hashes)
    assert len(set(hashes)) == len({tuple(row) for row in X.tolist()}), "different rows have different hashes"


@pytest.mark.parametrize("most", [10**9, 0])
def test_the_order_of_rows_does_not_matter(most, monkeypatch):
    monkeypatch.setattr(row_hashes, "MOST_RANKED", most)
    monkeypatch.setattr(row_hashes, "BLOCK", 600)
    monkeypatch.setattr(row_hashes, "CELLS", 600)
    X = table()
    y = np.random.default_rng(2).integers(0, 3, len(X))
    X[100:200], y[150:200] = X[:100], y[50:100]  # equal rows, some with another label
    first = order_by_content(X, y)
    for seed in range(3):
        shuffled = np.random.default_rng(seed).permutation(len(X))
        again = order_by_content(X[shuffled], y[shuffled])
        np.testing.assert_array_equal(X[shuffled][again], X[first])
        np.testing.assert_array_equal(y[shuffled][again], y[first])
        unlabeled = order_by_content(X[shuffled])
        np.testing.assert_array_equal(X[shuffled][unlabeled], X[order_by_content(X)])


@pytest.mark.parametrize("most", [10**9, 0])
@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix, torch.from_numpy])
def test_sparse_matrices_and_tensors_have_the_order_of_the_array(kind, most, monkeypatch):
    monkeypatch.setattr(row_hashes, "MOST_RANKED", most)
    X = table()
    np.testing.assert_array_equal(order_by_content(kind(X)), order_by_content(X))
    doubled = csr_matrix((np.ones(4), [0, 0, 2, 1], [0, 2, 4]), shape=(2, 3))  # twice the same place, and unsorted
    np.testing.assert_array_equal(order_by_content(doubled), order_by_content(doubled.toarray()))


def test_the_unit_of_a_column_does_not_matter():
    X = table()
    other = X * np.float32([2, 0.5, 1, 4, 1024]) + np.float32([0, 5, 0, 0, 0])
    np.testing.assert_array_equal(order_by_content(other), order_by_content(X))


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (4, 0), (5, 2, 3)])
def test_any_shape(shape):
    rows = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    order = order_by_content(rows)
    assert sorted(order.tolist()) == list(range(shape[0]))
    if len(shape) == 2:
        assert sorted(order_by_content(csr_matrix(rows)).tolist()) == list(range(shape[0]))
    np.testing.assert_array_equal(rows.astype(np.uint8)[order_by_content(rows.astype(np.uint8))], rows[order])
