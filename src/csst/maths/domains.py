"""Domains of the Lagrange multipliers and their dual steps: the simplex, the non-negative numbers, products of both.

A domain belongs to the min-player of   max_F min_{lambda in domain} u(C) + lambda . phi(C).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from csst.errors import InputError


class Domain(ABC):
    """A closed convex set of multipliers with a start and a descent step on the payoff."""

    @abstractmethod
    def start(self, size: int, classes: int) -> Tensor:
        """Return the initial multipliers of Algorithms 1 and 2.

        Args:
            size: m, the number of multipliers.
            classes: K.

        Returns:
            Multipliers, (m,), float64.
        """

    @abstractmethod
    def step(self, multipliers: Tensor, payoff: Tensor, step_size: float) -> Tensor:
        """Return the multipliers after a step that lowers lambda . payoff inside the domain (Algorithms 1 and 2).

        Args:
            multipliers: lambda, (m,).
            payoff: phi(C), (m,).
            step_size: omega.

        Returns:
            The multipliers after the step, (m,).
        """

    def worst(self, payoff: Tensor) -> Tensor:
        """Return the minimum of lambda . payoff over the simplex parts; 0 for constraints.

        Args:
            payoff: phi(C), (m,).

        Returns:
            A scalar.
        """
        return payoff.new_zeros(())

    def slack(self, payoff: Tensor) -> Tensor:
        """Return the payoffs that are constraints; a constraint is met if its payoff is >= 0.

        Args:
            payoff: phi(C), (m,).

        Returns:
            Payoffs of the constraints, (m',) with m' <= m.
        """
        return payoff[~self.simplex_mask(len(payoff)).to(payoff.device)]

    def simplex_mask(self, size: int) -> Tensor:
        """Return which multipliers weigh the entries of a worst case (True) and which price a constraint (False).

        Args:
            size: m, the number of multipliers.

        Returns:
            A mask, (m,), bool.
        """
        return torch.zeros(size, dtype=torch.bool)


@dataclass(frozen=True)
class Simplex(Domain):
    """lambda >= 0, sum lambda = 1: a worst case. Moves by exponentiated gradient (Algorithm 1 [algo:worst-case]).

        lambda_i <- norm(lambda_i exp(-step_size payoff_i))

    Args:
        floor: no multiplier falls below floor/size. Where one would, the smallest fraction of the uniform distribution
            that prevents it is mixed in (fixed-share mixing), so that a class that was easy for a while can come back;
            above the floor the step is exactly Algorithm 1's. The default keeps the logit shift within 9.3 nats.
    """

    floor: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 <= self.floor < 1:
            raise InputError(
                f"floor is the smallest multiplier as a fraction of uniform and must lie in [0, 1); found {self.floor}"
            )

    def start(self, size: int, classes: int) -> Tensor:
        return torch.full((size,), 1 / size, dtype=torch.float64)

    def step(self, multipliers: Tensor, payoff: Tensor, step_size: float) -> Tensor:
        # The logarithm keeps huge payoffs and tiny multipliers finite.
        return self.apply_floor(torch.softmax(multipliers.log() - step_size * payoff, 0))

    def apply_floor(self, multipliers: Tensor) -> Tensor:
        """Return the multipliers mixed with just enough of the uniform distribution that all reach the floor.

        Args:
            multipliers: lambda, (m,), which sum to 1.

        Returns:
            The mixed multipliers, (m,), which sum to 1.
        """
        uniform = 1 / len(multipliers)
        minimum = float(multipliers.min())
        if minimum >= self.floor * uniform:
            return multipliers
        share = (self.floor * uniform - minimum) / (uniform - minimum)
        return (1 - share) * multipliers + share * uniform

    def worst(self, payoff: Tensor) -> Tensor:
        return payoff.min()

    def simplex_mask(self, size: int) -> Tensor:
        return torch.ones(size, dtype=torch.bool)


@dataclass(frozen=True)
class NonNegative(Domain):
    """lambda >= 0: the price of a constraint payoff >= 0. Moves by projected gradient (Algorithm 2 [algo:coverage]).

    lambda_i <- max(0, lambda_i - step_size payoff_i),      1/K at first
    """

    def start(self, size: int, classes: int) -> Tensor:
        return torch.full((size,), 1 / classes, dtype=torch.float64)

    def step(self, multipliers: Tensor, payoff: Tensor, step_size: float) -> Tensor:
        return (multipliers - step_size * payoff).clamp(min=0)


@dataclass(frozen=True)
class Product(Domain):
    """Several domains side by side in one flat vector.

    Args:
        parts: each domain with its size; the last may leave its size open (None).
    """

    parts: tuple[tuple[Domain, int | None], ...] = ()

    def start(self, size: int, classes: int) -> Tensor:
        pieces = [domain.start(place.stop - place.start, classes) for domain, place in self.places(size)]
        return torch.cat([torch.zeros(0, dtype=torch.float64), *pieces])

    def step(self, multipliers: Tensor, payoff: Tensor, step_size: float) -> Tensor:
        places = self.places(len(multipliers))
        pieces = [domain.step(multipliers[place], payoff[place], step_size) for domain, place in places]
        return torch.cat([multipliers[:0], *pieces])

    def worst(self, payoff: Tensor) -> Tensor:
        total = payoff.new_zeros(())
        for domain, place in self.places(len(payoff)):
            total = total + domain.worst(payoff[place])
        return total

    def simplex_mask(self, size: int) -> Tensor:
        pieces = [domain.simplex_mask(place.stop - place.start) for domain, place in self.places(size)]
        return torch.cat([torch.zeros(0, dtype=torch.bool), *pieces])

    def places(self, size: int) -> list[tuple[Domain, slice]]:
        """Return each part with its place in the flat vector.

        Args:
            size: m, the number of multipliers in all parts.

        Returns:
            Domains and slices, in the order of the vector.
        """
        fixed_size = sum(n for _, n in self.parts if n is not None)
        open_parts = sum(n is None for _, n in self.parts)
        if open_parts > 1 or fixed_size > size or (not open_parts and fixed_size != size):
            raise InputError(f"the domain's parts {[n for _, n in self.parts]} do not add up to {size} multipliers")
        places = []
        start = 0
        for domain, n in self.parts:
            end = start + (size - fixed_size if n is None else n)
            places.append((domain, slice(start, end)))
            start = end
        return places


def flatten_domain(domain: Domain, size: int, start: int = 0) -> list[tuple[Domain, slice]]:
    """Return the simple domains of a flat vector of multipliers, each with its slice; products are taken apart."""
    if not isinstance(domain, Product):
        return [(domain, slice(start, start + size))]
    pieces: list[tuple[Domain, slice]] = []
    for part, place in domain.places(size):
        pieces += flatten_domain(part, place.stop - place.start, start + place.start)
    return pieces
