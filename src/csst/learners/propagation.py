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

from csst.learners.projection import Projection

#: neighbors in the graph, and of a new row
NEIGHBORS, NEAREST = 10, 15
#: the part of a row's label that comes from its neighbors
ALPHA = 0.95
#: how fast an edge weakens with the distance: exp(-DECAY d^2 / d_k^2)
DECAY = 4.0
#: rounds of F <- alpha S F + (1 - alpha) Y, and the largest change at which they end
ROUNDS, CLOSE = 100, 1e-4
#: unlabeled rows in the graph: every row beyond is scored by its nearest ones, so that time stays linear in rows
MOST_NODES = 10_000
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
    """

    projection: Projection
    nodes: np.ndarray
    probs: np.ndarray
    prior: np.ndarray

    def log_probs(self, rows: Any) -> np.ndarray:
        near, squares = find_neighbors(self.projection.apply(rows), self.nodes, NEAREST)
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
    """

    projection: Projection
    unlabeled: Any
    name: str = "propagation"

    @cached_property
    def points(self) -> np.ndarray:
        """The unlabeled rows in the projected space, at most 10,000 of them."""
        count = self.unlabeled.shape[0]
        chosen = np.sort(np.random.default_rng(0).permutation(count)[:MOST_NODES])
        return self.projection.apply(self.unlabeled[chosen])

    @cached_property
    def among_points(self) -> tuple[np.ndarray, np.ndarray]:
        """The nearest unlabeled rows of every unlabeled row but itself, which stay the same from fold to fold."""
        near, squares = find_neighbors(self.points, self.points, NEIGHBORS + 1)
        return near, squares

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
        return FittedPropagation(self.projection, nodes, probs.astype(np.float32), totals / totals.sum())

    def _join(self, labeled: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest nodes of every node, and their squared distances, (N, k); a node itself comes first."""
        nearest = find_neighbors(labeled, nodes, NEIGHBORS + 1)
        count = len(self.points)
        if not count:
            return nearest
        near, squares = self.among_points
        more, apart = find_neighbors(self.points, labeled, NEIGHBORS)
        near, squares = np.hstack([near, more + count]), np.hstack([squares, apart])
        width = nearest[0].shape[1]
        order = np.argsort(squares, axis=1, kind="stable")[:, :width]
        near, squares = np.take_along_axis(near, order, 1), np.take_along_axis(squares, order, 1)
        return np.vstack([near, nearest[0]]), np.vstack([squares, nearest[1]])


def find_neighbors(points: np.ndarray, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest nodes of every point, nearest first, and their squared distances, (N, k) for k <= count."""
    from sklearn.neighbors import NearestNeighbors

    if not len(points):
        width = min(count, len(nodes))
        return np.zeros((0, width), dtype=np.int64), np.zeros((0, width))
    search = NearestNeighbors(n_neighbors=min(count, len(nodes)), algorithm="brute").fit(nodes)
    distances, near = search.kneighbors(points)
    return near, distances.astype(np.float64) ** 2


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
    """F <- alpha S F + (1 - alpha) Y until it stays, (N, K)."""
    spread = start = (1 - ALPHA) * sources
    for _ in range(ROUNDS):
        moved = ALPHA * (graph @ spread) + start
        change, spread = float(np.abs(moved - spread).max()), moved
        if change < CLOSE * float(start.max()):
            break
    return spread
