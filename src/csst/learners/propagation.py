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
import torch
from torch import Tensor

from csst.learners.kernel import square_distances
from csst.learners.projection import Projection
from csst.learners.protocol import FittedLearner, apply

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
#: unlabeled rows in the graph, at most; other rows are scored by their nearest nodes, so that time is linear in rows
MOST_NODES = 60_000
#: nodes beyond which the equation is solved instead: values far from all labels are small, and rounds end too early
LARGE_GRAPH = 20_000
#: the residual, as a part of the right side, at which conjugate gradients end
RESIDUAL = 1e-6
#: steps of conjugate gradients, at most
MOST_STEPS = 200
#: added to all probabilities: a row far from all labels of a class may still belong to it
ADDED_PROBABILITY = 1e-3


class FittedPropagation(FittedLearner):
    """Nodes with the class probabilities that reached them, under a uniform class prior.

    Args:
        projection: the space of the nodes.
        nodes: points, (N, d), float32.
        probs: class probabilities of the nodes, (N, K).
        prior: the class fractions of the labels, (K,).
    """

    projection: Projection
    nodes: Tensor
    probs: Tensor
    prior: Tensor

    def forward(self, x: Tensor) -> Tensor:
        points = self.projection(x)
        neighbors, squares = self.search(points)
        farthest = squares.amax(1, keepdim=True)
        weights = torch.exp(-DECAY * squares / torch.where(farthest > 0, farthest, torch.ones_like(farthest)))
        probs = (weights[:, :, None] * self.probs[neighbors]).sum(1) / weights.sum(1, keepdim=True)
        return torch.log_softmax(torch.log(probs + ADDED_PROBABILITY) + torch.log(self.prior), 1)

    def search(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest nodes of each point and their squared distances, (N, k)."""
        if torch.compiler.is_compiling() or points.is_cuda:  # a graph holds tensor operations only
            squares, neighbors = square_distances(points, self.nodes).topk(
                min(NEAREST, len(self.nodes)), dim=1, largest=False
            )
            return neighbors, squares
        neighbors_array, squares_array = find_nearest(points.numpy(), self.nodes.numpy(), NEAREST)
        return torch.from_numpy(neighbors_array), torch.from_numpy(squares_array)


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
        return apply(self.projection, self.unlabeled[sample])

    @cached_property
    def among_points(self) -> tuple[np.ndarray, np.ndarray]:
        """The nearest unlabeled rows of every unlabeled row and their squared distances; the same in all folds."""
        return find_nearest(self.points, self.points, NEIGHBORS + 1)

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedPropagation:
        labeled = apply(self.projection, rows)
        nodes = np.vstack([self.points, labeled])
        counts = np.bincount(labels)
        sources = np.zeros((len(nodes), len(counts)), dtype=np.float32)
        sources[len(self.points) + np.arange(len(labels)), labels] = 1 / counts[labels]
        masses = spread_labels(make_graph(*self._join(labeled, nodes)), sources)
        total_mass = masses.sum(1, keepdims=True)
        # A node that no label reaches may be of any class.
        probs = np.where(total_mass > 0, masses / np.where(total_mass > 0, total_mass, 1), 1 / len(counts))
        return FittedPropagation(
            projection=self.projection,
            nodes=nodes,
            probs=probs.astype(np.float32),
            prior=counts / counts.sum(),
        )

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
    """Repeat F <- alpha S F + (1 - alpha) Y until F settles, (N, K); a large graph is solved by conjugate gradients."""
    if len(sources) > LARGE_GRAPH:
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
    """Return F = (1 - alpha) (I - alpha S)^-1 Y, (N, K)."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import cg

    system = (identity(len(sources)) - ALPHA * graph.astype(np.float64)).tocsr()
    columns = [cg(system, (1 - ALPHA) * column, rtol=RESIDUAL, maxiter=MOST_STEPS)[0] for column in sources.T]
    return np.maximum(np.stack(columns, axis=1), 0)


def find_nearest(points: np.ndarray, nodes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest nodes of each point, nearest first, and squared distances, (n, k) for k <= count."""
    from sklearn.neighbors import NearestNeighbors

    width = min(count, len(nodes))
    if not len(points):
        return np.zeros((0, width), dtype=np.int64), np.zeros((0, width))
    distances, neighbors = NearestNeighbors(n_neighbors=width, algorithm="brute").fit(nodes).kneighbors(points)
    return neighbors, distances.astype(np.float64) ** 2
