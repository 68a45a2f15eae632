"""Labels spread over the nearest neighbors of labeled and unlabeled rows.

    F = (1 - alpha) (I - alpha S)^-1 Y,    S = D^-1/2 W D^-1/2,    Y_ik = 1/n_k for row i with label k

W joins every row to its nearest neighbors (Zhou, Bousquet, Lal, Weston and Schölkopf, 2004); classes are sources of the
same strength however many labels they have. A new row takes the mean of its nearest rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from csst.learners.neighbors import MOST_EXACT, Cells, NeighborSearch, find_nearest
from csst.learners.projection import Projection

#: neighbors in the graph, and of a new row
NEIGHBORS, NEAREST = 10, 15
#: the part of a row's label that comes from its neighbors
ALPHA = 0.95
#: how fast an edge weakens with the distance: exp(-DECAY d^2 / d_k^2)
DECAY = 4.0
#: rounds of F <- alpha S F + (1 - alpha) Y, and the largest change at which they end
ROUNDS, CLOSE = 100, 1e-4
#: the residual, as a part of the right side, at which conjugate gradients end in a large graph, and their most rounds
RESIDUAL, MOST_STEPS = 1e-6, 200
#: unlabeled rows in the graph: every row beyond is scored by its nearest ones, so that time stays linear in rows
MOST_NODES = 200_000
#: a row far from all labels of a class may still be of it
SMALLEST_PROBABILITY = 1e-3


@dataclass(frozen=True, eq=False)
class FittedPropagation:
    """Nodes with the class probabilities that reached them, under a uniform class balance.

    Args:
        projection: the space of the nodes.
        nodes: (N, d), float32.
        probs: (N, K).
        prior: the class fractions of the labels, (K,).
        cells: where the nearest of many nodes are looked for; None for all nodes.
    """

    projection: Projection
    nodes: np.ndarray
    probs: np.ndarray
    prior: np.ndarray
    cells: Cells | None = None

    @cached_property
    def search(self) -> NeighborSearch:
        return NeighborSearch(self.nodes, self.cells)

    def log_probs(self, rows: Any) -> np.ndarray:
        near, squares = self.search.find(self.projection.apply(rows), NEAREST)
        weights = weigh_edges(squares)
        mixed = np.einsum("nk,nkc->nc", weights, self.probs[near]) / weights.sum(1, keepdims=True)
        logs = np.log(mixed + SMALLEST_PROBABILITY) + np.log(self.prior)
        return logs - np.log(np.exp(logs).sum(1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Propagation:
    """Label propagation through unlabeled rows.

    Args:
        projection: the space in which neighbors are near.
        unlabeled: rows through which labels spread, (m, D); there may be none.
        most_nodes: a random choice of so many of them is in the graph.
    """

    projection: Projection
    unlabeled: Any
    most_nodes: int = MOST_NODES
    name: str = "propagation"

    @cached_property
    def points(self) -> np.ndarray:
        """The unlabeled rows in the projected space, at most `most_nodes` of them."""
        count = self.unlabeled.shape[0]
        chosen = np.sort(np.random.default_rng(0).permutation(count)[: self.most_nodes])
        return self.projection.apply(self.unlabeled[chosen])

    @cached_property
    def cells(self) -> Cells | None:
        """Where the nearest of these rows are looked for, if they are many."""
        return Cells.learn(self.points)

    @cached_property
    def among_points(self) -> tuple[np.ndarray, np.ndarray]:
        """The nearest unlabeled rows of every unlabeled row but itself, which stay the same from fold to fold."""
        return NeighborSearch(self.points, self.cells).find(self.points, NEIGHBORS + 1)

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedPropagation:
        classes, share = int(labels.max()) + 1, np.ones(len(labels)) if weights is None else weights
        labeled = self.projection.apply(rows)
        nodes = np.vstack([self.points, labeled])
        near, squares = self._join(labeled, nodes)
        sources = np.zeros((len(nodes), classes), dtype=np.float32)
        totals = np.bincount(labels, share, minlength=classes)
        sources[len(self.points) + np.arange(len(labels)), labels] = share / totals[labels]
        spread = spread_labels(make_graph(near, squares), sources)
        mass = spread.sum(1, keepdims=True)
        probs = np.where(mass > 0, spread / np.where(mass > 0, mass, 1), 1 / classes)
        return FittedPropagation(self.projection, nodes, probs.astype(np.float32), totals / totals.sum(), self.cells)

    def _join(self, labeled: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest nodes of every node, and their squared distances, (N, k); a node itself comes first."""
        nearest = find_nearest(labeled, nodes, NEIGHBORS + 1)
        count = len(self.points)
        if not count:
            return nearest
        near, squares = self.among_points
        more, apart = find_nearest(self.points, labeled, NEIGHBORS)
        near, squares = np.hstack([near, more + count]), np.hstack([squares, apart])
        width = nearest[0].shape[1]
        order = np.argsort(squares, axis=1, kind="stable")[:, :width]
        near, squares = np.take_along_axis(near, order, 1), np.take_along_axis(squares, order, 1)
        return np.vstack([near, nearest[0]]), np.vstack([squares, nearest[1]])


def weigh_edges(squares: np.ndarray) -> np.ndarray:
    """w_ij = exp(-4 d_ij^2 / d_ik^2), where the k-th neighbor is the farthest; 1 where all are in one place."""
    farthest = squares.max(1, keepdims=True)
    return np.exp(-DECAY * squares / np.where(farthest > 0, farthest, 1.0))


def make_graph(near: np.ndarray, squares: np.ndarray) -> Any:
    """S = D^-1/2 W D^-1/2 for W = max(W, W'), from every node's neighbors (N, k), itself included and left out."""
    from scipy.sparse import csr_matrix, diags

    count, width = near.shape
    rows = np.repeat(np.arange(count), width)
    weights = csr_matrix((weigh_edges(squares).ravel(), (rows, near.ravel())), shape=(count, count))
    weights.setdiag(0)
    weights.eliminate_zeros()
    weights = weights.maximum(weights.T).tocsr()
    degrees = np.asarray(weights.sum(1)).ravel()
    scale = diags(np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0))
    return (scale @ weights @ scale).tocsr().astype(np.float32)


def spread_labels(graph: Any, sources: np.ndarray) -> np.ndarray:
    """F <- alpha S F + (1 - alpha) Y until it stays, (N, K); a large graph is solved by conjugate gradients."""
    if len(sources) > MOST_EXACT:
        return solve_system(graph, sources)
    spread = start = (1 - ALPHA) * sources
    for _ in range(ROUNDS):
        moved = ALPHA * (graph @ spread) + start
        change, spread = float(np.abs(moved - spread).max()), moved
        if change < CLOSE * float(start.max()):
            break
    return spread


def solve_system(graph: Any, sources: np.ndarray) -> np.ndarray:
    """F = (1 - alpha) (I - alpha S)^-1 Y: little reaches a node far from all labels, and must be right too."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import cg

    system = (identity(len(sources)) - ALPHA * graph.astype(np.float64)).tocsr()
    solved = [cg(system, (1 - ALPHA) * column, rtol=RESIDUAL, maxiter=MOST_STEPS)[0] for column in sources.T]
    return np.maximum(np.stack(solved, axis=1), 0)
