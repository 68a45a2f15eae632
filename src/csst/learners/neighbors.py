"""The nearest of many nodes: exact while that is quick, and beyond among the nodes of nearby cells."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: nodes up to which all of them are looked at
MOST_EXACT = 20_000
#: cells that are looked at for a point, of about sqrt(nodes): of Fashion-MNIST's pixels, 99 of 100 neighbors are right
PROBED = 20
#: nodes in a cell at least, and at most as a multiple of what is usual: more are nearly all copies of each other
SMALLEST_CELL, LARGEST_CELL = 50, 4
#: rows at a time, and passes, of the search for cells
BATCH, PASSES = 4096, 5


@dataclass(frozen=True, eq=False)
class Cells:
    """Centers around which nodes lie, and the cells near each cell.

    Args:
        centers: (C, d).
        nearby: the cells whose nodes are looked at for points of a cell, itself first, (C, p).
    """

    centers: np.ndarray
    nearby: np.ndarray

    @classmethod
    def learn(cls, nodes: np.ndarray) -> Cells | None:
        """About sqrt(N) cells by k-means, so that N searches take time N^1.5; None where nodes are few."""
        from sklearn.cluster import MiniBatchKMeans

        if len(nodes) <= MOST_EXACT:
            return None
        means = MiniBatchKMeans(int(len(nodes) ** 0.5), random_state=0, n_init=1, batch_size=BATCH, max_iter=PASSES)
        centers = means.fit(nodes).cluster_centers_.astype(np.float32)
        sizes = np.bincount(find_nearest(nodes, centers, 1)[0][:, 0], minlength=len(centers))
        centers = centers[sizes >= min(SMALLEST_CELL, sizes.max())]
        return cls(centers, find_nearest(centers, centers, PROBED)[0])

    def assign(self, points: np.ndarray) -> np.ndarray:
        """The nearest center of every point, (n,)."""
        return find_nearest(points, self.centers, 1)[0][:, 0]


@dataclass(frozen=True, eq=False)
class NeighborSearch:
    """The nearest of some nodes.

    Args:
        nodes: (N, d), float32.
        cells: where to look, learned from all or nearly all of the nodes; None looks at all nodes.
    """

    nodes: np.ndarray
    cells: Cells | None = None

    @cached_property
    def places(self) -> np.ndarray:
        """The cell of every node; -1 for the nodes by which a cell is too large, which are never neighbors, (N,)."""
        assert self.cells is not None
        places = self.cells.assign(self.nodes)
        most = LARGEST_CELL * -(-len(self.nodes) // len(self.cells.centers))
        for cell in np.flatnonzero(np.bincount(places) > most):
            members = np.flatnonzero(places == cell)
            places[np.setdiff1d(members, members[:: -(-len(members) // most)])] = -1
        return places

    @cached_property
    def members(self) -> list[np.ndarray]:
        """The nodes of every cell."""
        assert self.cells is not None
        order = np.argsort(self.places, kind="stable")
        return np.split(order, np.searchsorted(self.places[order], np.arange(len(self.cells.centers))))[1:]

    def find(self, points: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest nodes of every point, nearest first, and their squared distances, (n, k) for k <= count."""
        if self.cells is None:
            return find_nearest(points, self.nodes, count)
        near, squares = np.zeros((len(points), count), dtype=np.int64), np.zeros((len(points), count))
        places = self.cells.assign(points)
        for cell in np.unique(places):
            rows = np.flatnonzero(places == cell)
            candidates = np.concatenate([self.members[other] for other in self.cells.nearby[cell]])
            chosen, squares[rows] = find_nearest(points[rows], self.nodes[candidates], count)
            near[rows] = candidates[chosen]
        return near, squares


def find_nearest(points: np.ndarray, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest of all nodes for every point, nearest first, and their squared distances, (n, k) for k <= count."""
    from sklearn.neighbors import NearestNeighbors

    if not len(points):
        width = min(count, len(nodes))
        return np.zeros((0, width), dtype=np.int64), np.zeros((0, width))
    search = NearestNeighbors(n_neighbors=min(count, len(nodes)), algorithm="brute").fit(nodes)
    distances, near = search.kneighbors(points)
    return near, distances.astype(np.float64) ** 2
