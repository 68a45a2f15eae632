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

#: neighbors of a node in the graph
NEIGHBORS = 10
#: neighbors of a new row
NEAREST = 15
#: the part of a row's label that comes from its neighbors
ALPHA = 0.95
#: how fast an edge weakens with the distance: exp(-DECAY d^2 / d_k^2)
DECAY = 4.0
#: rounds of F <- alpha S F + (1 - alpha) Y, at most
ROUNDS = 100
#: the change, as a part of the largest source, at which these rounds end
SMALLEST_CHANGE = 1e-4
#: the residual, as a part of the right side, at which conjugate gradients end in a large graph
RESIDUAL = 1e-6
#: steps of conjugate gradients, at most
MOST_STEPS = 200
#: unlabeled rows in the graph, at most; other rows are scored by their nearest nodes, so that time is linear in rows
MOST_NODES = 200_000
#: added to all probabilities: a row far from all labels of a class may still belong to it
ADDED_PROBABILITY = 1e-3


@dataclass(frozen=True, eq=False)
class FittedPropagation:
    """Nodes with the class probabilities that reached them, under a uniform class prior.

    Args:
        projection: the space of the nodes.
        nodes: points, (N, d), float32.
        probs: class probabilities of the nodes, (N, K).
        prior: the class fractions of the labels, (K,).
        cells: cells that limit the search among many nodes; None searches all nodes.
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
        neighbors, squares = self.search.find(self.projection.apply(rows), NEAREST)
        weights = weigh_edges(squares)
        probs = np.einsum("nk,nkc->nc", weights, self.probs[neighbors]) / weights.sum(1, keepdims=True)
        logs = np.log(probs + ADDED_PROBABILITY) + np.log(self.prior)
        return logs - np.log(np.exp(logs).sum(1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Propagation:
    """Label propagation through unlabeled rows.

    Args:
        projection: the space in which distances are measured.
        unlabeled: rows through which labels spread, (m, D); may be empty.
        most_nodes: size of the random sample of unlabeled rows in the graph.
    """

    projection: Projection
    unlabeled: Any
    most_nodes: int = MOST_NODES
    name: str = "propagation"

    @cached_property
    def points(self) -> np.ndarray:
        """The unlabeled rows in the projected space, at most `most_nodes` of them."""
        count = self.unlabeled.shape[0]
        sample = np.sort(np.random.default_rng(0).permutation(count)[: self.most_nodes])
        return self.projection.apply(self.unlabeled[sample])

    @cached_property
    def cells(self) -> Cells | None:
        """Cells that limit the search for neighbors; None if there are few rows."""
        return Cells.learn(self.points)

    @cached_property
    def among_points(self) -> tuple[np.ndarray, np.ndarray]:
        """The nearest unlabeled rows of every unlabeled row and their squared distances; the same in all folds."""
        return NeighborSearch(self.points, self.cells).find(self.points, NEIGHBORS + 1)

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedPropagation:
        classes = int(labels.max()) + 1
        row_weights = np.ones(len(labels)) if weights is None else weights
        labeled = self.projection.apply(rows)
        nodes = np.vstack([self.points, labeled])
        totals = np.bincount(labels, row_weights, minlength=classes)
        sources = np.zeros((len(nodes), classes), dtype=np.float32)
        sources[len(self.points) + np.arange(len(labels)), labels] = row_weights / totals[labels]
        masses = spread_labels(make_graph(*self._join(labeled, nodes)), sources)
        total_mass = masses.sum(1, keepdims=True)
        # A node that no label reaches may be of any class.
        probs = np.where(total_mass > 0, masses / np.where(total_mass > 0, total_mass, 1), 1 / classes)
        return FittedPropagation(self.projection, nodes, probs.astype(np.float32), totals / totals.sum(), self.cells)

    def _join(self, labeled: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest nodes of every node and their squared distances, (N, k); a node itself comes first."""
        labeled_neighbors, labeled_squares = find_nearest(labeled, nodes, NEIGHBORS + 1)
        count = len(self.points)
        if not count:
            return labeled_neighbors, labeled_squares
        # The nearest nodes of an unlabeled row are among its nearest unlabeled rows and its nearest labeled rows.
        near_points, point_squares = self.among_points
        near_labeled, squares_to_labeled = find_nearest(self.points, labeled, NEIGHBORS)
        candidates = np.hstack([near_points, near_labeled + count])
        squares = np.hstack([point_squares, squares_to_labeled])
        order = np.argsort(squares, axis=1, kind="stable")[:, : labeled_neighbors.shape[1]]
        neighbors = np.vstack([np.take_along_axis(candidates, order, 1), labeled_neighbors])
        return neighbors, np.vstack([np.take_along_axis(squares, order, 1), labeled_squares])


def weigh_edges(squares: np.ndarray) -> np.ndarray:
    """Return w_ij = exp(-4 d_ij^2 / d_ik^2), where k is the farthest neighbor; 1 if all distances are 0."""
    farthest = squares.max(1, keepdims=True)
    return np.exp(-DECAY * squares / np.where(farthest > 0, farthest, 1.0))


def make_graph(neighbors: np.ndarray, squares: np.ndarray) -> Any:
    """Return S = D^-1/2 W D^-1/2 for W = max(W, W'), from the neighbors of all nodes (N, k), without loops."""
    from scipy.sparse import csr_matrix, diags

    count, width = neighbors.shape
    rows = np.repeat(np.arange(count), width)
    weights = csr_matrix((weigh_edges(squares).ravel(), (rows, neighbors.ravel())), shape=(count, count))
    weights.setdiag(0)
    weights.eliminate_zeros()
    weights = weights.maximum(weights.T).tocsr()
    degrees = np.asarray(weights.sum(1)).ravel()
    scale = diags(np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0))
    return (scale @ weights @ scale).tocsr().astype(np.float32)


def spread_labels(graph: Any, sources: np.ndarray) -> np.ndarray:
    """Repeat F <- alpha S F + (1 - alpha) Y until F settles, (N, K); conjugate gradients solve a large graph."""
    if len(sources) > MOST_EXACT:
        return solve_system(graph, sources)
    start = (1 - ALPHA) * sources
    masses = start
    for _ in range(ROUNDS):
        last_masses = masses
        masses = ALPHA * (graph @ masses) + start
        if float(np.abs(masses - last_masses).max()) < SMALLEST_CHANGE * float(start.max()):
            break
    return masses


def solve_system(graph: Any, sources: np.ndarray) -> np.ndarray:
    """Return F = (1 - alpha) (I - alpha S)^-1 Y, exact also for the small values of nodes far from all labels."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import cg

    system = (identity(len(sources)) - ALPHA * graph.astype(np.float64)).tocsr()
    columns = [cg(system, (1 - ALPHA) * column, rtol=RESIDUAL, maxiter=MOST_STEPS)[0] for column in sources.T]
    return np.maximum(np.stack(columns, axis=1), 0)
