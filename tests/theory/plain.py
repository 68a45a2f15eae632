"""Section 3 of the paper with loops over plain floats; nothing here uses the library.

A finite space: P[i][x], balls[x] = the set B(x), w[i][j]. A classifier is a tuple of predictions.
The line: a classifier is (breaks, values), values[k] between breaks k-1 and k.
"""

import itertools
import math
import random
from dataclasses import dataclass

# ---------------------------------------------------------------- finite spaces


@dataclass
class Space:
    P: list
    balls: list
    w: list

    def __post_init__(self):
        self.K, self.n = len(self.P), len(self.balls)
        self.total = sum(sum(row) for row in self.w)
        rows = [sum(row) for row in self.w]
        self.Q = [sum(rows[i] * self.P[i][x] for i in range(self.K)) / self.total for x in range(self.n)]
        self.N = [{z for z in range(self.n) if self.balls[x] & self.balls[z]} for x in range(self.n)]
        # cost[x][k]: what predicting k at x adds to err_w
        self.cost = [
            [
                sum(self.w[i][j] * self.P[i][x] for i in range(self.K) for j in range(self.K) if j != k)
                for k in range(self.K)
            ]
            for x in range(self.n)
        ]

    def err(self, F):
        return sum(self.cost[x][F[x]] for x in range(self.n))

    def mass(self, points):
        return sum(self.Q[x] for x in points)

    def differ(self, F, H):
        """{x : F(x) != H(x)}"""
        return {x for x in range(self.n) if F[x] != H[x]}

    def unsteady(self, F):
        """The complement of S_B(F)."""
        return {x for x in range(self.n) if any(F[z] != F[x] for z in self.balls[x])}

    def L(self, F, H):
        return self.total * self.mass(self.differ(F, H))

    def R(self, F):
        return self.total * self.mass(self.unsteady(F))

    def around(self, S):
        return set().union(*(self.N[x] for x in S)) if S else set()

    def sets(self):
        for size in range(1, self.n + 1):
            for S in itertools.combinations(range(self.n), size):
                yield set(S)

    def expansion(self):
        """[(Q(S), Q(N(S)) / Q(S))] of every set of positive mass."""
        return [(self.mass(S), self.mass(self.around(S)) / self.mass(S)) for S in self.sets() if self.mass(S) > 0]

    def classifiers(self):
        return itertools.product(range(self.K), repeat=self.n)


def c_of(pairs, p):
    """The largest non-increasing c: the smallest factor of a set of mass at most p."""
    return min((factor for size, factor in pairs if size <= p + 1e-12), default=math.inf)


def instance(seed):
    """Clusters of points, one for each class, with few links between them, and a labeler that errs on light points."""
    rng = random.Random(seed)
    K = rng.choice([2, 2, 3])
    n = 7 if K == 2 else 6
    home = [x % K for x in range(n)]
    leak = rng.choice([0.0, 0.0, 0.02, 0.1])
    P = []
    for i in range(K):
        raw = [rng.gammavariate(1.5, 1) * (1.0 if home[x] == i else leak) for x in range(n)]
        P.append([value / sum(raw) for value in raw])
    inside, across = rng.uniform(0.3, 1), rng.choice([0.0, 0.0, 0.1, 0.5])
    balls = []
    for x in range(n):
        ball = {z for z in range(n) if rng.random() < (inside if home[z] == home[x] else across)}
        balls.append(ball | ({x} if rng.random() < 0.8 or not ball else set()))
    dense = rng.random() < 0.3
    w = [
        [rng.uniform(0.2, 1.5) if i == j else rng.uniform(0, 0.1) if dense else 0.0 for j in range(K)] for i in range(K)
    ]
    space = Space(P, balls, w)
    best = [min(range(K), key=lambda k: space.cost[x][k]) for x in range(n)]
    pl = list(best)
    for x in sorted(range(n), key=lambda x: space.Q[x])[: rng.choice([1, 1, 2])]:
        pl[x] = (pl[x] + rng.randrange(1, K)) % K
    return space, tuple(pl), rng


# ---------------------------------------------------------------- the line, with Gaussian classes of variance 1


def Phi(t):
    return 0.5 * math.erfc(-t / math.sqrt(2))


def value_at(F, t):
    breaks, values = F
    return values[sum(t > b for b in breaks)]


def changes(F):
    breaks, values = F
    return [b for k, b in enumerate(breaks) if values[k] != values[k + 1]]


def is_unsteady(F, t, r):
    """Whether F takes two values within r of t."""
    return any(abs(t - b) < r for b in changes(F))


def probability(event, cuts, center):
    """P(event) for N(center, 1), for an event that is constant between the cuts."""
    edges = [-math.inf, *sorted(cuts), math.inf]
    total = 0.0
    for low, high in itertools.pairwise(edges):
        middle = high - 1 if low == -math.inf else low + 1 if high == math.inf else (low + high) / 2
        if high > low and event(middle):
            total += Phi(high - center) - Phi(low - center)
    return total


def cuts_of(r, *classifiers):
    return [b + shift for F in classifiers for b in F[0] for shift in (-r, 0.0, r)]


def random_classifier(rng, K, reach, pieces):
    breaks = sorted(rng.uniform(-reach, reach) for _ in range(pieces))
    return breaks, [rng.randrange(K) for _ in range(pieces + 1)]


def with_island(F, low, high, value):
    """F, but `value` between low and high."""
    breaks = sorted({*F[0], low, high})
    edges = [breaks[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(breaks)), breaks[-1] + 1]
    return breaks, [value if low < t < high else value_at(F, t) for t in edges]
