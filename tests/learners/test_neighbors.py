"""The nearest nodes: against plain loops, and among the nodes of nearby cells where there are many."""

from __future__ import annotations

import numpy as np
import pytest

from csst.learners import neighbors
from csst.learners.neighbors import LARGEST_CELL, SMALLEST_CELL, Cells, NeighborSearch, find_nearest


@pytest.fixture
def many(monkeypatch):
    """Nodes too many for looking at all of them, around 30 points."""
    monkeypatch.setattr(neighbors, "MOST_EXACT", 3000)
    rng = np.random.default_rng(0)
    nodes = 4 * rng.normal(size=(30, 5))[rng.integers(0, 30, 4000)] + rng.normal(size=(4000, 5))
    return nodes.astype(np.float32)


def test_neighbors_are_the_nearest():
    rng = np.random.default_rng(0)
    points, nodes = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(12, 3)).astype(np.float32)
    near, squares = find_nearest(points, nodes, 5)
    for i in range(7):
        wanted = sorted(range(12), key=lambda j: float(((points[i] - nodes[j]) ** 2).sum()))[:5]
        assert near[i].tolist() == wanted
        np.testing.assert_allclose(squares[i], [((points[i] - nodes[j]) ** 2).sum() for j in wanted], rtol=1e-3)
    assert find_nearest(points, nodes[:2], 5)[0].shape == (7, 2)
    assert find_nearest(points[:0], nodes, 5)[0].shape == (0, 5)
    assert Cells.learn(nodes) is None
    np.testing.assert_array_equal(NeighborSearch(nodes).find(points, 5)[0], near)


def test_nearly_all_neighbors_are_found_in_cells(many):
    cells = Cells.learn(many)
    assert len(cells.centers) <= 4000**0.5
    assert np.bincount(cells.assign(many)).min() >= SMALLEST_CELL
    points = many[:300] + np.float32(0.01)
    near, squares = NeighborSearch(many, cells).find(points, 6)
    wanted, apart = find_nearest(points, many, 6)
    hits = np.mean([len(set(a) & set(b)) / 6 for a, b in zip(near, wanted, strict=True)])
    assert hits > 0.97
    assert (squares >= apart - 1e-6).all()
    assert (np.diff(squares, axis=1) >= 0).all()
    np.testing.assert_allclose(squares, ((points[:, None] - many[near]) ** 2).sum(2), atol=1e-3)


def test_only_nearby_cells_are_looked_at(many):
    cells = Cells.learn(many)
    search = NeighborSearch(many, Cells(cells.centers, cells.nearby[:, :2]))
    near, _ = search.find(many[:200], 4)
    mine = cells.assign(many[:200])
    for i in range(200):
        assert set(search.places[near[i]].tolist()) <= set(cells.nearby[mine[i], :2].tolist())


def test_copies_of_one_row_do_not_fill_the_search(many):
    many[:2500] = many[0]
    cells = Cells.learn(many)
    search = NeighborSearch(many, cells)
    most = LARGEST_CELL * -(-len(many) // len(cells.centers))
    assert max(len(members) for members in search.members) <= most
    assert (search.places[:2500] == -1).sum() >= 2500 - most
    near, squares = search.find(many[:10], 4)
    np.testing.assert_allclose(squares, 0, atol=1e-6)
    assert near.max() < 2500
