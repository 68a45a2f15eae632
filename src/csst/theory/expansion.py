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

#: points whose sets can all be visited
MOST_POINTS = 20
#: masses are sums of floats: sets this close in mass count as equally large
ROUNDING = 1e-12


class Expansion(ABC):
    """A non-increasing function c(p) with c >= 1. Paper, Sec. 3.3, Definition 1 [c-exp-def]."""

    @abstractmethod
    def factor(self, p: float) -> float:
        """The formula of c, before it is limited to 1 .. 1/p.

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
        """The (a, c~)-expansion that follows: Q(N(S)) >= c(a) Q(S) for all Q(S) <= a. Paper, last appendix.

        Args:
            a: the largest mass, in (0, 1].

        Returns:
            a and c(a).
        """
        return a, self(a)


@dataclass(frozen=True)
class GaussianExpansion(Expansion):
    """The expansion of one Gaussian N(tau, I/d), B(x) the ball of radius r: c(p) = Phi(Phi^-1(p) + h) / p.

    Paper, appendix "Proofs", Example 1 [c-exp-mix-gauss], stated for mixtures too. It is too large for those, as a
    whole component far from the others does not expand at all: use `mixture_expansion`.

    Args:
        h: 2 r sqrt(d), at least 0.
    """

    h: float

    def __post_init__(self) -> None:
        if not 0 <= self.h < float("inf"):
            raise InputError(f"h = 2 r sqrt(d) must be a number >= 0; found {self.h!r}")

    @classmethod
    def of(cls, d: float, r: float) -> GaussianExpansion:
        """The expansion of N(tau, I/d) with balls of radius r.

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
        return 1 / p if p >= 1 else float(np.exp(log_ndtr(ndtri(p) + self.h) - np.log(p)))


@dataclass(frozen=True)
class Combined(Expansion):
    """What is left of the classes' own expansions c_i in P_w = sum_i alpha_i P_i.

        c(p) = min_i c_i(min(1, p / alpha_i))

    P_i(S) <= P_w(S) / alpha_i, so P_w(N(S)) >= sum_i alpha_i c_i(P_i(S)) P_i(S) >= c(P_w(S)) P_w(S). It cannot be
    improved without knowing how the classes touch: where they are far apart and p reaches the fraction of a class, the
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
        return min(c(min(1.0, p / a)) for c, a in zip(self.parts, self.fractions, strict=True) if a > 0)


def mixture_expansion(h: float, fractions: Sequence[float] | Any) -> Combined:
    """The expansion that every mixture of Gaussians N(tau_i, I/d) has: c(min(1, p / min_i alpha_i)).

    It is the largest such function: components moved far apart attain it. Paper, appendix "Proofs", Example 1
    [c-exp-mix-gauss], corrected.

    Args:
        h: 2 r sqrt(d), at least 0.
        fractions: alpha_i of every component, (K,), which sum to 1.

    Returns:
        The expansion of the mixture.
    """
    parts = tuple(float(s) for s in fractions)
    return Combined((GaussianExpansion(h),) * len(parts), parts)


@dataclass(frozen=True, eq=False)
class StepExpansion(Expansion):
    """The largest non-increasing c that respects the sets it was built from: c(p) = min of factors of sizes <= p.

    Below the smallest set nothing is known and c(p) = 1/p.

    Args:
        sizes: masses of sets, ascending, (m,).
        factors: c from each of them on, descending, (m,).
    """

    sizes: np.ndarray
    factors: np.ndarray

    @classmethod
    def of_sets(cls, sizes: Any, masses_of_neighborhoods: Any) -> StepExpansion:
        """The largest expansion that many sets S allow; empty sets are left out.

        Args:
            sizes: Q(S), (m,).
            masses_of_neighborhoods: Q(N(S)), (m,).

        Returns:
            The expansion.
        """
        size, around = np.asarray(sizes, float).ravel(), np.asarray(masses_of_neighborhoods, float).ravel()
        if size.shape != around.shape or (around < size - 1e-9).any():
            raise InputError("each set needs the mass of its neighborhood, which holds the set: Q(N(S)) >= Q(S)")
        kept = size > ROUNDING
        order = np.argsort(size[kept], kind="stable")
        size, factor = size[kept][order], (around[kept] / size[kept])[order]
        factor = np.minimum.accumulate(factor)
        new = np.append(True, np.diff(factor) < 0) if len(factor) else np.zeros(0, bool)
        return cls(size[new], factor[new])

    def factor(self, p: float) -> float:
        at = int(np.searchsorted(self.sizes, p + ROUNDING, side="right"))
        return float(self.factors[at - 1]) if at else float("inf")


def exact_expansion(masses: Any, neighbors: Any) -> StepExpansion:
    """The largest non-increasing c with Q(N(S)) >= c(Q(S)) Q(S), by visiting all 2^n sets.

    Paper, Sec. 3.3, Definition 1 [c-exp-def].

    Args:
        masses: Q of each point, (n,), at most 20 points.
        neighbors: which points are neighbors, (n, n), bool.

    Returns:
        The expansion.
    """
    mass, near = np.asarray(masses, float), np.asarray(neighbors, bool)
    points = len(mass)
    if points > MOST_POINTS:
        raise InputError(
            f"all sets can be visited for at most {MOST_POINTS} points; found {points}: use empirical_expansion"
        )
    near = near | np.eye(points, dtype=bool)
    sizes, around = np.zeros(1), np.zeros(1, dtype=np.int64)  # a set is the number whose bits are its points
    for point in range(points):
        bits = int(sum(1 << int(other) for other in np.flatnonzero(near[point])))
        sizes, around = np.append(sizes, sizes + mass[point]), np.append(around, around | bits)
    return StepExpansion.of_sets(sizes, sizes[around])


def from_pair(a: float, c: float) -> StepExpansion:
    """The c-expansion of a distribution with (a, c~)-expansion: min(c~, 1/p) up to a, then 1. Paper, last appendix.

    (a, c~): Q(N(S)) >= min(c~ Q(S), 1) for all Q(S) <= a.

    Args:
        a: the largest mass for which it holds, between 0 and 1.
        c: c~, above 1.

    Returns:
        The expansion.
    """
    if not 0 < a < 1 or not c > 1:
        raise InputError(f"(a, c)-expansion needs a in (0, 1) and c > 1; found a = {a}, c = {c}")
    just_above = float(np.nextafter(a + ROUNDING, 1))
    return StepExpansion(np.array([np.finfo(float).tiny, just_above]), np.array([c, 1.0]))


def largest_error(c: Expansion, above: float = 3.0) -> float:
    """How wrong a pseudo-labeler may be: the p up to which c(p) > `above`.

    0.1757 for h = 1 and 0.3316 for h = 3 (the paper's 0.17 and 0.33). Paper, appendix "Proofs", Example 2 [gamma-3].

    Args:
        c: an expansion.
        above: the gamma that is asked for, at least 1.

    Returns:
        p, never more than 1 / above; 0 where c never exceeds it.
    """
    if not above >= 1:
        raise InputError(f"an expansion is at least 1, so ask for a value of at least 1; found {above}")
    tiny = 1e-9
    if c(tiny) <= above:
        return 0.0
    # c is non-increasing with c(1) = 1; where it jumps over the value, bisection finds the place of the jump.
    return float(bisect(lambda p: 1.0 if c(p) > above else -1.0, tiny, 1.0, xtol=1e-13))
