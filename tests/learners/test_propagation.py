"""Label propagation against plain loops: the graph, its sources, how labels spread, and how new rows are scored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from csst.learners.projection import fit_projection
from csst.learners.propagation import (
    ADDED_PROBABILITY,
    ALPHA,
    DECAY,
    NEAREST,
    NEIGHBORS,
    Propagation,
    find_nearest,
    make_graph,
)
from csst.learners.protocol import apply
from tests.learners.samples import gaussians, mixed, soften, table_of


def reference_nodes(nodes, sources):
    """F = (1 - alpha) (I - alpha S)^-1 Y of the neighbor graph, by loops and a dense inverse, and its fractions."""
    count = len(nodes)
    weights = np.zeros((count, count))
    for i in range(count):
        squares = [((nodes[i] - nodes[j]) ** 2).sum() for j in range(count)]
        near = sorted((j for j in range(count) if j != i), key=lambda j: squares[j])[:NEIGHBORS]
        farthest = max(squares[j] for j in near)
        for j in near:
            weights[i, j] = np.exp(-DECAY * squares[j] / farthest)
    weights = np.maximum(weights, weights.T)
    degrees = weights.sum(1)
    spread = weights / np.sqrt(degrees[:, None] * degrees[None])
    reached = (1 - ALPHA) * np.linalg.solve(np.eye(count) - ALPHA * spread, sources)
    return reached / reached.sum(1, keepdims=True)


def reference_scores(nodes, probs, prior, point):
    squares = [((node - point) ** 2).sum() for node in nodes]
    near = sorted(range(len(nodes)), key=lambda j: squares[j])[:NEAREST]
    farthest = max(squares[j] for j in near)
    weights = [np.exp(-DECAY * squares[j] / farthest) for j in near]
    mixed = sum(w * probs[j] for w, j in zip(weights, near, strict=True)) / sum(weights)
    return soften([[np.log(p + ADDED_PROBABILITY) + np.log(q) for p, q in zip(mixed, prior, strict=True)]])[0]


@pytest.fixture(scope="module")
def learned():
    X, y = gaussians(120, apart=2.5)
    new, truth = gaussians(200, apart=2.5, seed=1)
    space = fit_projection(X[30:], table_of(X[30:])).with_unit_length()
    return Propagation(space, X[30:]), X[:30], y[:30], new, truth


def test_labels_spread_as_the_formula_says(learned):
    learner, rows, labels, _, _ = learned
    model = learner.fit(rows, labels)
    nodes = apply(learner.projection, np.vstack([learner.unlabeled, rows])).astype(np.float64)
    np.testing.assert_allclose(model.nodes, nodes, atol=1e-6)
    counts = [sum(label == k for label in labels) for k in range(3)]
    sources = np.zeros((len(nodes), 3))
    for i, label in enumerate(labels):
        sources[90 + i, label] = 1 / counts[label]
    np.testing.assert_allclose(model.probs, reference_nodes(nodes, sources), atol=5e-3)
    np.testing.assert_allclose(model.prior, np.array(counts) / 30, atol=1e-12)


def test_new_rows_take_the_mean_of_their_nearest_nodes(learned):
    learner, rows, labels, new, truth = learned
    model = learner.fit(rows, labels)
    found = model.log_probs(new)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-9)
    points = apply(learner.projection, new)
    nodes, probs, prior = (part.double().numpy() for part in (model.nodes, model.probs, model.prior))
    for i in range(0, 200, 23):
        wanted = reference_scores(nodes, probs, prior, points[i])
        np.testing.assert_allclose(found[i], wanted, atol=1e-4)
    balanced = found - np.log(prior)
    assert np.mean([(balanced.argmax(1)[truth == k] == k).mean() for k in range(3)]) > 0.75


def test_a_class_is_a_source_of_the_same_strength_however_many_labels_it_has():
    X, y = gaussians(200, np.ones(2) / 2, apart=2.0)
    learner = Propagation(fit_projection(X, table_of(X)), X[60:])
    rows, labels = X[:60], y[:60]
    few = np.flatnonzero((labels == 0) | (np.cumsum(labels == 1) <= 3))
    even, tail = learner.fit(rows, labels), learner.fit(rows[few], labels[few])
    assert np.bincount(labels[few])[1] == 3
    assert abs(float(even.probs[:140, 1].mean() - tail.probs[:140, 1].mean())) < 0.15


def test_rows_held_out_do_not_help():
    """Fitting on some rows is as if the others were not there at all."""
    X, y = gaussians(90)
    learner = Propagation(fit_projection(X, table_of(X)), X[40:])
    some = np.arange(40) % 3 > 0
    part = learner.fit(X[:40][some], y[:40][some])
    alone = Propagation(learner.projection, X[40:]).fit(X[:40][some], y[:40][some])
    np.testing.assert_array_equal(part.log_probs(X[:40]), alone.log_probs(X[:40]))
    assert len(part.nodes) == 50 + some.sum()


def test_no_unlabeled_rows_categories_sparse_rows_and_doubles():
    X, y = gaussians(40)
    found = Propagation(fit_projection(X, table_of(X)), X[:0]).fit(X, y).log_probs(X)
    assert np.isfinite(found).all()
    rows, labels, table = mixed(60)
    found = Propagation(fit_projection(rows, table).with_unit_length(), rows).fit(rows, labels).log_probs(rows)
    assert (found.argmax(1) == labels).mean() > 0.6
    doubled = np.repeat(X[:8], 20, axis=0)  # every neighbor is at distance 0
    found = Propagation(fit_projection(doubled, table_of(X)), doubled).fit(X[:8], y[:8]).log_probs(X)
    assert np.isfinite(found).all()
    sparse = csr_matrix(np.where(X > 0.5, X, 0))
    found = Propagation(fit_projection(sparse, table_of(X)), sparse).fit(sparse, y).log_probs(sparse)
    assert np.isfinite(found).all()
    constant = np.ones((20, 3), dtype=np.float32)
    table = table_of(constant)
    space = fit_projection(constant, type(table)(table.mean, np.ones(3), table.sizes)).with_unit_length()
    assert np.isfinite(Propagation(space, constant).fit(constant, np.arange(20) % 2).log_probs(constant)).all()


def test_not_all_of_many_unlabeled_rows_are_nodes():
    X, y = gaussians(90)
    model = Propagation(fit_projection(X, table_of(X)), X[20:], most_nodes=30).fit(X[:20], y[:20])
    assert len(model.nodes) == 30 + 20
    assert len({tuple(node) for node in model.nodes.tolist()}) == 50


def test_a_large_graph_is_solved_to_the_last_node(monkeypatch):
    monkeypatch.setattr("csst.learners.propagation.LARGE_GRAPH", 500)
    X, y = gaussians(630, apart=2.5)
    learner = Propagation(fit_projection(X[30:], table_of(X[30:])), X[30:])
    model = learner.fit(X[:30], y[:30])
    sources = np.zeros((630, 3))
    sources[600 + np.arange(30), y[:30]] = 1 / np.bincount(y[:30])[y[:30]]
    nodes = model.nodes.numpy()
    graph = make_graph(*learner._join(nodes[600:], nodes))
    exact = (1 - ALPHA) * np.linalg.solve(np.eye(630) - ALPHA * graph.toarray().astype(np.float64), sources)
    np.testing.assert_allclose(model.probs, exact / exact.sum(1, keepdims=True), atol=1e-5)


def test_neighbors_are_the_nearest():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(7, 3)).astype(np.float32)
    nodes = rng.normal(size=(12, 3)).astype(np.float32)
    neighbors, squares = find_nearest(points, nodes, 5)
    for i in range(7):
        order = sorted(range(12), key=lambda j: float(((points[i] - nodes[j]) ** 2).sum()))[:5]
        assert neighbors[i].tolist() == order
        np.testing.assert_allclose(squares[i], [((points[i] - nodes[j]) ** 2).sum() for j in order], rtol=1e-3)
    assert find_nearest(points, nodes[:2], 5)[0].shape == (7, 2)
    assert find_nearest(points[:0], nodes, 5)[0].shape == (0, 5)
