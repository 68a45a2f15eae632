"""Expansion measured on examples: a graph of neighbors, and a search for sets that expand badly.

c(p) is a minimum over all sets, and finding it is hard; random sets expand well and overestimate it. The search
therefore tries sets that are likely to be bad: sweeps along the slowest directions of a random walk on the graph, balls
around single examples, greedily grown sets, connected components, and sets that the caller passes. The result is an
upper bound of the graph's c. The graph itself is only a sample: its k or radius is a choice, and a finite sample says
nothing certain about the distribution behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.theory.expansion import StepExpansion
from csst.theory.weighted_errors import check_weights, least_error

#: the largest number of examples: the spectral sweep is dense, n x n
MOST_EXAMPLES = 5000


def knn_graph(embeddings: Tensor, k: int) -> np.ndarray:
    """Return the graph in which x and x' are neighbors if one is among the k nearest of the other (or is the other).

    Args:
        embeddings: vectors of n examples, (n, d).
        k: the number of neighbors, from 1 to n - 1.

    Returns:
        The neighbors of each example, (n, n), bool, symmetric.
    """
    points = _check_points(embeddings)
    if not 0 < k < len(points):
        raise InputError(f"k nearest neighbors need 0 < k < n; found k = {k} for {len(points)} examples")
    distance = torch.cdist(points, points).fill_diagonal_(float("inf"))
    graph = torch.eye(len(points), dtype=torch.bool).scatter(1, distance.topk(k, largest=False).indices, True)
    return (graph | graph.T).numpy()


def view_graph(views: Tensor, radius: float) -> np.ndarray:
    """Return the graph in which x and x' are neighbors if views of the two lie within 2 radius of each other.

    B(x) = points within `radius` of a view of x, and N(x) = {x' : B(x) and B(x') meet} for the views that were drawn.
    Paper, Sec. 3.3.

    Args:
        views: embeddings of several views of each example, (n, draws, d).
        radius: the radius of the balls.

    Returns:
        The neighbors of each example, (n, n), bool, symmetric.
    """
    if views.ndim != 3 or not radius >= 0:
        raise InputError(f"views need shape (n, draws, d) and a radius >= 0; found {tuple(views.shape)}, {radius}")
    points = views.double()
    graph = torch.eye(len(points), dtype=torch.bool)
    for i in range(points.shape[1]):
        for j in range(points.shape[1]):
            graph |= torch.cdist(_check_points(points[:, i]), points[:, j]) <= 2 * radius
    return (graph | graph.T).numpy()


def view_radius(views: Tensor) -> float:
    """Return the median distance between two views of one example: how far the views reach."""
    if views.ndim != 3 or views.shape[1] < 2:
        raise InputError(f"a radius needs two views of each example, shape (n, draws, d); found {tuple(views.shape)}")
    return float((views[:, 1:] - views[:, :1]).double().norm(dim=2).median())


def empirical_expansion(
    masses: Any, neighbors: Any, candidates: Sequence[Any] = (), seeds: int = 24, directions: int = 8
) -> StepExpansion:
    """Return an upper bound of c for a distribution on a graph, from the worst sets found.

    Paper, Sec. 3.3, Definition 1 [c-exp-def].

    Args:
        masses: Q of each example, (n,), which sum to 1.
        neighbors: the neighbors of each example, (n, n), bool, symmetric.
        candidates: masks of further sets to try, each (n,), bool, such as the model's mistakes.
        seeds: the number of examples around which sets are grown.
        directions: the number of slow directions of the graph to sweep.

    Returns:
        The expansion of the tried sets.
    """
    mass, graph = _check_graph(masses, neighbors)
    sizes = []
    neighborhoods = []
    for order in _list_orders(mass, graph, seeds, directions):
        for set_sizes, set_neighborhoods in sweep(mass, graph, order):
            sizes.append(set_sizes)
            neighborhoods.append(set_neighborhoods)
    for candidate in candidates:
        members = np.asarray(candidate, bool)
        if members.shape != mass.shape:
            raise InputError(f"a candidate set is a mask over the {len(mass)} examples; found shape {members.shape}")
        neighborhood = graph[members].any(0)
        largest_set = ~graph[:, ~neighborhood].any(1)  # with the same neighborhood
        sizes.append(np.array([mass[members].sum(), mass[largest_set].sum()]))
        neighborhoods.append(np.array([mass[neighborhood].sum()] * 2))
    return StepExpansion.of_sets(np.concatenate(sizes), np.concatenate(neighborhoods))


def conflict(weights: Any, labels: Tensor, neighbors: Any) -> float:
    """Return a lower bound of err_w(F) + R_{B,w}(F) of any classifier F on these examples and this graph.

    If B(x) and B(x') meet and their classes want different predictions, F is wrong at one of the two or not constant
    around it. The bound is the least cost of giving up one end of each such link, bounded from below by prices on the
    links (the dual of weighted vertex cover); a wrong prediction costs at least as much as the second-best one.

    Args:
        weights: w, (K, K), non-negative.
        labels: class indices, (n,).
        neighbors: the neighbors of each example, (n, n), bool.

    Returns:
        The bound, in units of err_w.
    """
    matrix = check_weights(weights)
    top = matrix.topk(2, 1)
    predictions = top.indices[:, 0][labels].numpy()
    cost = top.values[:, 0] - top.values[:, 1]
    counts = torch.bincount(labels, minlength=len(matrix)).clamp(min=1)
    budget = (cost / counts)[labels].numpy()  # the cost of each example that its links have not yet paid
    graph = np.asarray(neighbors, bool)
    total = 0.0
    for point in range(len(budget)):
        rivals = np.flatnonzero(graph[point] & (predictions != predictions[point]))
        prices = np.diff(np.minimum(np.cumsum(budget[rivals]), budget[point]), prepend=0.0)
        budget[rivals] -= prices
        budget[point] -= prices.sum()
        total += float(prices.sum())
    return least_error(matrix) + total


def sweep(mass: np.ndarray, graph: np.ndarray, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield Q(S) and Q(N(S)) of every beginning S of an order, then of the largest sets with the same neighborhoods."""
    rank = np.empty(len(order), int)
    rank[order] = np.arange(len(order))
    entry = np.where(graph, rank[None, :], len(order)).min(1)  # the step at which a point enters N(S)
    enclosure = np.where(graph, entry[None, :], -1).max(1)  # the step at which its last neighbor does
    neighborhoods = np.cumsum(np.bincount(entry, mass, len(order)))
    yield np.cumsum(mass[order]), neighborhoods
    yield np.cumsum(np.bincount(enclosure, mass, len(order))), neighborhoods


def _list_orders(mass: np.ndarray, graph: np.ndarray, seeds: int, directions: int) -> Iterator[np.ndarray]:
    """Yield orders of the examples whose beginnings are likely to expand badly."""
    from scipy.sparse.csgraph import connected_components

    # connected components, which do not expand at all: each by itself, then all, the lightest first
    count, component = connected_components(graph, directed=False)
    component_mass = np.bincount(component, mass, count)
    for index in np.argsort(component_mass)[: 4 * seeds]:
        yield np.argsort(component != index, kind="stable")
    yield np.argsort(component_mass[component], kind="stable")
    # the slowest directions of the random walk, as in spectral clustering
    degree = graph.sum(1).astype(float)
    values, vectors = np.linalg.eigh(graph / np.sqrt(degree[:, None] * degree[None, :]))
    for rank in range(1, min(directions + 1, len(mass))):
        direction = vectors[:, np.argsort(values)[-1 - rank]] / np.sqrt(degree)
        yield np.argsort(direction)
        yield np.argsort(-direction)
    # heat that spreads from single examples, over short and long walks
    starts = np.random.default_rng(0).permutation(len(mass))[:seeds]
    source = np.eye(len(mass))[starts]
    walk = graph / degree[:, None]
    for restart in (0.3, 0.03):
        heat = source
        for _ in range(int(3 / restart)):
            heat = restart * source + (1 - restart) * heat @ walk
        for row in heat / degree:
            yield np.argsort(-row, kind="stable")
    for start in starts[: max(1, seeds // 3)]:
        yield _grow(mass, graph, int(start))


def _grow(mass: np.ndarray, graph: np.ndarray, start: int) -> np.ndarray:
    """Return an order from one example on, adding the one with the least new neighborhood per mass, up to half."""
    float_graph = graph.astype(np.float32)
    members = np.zeros(len(mass), bool)
    members[start] = True
    neighborhood = graph[start].copy()
    order = [start]
    size = mass[start]
    while size < 0.5 * mass.sum() and len(order) < len(mass):
        new_mass = float_graph @ np.where(neighborhood, 0, mass).astype(np.float32)
        price = np.where(members, np.inf, new_mass / np.maximum(mass, 1e-30))
        point = int(price.argmin())
        members[point] = True
        neighborhood |= graph[point]
        order.append(point)
        size += mass[point]
    return np.concatenate([order, np.flatnonzero(~members)]).astype(int)


def _check_graph(masses: Any, neighbors: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return masses (n,) and neighbors (n, n), each example being its own neighbor."""
    mass = np.asarray(masses, float)
    graph = np.asarray(neighbors, bool)
    if graph.shape != (len(mass),) * 2 or (graph != graph.T).any():
        raise InputError(f"neighbors must be a symmetric matrix over the {len(mass)} examples; found {graph.shape}")
    if (mass < 0).any() or abs(mass.sum() - 1) > 1e-6:
        raise InputError(f"masses must be non-negative and sum to 1; they sum to {mass.sum():.6g}")
    if len(mass) > MOST_EXAMPLES:
        raise InputError(f"the search takes at most {MOST_EXAMPLES} examples; found {len(mass)}: take a sample")
    return mass, graph | np.eye(len(mass), dtype=bool)


def _check_points(embeddings: Tensor) -> Tensor:
    points = embeddings.detach().double().cpu()
    if points.ndim != 2 or not torch.isfinite(points).all():
        raise InputError(f"embeddings must be finite, shape (n, d); found shape {tuple(points.shape)}")
    return points
