"""The nearest of many nodes: exact up to 20,000 nodes, and among the nodes of nearby cells beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: number of nodes up to which the search is exact
MOST_EXACT = 20_000
#: cells searched for a point, of about sqrt(nodes): on Fashion-MNIST's pixels this finds 99 of 100 neighbors
PROBED = 20
#: nodes in a cell, at least
SMALLEST_CELL = 50
#: nodes in a cell at most, as a multiple of the mean: larger cells hold mostly copies of each other
LARGEST_CELL = 4
#: batch size and passes of the k-means that finds the cells
BATCH = 4096
PASSES = 5


@dataclass(frozen=True, eq=False)
class Cells:
    """Centers around which nodes lie, and the cells near each cell.

    Args:
        centers: centers of the cells, (C, d).
        nearby: the cells searched for points of a cell, itself first, (C, p).
    """

    centers: np.ndarray
    nearby: np.ndarray

    @classmethod
    def learn(cls, nodes: np.ndarray) -> Cells | None:
        """Find about sqrt(N) cells by k-means, so that N searches take time N^1.5; None for few nodes."""
        from sklearn.cluster import MiniBatchKMeans

        if len(nodes) <= MOST_EXACT:
            return None
        means = MiniBatchKMeans(int(len(nodes) ** 0.5), random_state=0, n_init=1, batch_size=BATCH, max_iter=PASSES)
        centers = means.fit(nodes).cluster_centers_.astype(np.float32)
        sizes = np.bincount(find_nearest(nodes, centers, 1)[0][:, 0], minlength=len(centers))
        centers = centers[sizes >= min(SMALLEST_CELL, sizes.max())]
        return cls(centers, find_nearest(centers, centers, PROBED)[0])

    def assign(self, points: np.ndarray) -> np.ndarray:
        """Return the nearest center of every point, (n,)."""
        return find_nearest(points, self.centers, 1)[0][:, 0]


@dataclass(frozen=True, eq=False)
class NeighborSearch:
    """A search for the nearest nodes.

    Args:
        nodes: points, (N, d), float32.
        cells: cells learned from all or nearly all of the nodes; None searches all nodes.
    """

    nodes: np.ndarray
    cells: Cells | None = None

    @cached_property
    def places(self) -> np.ndarray:
        """The cell of every node; -1 for surplus nodes of a cell that is too large, which are never found, (N,)."""
        assert self.cells is not None
        places = self.cells.assign(self.nodes)
        capacity = LARGEST_CELL * -(-len(self.nodes) // len(self.cells.centers))
        for cell in np.flatnonzero(np.bincount(places) > capacity):
            members = np.flatnonzero(places == cell)
            places[np.setdiff1d(members, members[:: -(-len(members) // capacity)])] = -1
        return places

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The nodes of every cell."""
        assert self.cells is not None
        order = np.argsort(self.places, kind="stable")
        return np.split(order, np.searchsorted(self.places[order], np.arange(len(self.cells.centers))))[1:]

    def find(self, points: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest nodes of every point, nearest first, and squared distances, (n, k) for k <= count."""
        if self.cells is None:
            return find_nearest(points, self.nodes, count)
        neighbors = np.zeros((len(points), count), dtype=np.int64)
        squares = np.zeros((len(points), count))
        places = self.cells.assign(points)
        for cell in np.unique(places):
            rows = np.flatnonzero(places == cell)
            candidates = np.concatenate([self.members[nearby_cell] for nearby_cell in self.cells.nearby[cell]])
            indices, squares[rows] = find_nearest(points[rows], self.nodes[candidates], count)
            neighbors[rows] = candidates[indices]
        return neighbors, squares


def find_nearest(points: np.ndarray, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Search all nodes for the nearest of every point; nearest first, with squared distances, (n, k) for k <= count."""
    from sklearn.neighbors import NearestNeighbors

    if not len(points):
        width = min(count, len(nodes))
        return np.zeros((0, width), dtype=np.int64), np.zeros((0, width))
    search = NearestNeighbors(n_neighbors=min(count, len(nodes)), algorithm="brute").fit(nodes)
    distances, neighbors = search.kneighbors(points)
    return neighbors, distances.astype(np.float64) ** 2
