"""The expansion property: how much the neighborhood of a set outgrows the set.

    Q(N(S)) >= c(Q(S)) Q(S)   for every set S,      c : (0, 1] -> [1, inf) non-increasing    (paper, Definition 1)
    N(x) = {x' : B(x) and B(x') meet}

A neighborhood is at most everything, so c(p) <= 1/p wherever a set has mass p.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import bisect
from scipy.special import log_ndtr, ndtri

from csst.errors import InputError

#: the largest number of points whose sets can all be visited
MOST_POINTS = 20
#: masses are sums of floats: sets this close in mass count as equally large
ROUNDING = 1e-12


class Expansion(ABC):
    """A non-increasing function c(p) with c >= 1. Paper, Sec. 3.3, Definition 1 [c-exp-def]."""

    @abstractmethod
    def factor(self, p: float) -> float:
        """Return the formula of c, before it is limited to 1 .. 1/p.

        Args:
            p: the mass of a set, in (0, 1].

        Returns:
            c(p).
        """

    def __call__(self, p: float) -> float:
        if not 0 < p <= 1 + ROUNDING:
            raise InputError(f"an expansion is a function of a probability in (0, 1]; found {p!r}")
        p = min(p, 1.0)
        return max(1.0, min(self.factor(p), 1 / p))

    def pair(self, a: float) -> tuple[float, float]:
        """Return the (a, c~)-expansion that follows: Q(N(S)) >= c(a) Q(S) for all Q(S) <= a. Paper, last appendix.

        Args:
            a: the largest mass, in (0, 1].

        Returns:
            a and c(a).
        """
        return a, self(a)


@dataclass(frozen=True)
class GaussianExpansion(Expansion):
    """The expansion of one Gaussian N(tau, I/d), B(x) the ball of radius r: c(p) = Phi(Phi^-1(p) + h) / p.

    Paper, appendix "Proofs", Example 1 [c-exp-mix-gauss]. The paper states it for mixtures too, but it is too large
    for them: a component far from the others does not expand at all. Use `mixture_expansion`.

    Args:
        h: 2 r sqrt(d), at least 0.
    """

    h: float

    def __post_init__(self) -> None:
        if not 0 <= self.h < float("inf"):
            raise InputError(f"h = 2 r sqrt(d) must be a number >= 0; found {self.h!r}")

    @classmethod
    def of(cls, d: float, r: float) -> GaussianExpansion:
        """Return the expansion of N(tau, I/d) with balls of radius r.

        Args:
            d: the dimension.
            r: the radius.

        Returns:
            The expansion with h = 2 r sqrt(d).
        """
        if not d > 0 or not r >= 0:
            raise InputError(f"the dimension d must be positive and the radius r at least 0; found d = {d}, r = {r}")
        return cls(2 * r * float(np.sqrt(d)))

    def factor(self, p: float) -> float:
        if p >= 1:
            return 1 / p
        return float(np.exp(log_ndtr(ndtri(p) + self.h) - np.log(p)))


@dataclass(frozen=True)
class Combined(Expansion):
    """The expansion of P_w = sum_i alpha_i P_i that follows from the expansions c_i of its classes.

        c(p) = min_i c_i(min(1, p / alpha_i))

    P_i(S) <= P_w(S) / alpha_i, so P_w(N(S)) >= sum_i alpha_i c_i(P_i(S)) P_i(S) >= c(P_w(S)) P_w(S). It cannot be
    improved without knowing how the classes touch: if they are far apart and p reaches the fraction of a class, the
    class itself is a set that does not expand.

    Args:
        parts: c_i of every class.
        fractions: alpha_i of every class, which sum to 1.
    """

    parts: tuple[Expansion, ...]
    fractions: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.fractions) or not self.parts:
            raise InputError(
                f"each class needs a fraction; found {len(self.parts)} expansions, {len(self.fractions)} fractions"
            )
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-6:
            raise InputError(f"fractions must be non-negative and sum to 1; found {list(self.fractions)}")

    def factor(self, p: float) -> float:
        pairs = zip(self.parts, self.fractions, strict=True)
        return min(c(min(1.0, p / alpha)) for c, alpha in pairs if alpha > 0)


def mixture_expansion(h: float, fractions: Sequence[float] | Any) -> Combined:
    """Return an expansion of every mixture of Gaussians N(tau_i, I/d): c(min(1, p / min_i alpha_i)).

    It is the largest such function: components moved far apart attain it. Paper, appendix "Proofs", Example 1
    [c-exp-mix-gauss], corrected.

    Args:
        h: 2 r sqrt(d), at least 0.
        fractions: alpha_i of every component, (K,), which sum to 1.

    Returns:
        The expansion of the mixture.
    """
    alpha = tuple(float(fraction) for fraction in fractions)
    return Combined((GaussianExpansion(h),) * len(alpha), alpha)


@dataclass(frozen=True, eq=False)
class StepExpansion(Expansion):
    """The largest non-increasing c that a collection of sets allows: c(p) = the smallest factor of a size <= p.

    Below the smallest set c(p) = 1/p, because no set says anything.

    Args:
        sizes: masses of sets, ascending, (m,).
        factors: c from each of these masses on, descending, (m,).
    """

    sizes: np.ndarray
    factors: np.ndarray

    @classmethod
    def of_sets(cls, sizes: Any, masses_of_neighborhoods: Any) -> StepExpansion:
        """Return the largest expansion that the sets S allow; empty sets are ignored.

        Args:
            sizes: Q(S), (m,).
            masses_of_neighborhoods: Q(N(S)), (m,).

        Returns:
            The expansion.
        """
        size = np.asarray(sizes, float).ravel()
        neighborhood = np.asarray(masses_of_neighborhoods, float).ravel()
        if size.shape != neighborhood.shape or (neighborhood < size - 1e-9).any():
            raise InputError("each set needs the mass of its neighborhood, which holds the set: Q(N(S)) >= Q(S)")
        nonempty = size > ROUNDING
        size = size[nonempty]
        neighborhood = neighborhood[nonempty]
        order = np.argsort(size, kind="stable")
        factor = np.minimum.accumulate((neighborhood / size)[order])
        # a step at the first set, and wherever the running minimum falls
        steps = np.diff(factor, prepend=np.inf) < 0
        return cls(size[order][steps], factor[steps])

    def factor(self, p: float) -> float:
        count = int(np.searchsorted(self.sizes, p + ROUNDING, side="right"))
        return float(self.factors[count - 1]) if count else float("inf")


def exact_expansion(masses: Any, neighbors: Any) -> StepExpansion:
    """Return the largest non-increasing c with Q(N(S)) >= c(Q(S)) Q(S), by visiting all 2^n sets.

    Paper, Sec. 3.3, Definition 1 [c-exp-def].

    Args:
        masses: Q of each point, (n,), at most 20 points.
        neighbors: whether two points are neighbors, (n, n), bool.

    Returns:
        The expansion.
    """
    mass = np.asarray(masses, float)
    points = len(mass)
    if points > MOST_POINTS:
        raise InputError(
            f"all sets can be visited for at most {MOST_POINTS} points; found {points}: use empirical_expansion"
        )
    graph = np.asarray(neighbors, bool) | np.eye(points, dtype=bool)
    # A set is the number whose bits are its points; every further point doubles the sets.
    sizes = np.zeros(1)
    neighborhoods = np.zeros(1, dtype=np.int64)
    for point in range(points):
        bits = int(sum(1 << int(neighbor) for neighbor in np.flatnonzero(graph[point])))
        sizes = np.append(sizes, sizes + mass[point])
        neighborhoods = np.append(neighborhoods, neighborhoods | bits)
    return StepExpansion.of_sets(sizes, sizes[neighborhoods])


def from_pair(a: float, c: float) -> StepExpansion:
    """Return the c-expansion of a distribution with (a, c~)-expansion: min(c~, 1/p) up to a, then 1.

    (a, c~): Q(N(S)) >= min(c~ Q(S), 1) for all Q(S) <= a. Paper, last appendix.

    Args:
        a: the largest mass Q(S), between 0 and 1.
        c: c~, above 1.

    Returns:
        The expansion.
    """
    if not 0 < a < 1 or not c > 1:
        raise InputError(f"(a, c)-expansion needs a in (0, 1) and c > 1; found a = {a}, c = {c}")
    just_above = float(np.nextafter(a + ROUNDING, 1))
    return StepExpansion(np.array([np.finfo(float).tiny, just_above]), np.array([c, 1.0]))


def largest_error(c: Expansion, above: float = 3.0) -> float:
    """Return the largest fraction of mistakes p with c(p) > `above`: how wrong a pseudo-labeler may be.

    0.1757 for h = 1 and 0.3316 for h = 3 (the paper's 0.17 and 0.33). Paper, appendix "Proofs", Example 2 [gamma-3].

    Args:
        c: an expansion.
        above: the required gamma, at least 1.

    Returns:
        p, at most 1 / above; 0 if c never exceeds it.
    """
    if not above >= 1:
        raise InputError(f"an expansion is at least 1, so ask for a value of at least 1; found {above}")
    minimum = 1e-9
    if c(minimum) <= above:
        return 0.0
    # c is non-increasing with c(1) = 1; if it jumps over the value, bisection finds the place of the jump.
    return float(bisect(lambda p: 1.0 if c(p) > above else -1.0, minimum, 1.0, xtol=1e-13))
