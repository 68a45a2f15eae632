"""Label propagation against plain loops: the graph, its sources, how labels spread, and how new rows are scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from csst.estimation.calibration import Calibration
from csst.learners.graph import PortfolioScores, PropagationScores
from csst.learners.portfolio import Member, Portfolio
from csst.learners.projection import fit_projection
from csst.learners.propagation import (
    ADDED_PROBABILITY,
    ALPHA,
    DECAY,
    NEAREST,
    NEIGHBORS,
    Propagation,
    make_graph,
)
from csst.learners.store import pack, unpack
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
    space = fit_projection(X[30:], table_of(X[30:]), has_unit_length=True)
    return Propagation(space, X[30:]), X[:30], y[:30], new, truth


def test_labels_spread_as_the_formula_says(learned):
    learner, rows, labels, _, _ = learned
    model = learner.fit(rows, labels)
    nodes = learner.projection.apply(np.vstack([learner.unlabeled, rows])).astype(np.float64)
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
    points = learner.projection.apply(new)
    for i in range(0, 200, 23):
        wanted = reference_scores(model.nodes.astype(np.float64), model.probs, model.prior, points[i])
        np.testing.assert_allclose(found[i], wanted, atol=1e-4)
    balanced = found - np.log(model.prior)
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


def test_weights_are_the_strength_of_a_source():
    X, y = gaussians(80)
    learner = Propagation(fit_projection(X, table_of(X)), X[40:])
    whole = learner.fit(X[:40], y[:40], np.ones(40))
    np.testing.assert_array_equal(whole.probs, learner.fit(X[:40], y[:40]).probs)
    kept = np.where(np.arange(40) < 6, 1.0, 1e-9)
    few = learner.fit(X[:40], y[:40], kept)
    assert np.abs(few.probs - whole.probs).max() > 0.1


def test_no_unlabeled_rows_categories_sparse_rows_and_doubles():
    X, y = gaussians(40)
    found = Propagation(fit_projection(X, table_of(X)), X[:0]).fit(X, y).log_probs(X)
    assert np.isfinite(found).all()
    rows, labels, table = mixed(60)
    found = Propagation(fit_projection(rows, table, has_unit_length=True), rows).fit(rows, labels).log_probs(rows)
    assert (found.argmax(1) == labels).mean() > 0.6
    doubled = np.repeat(X[:8], 20, axis=0)  # every neighbor is at distance 0
    found = Propagation(fit_projection(doubled, table_of(X)), doubled).fit(X[:8], y[:8]).log_probs(X)
    assert np.isfinite(found).all()
    sparse = csr_matrix(np.where(X > 0.5, X, 0))
    found = Propagation(fit_projection(sparse, table_of(X)), sparse).fit(sparse, y).log_probs(sparse)
    assert np.isfinite(found).all()
    constant = np.ones((20, 3), dtype=np.float32)
    table = table_of(constant)
    space = fit_projection(constant, type(table)(table.mean, np.ones(3), table.sizes), has_unit_length=True)
    assert np.isfinite(Propagation(space, constant).fit(constant, np.arange(20) % 2).log_probs(constant)).all()


def test_not_all_of_many_unlabeled_rows_are_nodes():
    X, y = gaussians(90)
    model = Propagation(fit_projection(X, table_of(X)), X[20:], most_nodes=30).fit(X[:20], y[:20])
    assert len(model.nodes) == 30 + 20
    assert len({tuple(node) for node in model.nodes}) == 50


@pytest.fixture
def large(monkeypatch):
    """A graph that is solved by conjugate gradients, with neighbors looked for in cells."""
    monkeypatch.setattr("csst.learners.neighbors.MOST_EXACT", 1000)
    monkeypatch.setattr("csst.learners.propagation.MOST_EXACT", 1000)
    X, y = gaussians(1630, apart=2.5)
    learner = Propagation(fit_projection(X[30:], table_of(X[30:])), X[30:])
    return learner, learner.fit(X[:30], y[:30]), y


def test_a_large_graph_is_solved_to_the_last_node(large):
    learner, model, y = large
    assert model.cells is learner.cells is not None
    sources = np.zeros((1630, 3))
    sources[1600 + np.arange(30), y[:30]] = 1 / np.bincount(y[:30])[y[:30]]
    graph = make_graph(*learner._join(model.nodes[1600:], model.nodes))
    exact = (1 - ALPHA) * np.linalg.solve(np.eye(1630) - ALPHA * graph.toarray().astype(np.float64), sources)
    np.testing.assert_allclose(model.probs, exact / exact.sum(1, keepdims=True), atol=1e-5)


def test_new_rows_of_a_large_graph(large):
    _, model, _ = large
    new, truth = gaussians(200, apart=2.5, seed=1)
    found = model.log_probs(new)
    points = model.projection.apply(new)
    near = [
        np.abs(found[i] - reference_scores(model.nodes.astype(np.float64), model.probs, model.prior, points[i])).max()
        for i in range(40)
    ]
    assert (np.array(near) < 1e-3).mean() > 0.9
    assert (found.argmax(1) == truth).mean() > 0.7


def test_a_large_graph_is_stored_and_exported_as_it_is(large):
    _, model, _ = large
    new, _ = gaussians(100, apart=2.5, seed=2)
    member = Member("propagation", model, Calibration.identity(3), 0.0, 1.0)
    portfolio = Portfolio((member,), (), np.ones(3) / 3)
    again = unpack(pack(portfolio), "a file")
    np.testing.assert_array_equal(again.scores(new), portfolio.scores(new))
    found = torch.softmax(PortfolioScores(again)(torch.from_numpy(new)), 1)
    np.testing.assert_allclose(found, portfolio.probs(new), atol=1e-4)
    few = replace(model, cells=replace(model.cells, nearby=model.cells.nearby[:, :1]))
    found = torch.exp(PropagationScores(few)(torch.from_numpy(new)))
    np.testing.assert_allclose(found, np.exp(few.log_probs(new)), atol=1e-4)
    assert np.abs(few.log_probs(new) - model.log_probs(new)).max() > 0.1, "the cells must matter for this test"
