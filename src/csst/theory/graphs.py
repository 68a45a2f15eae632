"""Expansion measured on examples: a graph of neighbors, and a search for sets that expand badly.

c(p) is a minimum over all sets, and finding it is hard; random sets expand well and over-estimate it. So sets are
sought that are likely to be bad: sweeps along the graph's slow directions, around single examples, grown greedily, its
connected pieces, and sets of the user's. What is found is an upper bound of the graph's own c. And the graph is only a
sample: its k or radius is a choice, and a finite sample says nothing certain about the distribution behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.theory.errors import check_weights, least_error
from csst.theory.expansion import StepExpansion

#: the spectral sweep is dense: n x n
LARGEST = 5000


def knn_graph(embeddings: Tensor, k: int) -> np.ndarray:
    """The graph in which x and x' are neighbors if one is among the k nearest of the other (or is the other).

    Args:
        embeddings: of n examples, (n, d).
        k: how many, from 1 to n - 1.

    Returns:
        Which are neighbors, (n, n), bool, symmetric.
    """
    points = _points(embeddings)
    if not 0 < k < len(points):
        raise InputError(f"k nearest neighbors need 0 < k < n; found k = {k} for {len(points)} examples")
    distance = torch.cdist(points, points).fill_diagonal_(float("inf"))
    linked = torch.zeros(len(points), len(points), dtype=torch.bool)
    linked.scatter_(1, distance.topk(k, largest=False).indices, torch.ones((), dtype=torch.bool).expand(len(points), k))
    return (linked | linked.T | torch.eye(len(points), dtype=torch.bool)).numpy()


def view_graph(views: Tensor, radius: float) -> np.ndarray:
    """The graph in which x and x' are neighbors if a view of one lies within 2 radius of a view of the other.

    B(x) = points within `radius` of a view of x, and N(x) = {x' : B(x) and B(x') meet} for the views that were drawn.
    Paper, Sec. 3.3.

    Args:
        views: embeddings of several views of each example, (n, draws, d).
        radius: of the balls.

    Returns:
        Which are neighbors, (n, n), bool, symmetric.
    """
    if views.ndim != 3 or not radius >= 0:
        raise InputError(f"views need shape (n, draws, d) and a radius >= 0; found {tuple(views.shape)}, {radius}")
    drawn = views.double()
    linked = torch.eye(len(drawn), dtype=torch.bool)
    for first in range(drawn.shape[1]):
        for second in range(drawn.shape[1]):
            linked |= torch.cdist(_points(drawn[:, first]), drawn[:, second]) <= 2 * radius
    return (linked | linked.T).numpy()


def view_radius(views: Tensor) -> float:
    """The median distance between two views of one example: how far the views themselves reach."""
    if views.ndim != 3 or views.shape[1] < 2:
        raise InputError(f"a radius needs two views of each example, shape (n, draws, d); found {tuple(views.shape)}")
    return float((views[:, 1:] - views[:, :1]).double().norm(dim=2).median())


def empirical_expansion(
    masses: Any, neighbors: Any, candidates: Sequence[Any] = (), seeds: int = 24, directions: int = 8, seed: int = 0
) -> StepExpansion:
    """An upper bound of c for a distribution on a graph, from the worst sets found.

    Paper, Sec. 3.3, Definition 1 [c-exp-def].

    Args:
        masses: Q of each example, (n,), which sum to 1.
        neighbors: which are neighbors, (n, n), bool, symmetric.
        candidates: masks of sets to try as well, each (n,), bool, such as the model's mistakes.
        seeds: how many examples sets are grown around.
        directions: how many slow directions of the graph are swept.
        seed: of the choice of examples.

    Returns:
        The expansion of the sets that were tried.
    """
    mass, near = _graph(masses, neighbors)
    sizes, around = [], []
    for order in _orders(mass, near, seeds, directions, np.random.default_rng(seed)):
        for size, wide in sweep(mass, near, order):
            sizes.append(size)
            around.append(wide)
    for candidate in candidates:
        inside = np.asarray(candidate, bool)
        if inside.shape != mass.shape:
            raise InputError(f"a candidate set is a mask over the {len(mass)} examples; found shape {inside.shape}")
        covered = near[inside].any(0)
        full = ~near[:, ~covered].any(1)  # the largest set with that neighborhood
        sizes.append(np.array([mass[inside].sum(), mass[full].sum()]))
        around.append(np.array([mass[covered].sum()] * 2))
    return StepExpansion.of_sets(np.concatenate(sizes), np.concatenate(around))


def random_expansion(masses: Any, neighbors: Any, sets: int = 200, seed: int = 0) -> StepExpansion:
    """The same from random sets: what a careless estimate would say. Nearly always far too large.

    Args:
        masses: Q of each example, (n,), which sum to 1.
        neighbors: which are neighbors, (n, n), bool, symmetric.
        sets: how many orders of the examples are drawn.
        seed: of the orders.

    Returns:
        The expansion of the sets that were drawn.
    """
    mass, near = _graph(masses, neighbors)
    rng = np.random.default_rng(seed)
    drawn = [next(iter(sweep(mass, near, rng.permutation(len(mass))))) for _ in range(sets)]
    return StepExpansion.of_sets(np.concatenate([d[0] for d in drawn]), np.concatenate([d[1] for d in drawn]))


def conflict(weights: Any, labels: Tensor, neighbors: Any) -> float:
    """A lower bound of err_w(F) + R_{B,w}(F) of every classifier F whatsoever, on these examples and this graph.

    Where B(x) and B(x') meet and the classes want different predictions, one of the two is wrong or F is not
    constant around it. The least cost of giving up one end of each such link, bounded from below by prices on the
    links (the dual of weighted vertex cover); a wrong prediction costs at least what the second best one does.

    Args:
        weights: w, (K, K), non-negative.
        labels: class indices, (n,).
        neighbors: which are neighbors, (n, n), bool.

    Returns:
        The bound, in units of err_w.
    """
    matrix = check_weights(weights)
    best = matrix.topk(2, 1)
    want, lost = best.indices[:, 0][labels].numpy(), best.values[:, 0] - best.values[:, 1]
    fraction = (lost / torch.bincount(labels, minlength=len(matrix)).clamp(min=1))[labels].numpy()
    near, left, paid = np.asarray(neighbors, bool), fraction.copy(), 0.0
    for point in range(len(left)):
        others = np.flatnonzero(near[point] & (want != want[point]))
        gives = np.diff(np.minimum(np.cumsum(left[others]), left[point]), prepend=0.0)
        left[others] -= gives
        left[point] -= gives.sum()
        paid += float(gives.sum())
    return least_error(matrix) + paid


def sweep(mass: np.ndarray, near: np.ndarray, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Q(S) and Q(N(S)) for every beginning S of an order; then for the largest sets with the same neighborhoods."""
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    reached = np.where(near, rank[None, :], len(order)).min(1)  # when a point enters N(S)
    enclosed = np.where(near, reached[None, :], -1).max(1)  # when all its neighbors have
    around = np.cumsum(np.bincount(reached, mass, len(order)))
    yield np.cumsum(mass[order]), around
    yield np.cumsum(np.bincount(enclosed, mass, len(order))), around


def _orders(
    mass: np.ndarray, near: np.ndarray, seeds: int, directions: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    from scipy.sparse.csgraph import connected_components

    pieces, piece = connected_components(near, directed=False)
    fraction = np.bincount(piece, mass, pieces)
    for first in np.argsort(fraction)[: 4 * seeds]:
        yield np.argsort(piece != first, kind="stable")
    yield np.argsort(fraction[piece], kind="stable")  # pieces together, the lightest first
    degree = near.sum(1).astype(float)
    spread = near / np.sqrt(degree[:, None] * degree[None, :])
    values, vectors = np.linalg.eigh(spread)
    for slow in range(1, min(directions + 1, len(mass))):
        direction = vectors[:, np.argsort(values)[-1 - slow]] / np.sqrt(degree)
        yield np.argsort(direction)
        yield np.argsort(-direction)
    starts = rng.permutation(len(mass))[:seeds]
    walk = near / degree[:, None]
    for stay in (0.3, 0.03):
        heat = start = np.eye(len(mass))[starts]
        for _ in range(int(3 / stay)):
            heat = stay * start + (1 - stay) * heat @ walk
        for row in heat / degree:
            yield np.argsort(-row, kind="stable")
    for point in starts[: max(1, seeds // 3)]:
        yield _grow(mass, near, int(point))


def _grow(mass: np.ndarray, near: np.ndarray, start: int) -> np.ndarray:
    """From one example on, always the one that brings the least new neighborhood for its own mass; up to half."""
    near_float = near.astype(np.float32)
    inside, covered, order, size = np.zeros(len(mass), bool), near[start].copy(), [start], mass[start]
    inside[start] = True
    while size < 0.5 * mass.sum() and len(order) < len(mass):
        brings = near_float @ np.where(covered, 0, mass).astype(np.float32)
        price = np.where(inside, np.inf, brings / np.maximum(mass, 1e-30))
        best = int(price.argmin())
        inside[best], size = True, size + mass[best]
        covered |= near[best]
        order.append(best)
    return np.concatenate([order, np.flatnonzero(~inside)]).astype(int)


def _graph(masses: Any, neighbors: Any) -> tuple[np.ndarray, np.ndarray]:
    mass, near = np.asarray(masses, float), np.asarray(neighbors, bool)
    if near.shape != (len(mass),) * 2 or (near != near.T).any():
        raise InputError(f"neighbors must be a symmetric matrix over the {len(mass)} examples; found {near.shape}")
    if (mass < 0).any() or abs(mass.sum() - 1) > 1e-6:
        raise InputError(f"masses must be non-negative and sum to 1; they sum to {mass.sum():.6g}")
    if len(mass) > LARGEST:
        raise InputError(f"the search takes at most {LARGEST} examples; found {len(mass)}: take a sample")
    return mass, near | np.eye(len(mass), dtype=bool)


def _points(embeddings: Tensor) -> Tensor:
    points = embeddings.detach().double().cpu()
    if points.ndim != 2 or not torch.isfinite(points).all():
        raise InputError(f"embeddings must be finite, shape (n, d); found shape {tuple(points.shape)}")
    return points
