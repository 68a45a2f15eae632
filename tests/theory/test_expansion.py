"""Expansion: closed forms, the paper's thresholds, conversions, and the search for bad sets."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch

from csst.errors import InputError
from csst.theory import (
    Combined,
    GaussianExpansion,
    StepExpansion,
    empirical_expansion,
    exact_expansion,
    from_pair,
    knn_graph,
    largest_error,
    least_error,
    mixture_expansion,
    view_graph,
)
from csst.theory.graphs import conflict, view_radius
from tests.theory.plain import Phi, Space, c_of, instance


def quantile(p):
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if Phi(middle) < p else (low, middle)
    return low


@pytest.mark.parametrize("h", [0.0, 0.5, 1.0, 3.0])
def test_closed_form(h):
    """Paper, exa:c-exp-mix-gauss: c(p) = Phi(Phi^-1(p) + h) / p, non-increasing, and R_h is concave."""
    c = GaussianExpansion(h)
    grid = [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999]
    for p in grid:
        assert c(p) == pytest.approx(Phi(quantile(p) + h) / p, rel=1e-9)
        assert 1 <= c(p) <= 1 / p
    assert all(c(a) >= c(b) - 1e-12 for a, b in itertools.pairwise(grid))
    even = [k / 50 for k in range(1, 50)]
    R = [c(p) * p for p in even]
    assert all(R[k - 1] + R[k + 1] <= 2 * R[k] + 1e-12 for k in range(1, len(R) - 1))
    assert GaussianExpansion.of(d=16, r=h / 8).h == pytest.approx(h)
    assert math.isfinite(c(1e-300))


@pytest.mark.parametrize(("r", "printed", "digits"), [(0.5, 0.17, 0.1757), (1.5, 0.33, 0.3316)])
@pytest.mark.parametrize("d", [1, 64, 3072])
def test_thresholds_of_the_example(r, printed, digits, d):
    """Paper, exa:gamma-3: gamma > 3 for err_w below 0.17 (r = 1/(2 sqrt d)) and 0.33 (r = 3/(2 sqrt d))."""
    c = GaussianExpansion.of(d, r / math.sqrt(d))
    result = largest_error(c)
    assert result == pytest.approx(digits, abs=5e-5)
    assert c(printed) > 3 >= c(result + 1e-9)
    assert result < 1 / 3  # c(p) <= 1/p: nothing lies above


def test_largest_error_of_other_functions():
    assert largest_error(GaussianExpansion(0.0)) == 0.0
    assert largest_error(GaussianExpansion(50.0)) == pytest.approx(1 / 3, abs=1e-9)
    assert largest_error(from_pair(0.1, 4.0)) == pytest.approx(0.1, abs=1e-9)
    assert largest_error(GaussianExpansion(1.0), above=2.0) > largest_error(GaussianExpansion(1.0))


def test_pairs_and_functions():
    """Paper, sec:appendix-a-c-expansion: (a, c~) gives c(p) = c~ up to a and 1 above; c gives (a, c(a))."""
    c = from_pair(0.25, 3.0)
    assert [c(0.1), c(0.25), c(0.2500001), c(1.0)] == [3.0, 3.0, 1.0, 1.0]
    assert from_pair(0.5, 8.0)(0.4) == pytest.approx(2.5)  # Q(N(S)) <= 1, so no more than 1/p
    assert c.pair(0.2) == (0.2, 3.0)
    gaussian = GaussianExpansion(1.0)
    a, value = gaussian.pair(0.3)
    back = from_pair(a, value)
    for p in (0.01, 0.1, 0.3):
        assert back(p) <= gaussian(p) + 1e-12  # what follows from the pair is weaker


def test_pairs_hold_on_finite_spaces():
    """Paper, sec:appendix-a-c-expansion: Q(N(S)) >= c(a) Q(S) for all Q(S) <= a, by visiting all sets."""
    for seed in range(30):
        space, _, _ = instance(seed)
        near = np.array([[z in space.N[x] for z in range(space.n)] for x in range(space.n)])
        c = exact_expansion(space.Q, near)
        for a in (0.1, 0.3, 0.6):
            _, factor = c.pair(a)
            for S in space.sets():
                if 0 < space.mass(S) <= a:
                    assert space.mass(space.around(S)) >= factor * space.mass(S) - 1e-12


def test_what_classes_leave_to_their_mixture():
    """The expansion of P_w from that of the classes (the paper's last remark needs p / alpha_i): never too large."""
    informative = 0
    for seed in range(60):
        space, _, _ = instance(seed)
        near = np.array([[z in space.N[x] for z in range(space.n)] for x in range(space.n)])
        fractions = [sum(row) / space.total for row in space.w]
        c = Combined(tuple(exact_expansion(P, near) for P in space.P), tuple(fractions))
        pairs = space.expansion()
        for p, _ in pairs:
            assert c(p) <= max(1.0, c_of(pairs, p)) + 1e-9
            informative += c(p) > 1.2
    assert informative > 200
    mixed = mixture_expansion(1.0, [0.7, 0.2, 0.1])
    assert mixed(0.05) == pytest.approx(GaussianExpansion(1.0)(0.5))
    assert mixed(0.1) == mixed(0.6) == 1.0
    assert mixture_expansion(1.0, [1.0])(0.2) == GaussianExpansion(1.0)(0.2)
    assert mixture_expansion(1.0, [0.5, 0.5, 0.0])(0.1) == GaussianExpansion(1.0)(0.2)  # a class without weight


def test_steps():
    c = StepExpansion.of_sets([0.2, 0.1, 0.5, 0.4], [0.3, 0.4, 0.9, 0.8])
    assert [c(0.05), c(0.1), c(0.15), c(0.2), c(0.45), c(1.0)] == pytest.approx([20, 4, 4, 1.5, 1.5, 1.0])


def test_search_finds_nearly_the_worst_sets():
    """On small graphs the search is never below the truth and rarely above it."""
    rng, missed, tried = np.random.default_rng(0), 0, 0
    for _ in range(40):
        points = torch.from_numpy(rng.standard_normal((12, 2)) + 4 * rng.integers(0, 2, (12, 1)))
        near, mass = knn_graph(points, 2), rng.dirichlet(np.full(12, 3.0))
        exact, result = exact_expansion(mass, near), empirical_expansion(mass, near)
        for p in (0.1, 0.2, 0.3, 0.5):
            assert result(p) >= exact(p) - 1e-9
            tried += 1
            missed += result(p) > exact(p) * 1.05
    assert missed <= 0.1 * tried


def test_sets_that_random_ones_miss_are_found():
    """Two clusters, of which one does not expand, and a ring, on which intervals expand worst."""
    rng = np.random.default_rng(1)
    points = torch.from_numpy(np.concatenate([rng.standard_normal((60, 5)), 20 + rng.standard_normal((140, 5))]))
    near, mass = knn_graph(points, 6), np.full(200, 1 / 200)
    assert empirical_expansion(mass, near)(0.3) == pytest.approx(1.0)
    ring = np.array([[min((a - b) % 200, (b - a) % 200) <= 3 for b in range(200)] for a in range(200)])
    assert empirical_expansion(mass, ring)(0.2) == pytest.approx(46 / 40)


def test_sets_are_grown_greedily():
    """In many dimensions the worst sets are those grown point by point: as bad as plain greedy growth."""
    n = 60
    near = knn_graph(torch.from_numpy(np.random.default_rng(3).standard_normal((n, 10))), 6)
    linked = [set(np.flatnonzero(row)) for row in near]
    worst = math.inf
    for start in range(n):
        inside, covered = {start}, set(linked[start])
        while len(inside) < n // 5:
            best = min((x for x in range(n) if x not in inside), key=lambda x: len(linked[x] - covered))
            inside.add(best)
            covered |= linked[best]
        worst = min(worst, len(covered) / len(inside))
    assert empirical_expansion(np.full(n, 1 / n), near, seeds=3 * n)(0.2) <= worst + 1e-9


def test_candidates_are_tried():
    mass, near = np.full(8, 1 / 8), np.ones((8, 8), bool)
    near[:2, 2:] = near[2:, :2] = False
    inside = np.arange(8) < 1
    result = empirical_expansion(mass, near, [inside], seeds=1, directions=1)
    assert result(0.25) == pytest.approx(1.0)  # the largest set with the candidate's neighborhood
    with pytest.raises(InputError, match="mask over the 8"):
        empirical_expansion(mass, near, [np.ones(3)])


def test_graphs_match_loops():
    """Paper, Sec. 3.3: N(x) from k nearest neighbors and from overlapping views, by plain loops."""
    rng = random.Random(0)
    points = [[rng.gauss(0, 1) for _ in range(3)] for _ in range(15)]

    def far(a, b):
        return math.dist(a, b)

    near = knn_graph(torch.tensor(points), 3)
    for x in range(15):
        order = sorted((z for z in range(15) if z != x), key=lambda z: far(points[x], points[z]))[:3]
        for z in range(15):
            back = sorted((t for t in range(15) if t != z), key=lambda t: far(points[z], points[t]))[:3]
            assert near[x, z] == (x == z or z in order or x in back)
    views = [[[v + rng.gauss(0, 0.3) for v in point] for _ in range(2)] for point in points]
    linked = view_graph(torch.tensor(views), 0.4)
    for x in range(15):
        for z in range(15):
            assert linked[x, z] == (x == z or any(far(a, b) <= 0.8 for a in views[x] for b in views[z]))
    assert view_radius(torch.tensor(views)) == pytest.approx(sorted(far(a, b) for a, b in views)[7], rel=1e-5)


def test_conflicts_bound_every_classifier():
    """Neighbors of different classes: err_w + R_{B,w} of all classifiers, visited one by one, is never below."""
    tight = above = 0
    for seed in range(80):
        rng = random.Random(seed)
        n, K = 6, rng.choice([2, 3])
        labels = [*range(K), *(rng.randrange(K) for _ in range(n - K))]
        P = [[(labels[x] == i) / labels.count(i) for x in range(n)] for i in range(K)]
        balls = [{x, *(z for z in range(n) if rng.random() < 0.2)} for x in range(n)]
        w = [
            [rng.uniform(0.3, 1) if i == j else rng.choice([0, rng.uniform(0, 0.4)]) for j in range(K)]
            for i in range(K)
        ]
        space = Space(P, balls, w)
        near = np.array([[z in space.N[x] for z in range(n)] for x in range(n)])
        result = conflict(w, torch.tensor(labels), near)
        least = min(space.err(F) + space.R(F) for F in space.classifiers())
        assert result <= least + 1e-9
        tight += result > 0.95 * least
        above += result > least_error(w) + 1e-6
    assert tight > 20
    assert above > 40


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: GaussianExpansion(1.0)(0.0), "probability in"),
        (lambda: GaussianExpansion(-1.0), "h = 2 r sqrt"),
        (lambda: GaussianExpansion.of(0, 1), "dimension d must be positive"),
        (lambda: from_pair(0.5, 1.0), "c > 1"),
        (lambda: largest_error(GaussianExpansion(1), above=0.5), "at least 1"),
        (lambda: mixture_expansion(1.0, [0.5, 0.1]), "sum to 1"),
        (lambda: Combined((GaussianExpansion(1),), (0.5, 0.5)), "needs a fraction"),
        (lambda: StepExpansion.of_sets([0.5], [0.2]), "holds the set"),
        (lambda: knn_graph(torch.zeros(3, 2), 3), "0 < k < n"),
        (lambda: knn_graph(torch.full((3, 2), float("nan")), 1), "finite"),
        (lambda: view_graph(torch.zeros(3, 2), 1.0), "draws, d"),
        (lambda: view_radius(torch.zeros(3, 1, 2)), "two views"),
        (lambda: empirical_expansion([0.5, 0.5], np.ones((3, 3))), "symmetric matrix"),
        (lambda: empirical_expansion([0.5, 0.1], np.ones((2, 2))), "sum to 1"),
        (lambda: empirical_expansion(np.full(5001, 1 / 5001), np.eye(5001, dtype=bool)), "take a sample"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()
