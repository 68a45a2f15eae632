"""The best lottery between rules whose confusions are known: a small linear programme."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csst.domains import Domain, Product, Simplex
from csst.posthoc.problem import Problem

#: what a unit of violation costs in the programme; large beside any utility, so that constraints come first
VIOLATION_COST = 1e4


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights of the rules, the mixed counts with their key, and the multipliers of the last programme (or None)."""

    weights: Tensor
    counts: Tensor
    key: tuple[float, ...]
    multipliers: Tensor | None


def best_mixture(problem: Problem, pool: Tensor, start: int, rounds: int = 8) -> Mixture:
    """Weights on counts (M, K, K) that stand best, from the rule `start` on.

    Where utility and payoff are linear in the confusion (recall, coverage, accuracy) one programme is exact. Else
    they are linearised at the current mixture and the step is cut until it is better, a few rounds.
    """
    weights = torch.zeros(len(pool), dtype=torch.float64)
    weights[start] = 1
    counts, key = pool[start], problem.key(pool[start])
    multipliers = None
    for _ in range(rounds):
        target, multipliers, promised = _solved(problem, pool, counts)
        if target is None:
            break
        for step in (1.0, 0.5, 0.25, 0.1, 0.03):
            tried = (1 - step) * weights + step * target
            mixed = (tried[:, None, None] * pool).sum(0)
            if (now := problem.key(mixed)) > key:
                break
        else:
            break
        settled = (step == 1 and abs(now[1] - promised) < 1e-7) or (now[0] == key[0] and now[1] - key[1] < 1e-6)
        weights, counts, key = tried, mixed, now
        if settled:
            break
    return Mixture(weights, counts, key, multipliers)


def blocks(domain: Domain, size: int) -> list[range]:
    """The entries of each worst case in the flat payoff."""
    parts = domain.sizes(size) if isinstance(domain, Product) else [(domain, size)]
    found, at = [], 0
    for part, length in parts:
        if isinstance(part, Simplex):
            found.append(range(at, at + length))
        at += length
    return found


def _solved(problem: Problem, pool: Tensor, now: Tensor) -> tuple[Tensor | None, Tensor | None, float]:
    """max_q  u(q) + sum_b min_{k in b} phi_k(q) - cost . violation,  linearised at `now`.

    The weights q, the dual multipliers, and the value of the objective that the linear form promises.
    """
    from scipy.optimize import linprog

    # The slope towards each rule, by a small step: mixing a little of the rule in is itself a confusion.
    step = 1e-5
    here = problem.measure(now[None])
    there = problem.measure((1 - step) * now + step * pool)
    utility = here.utility + (there.utility - here.utility) / step
    payoff = here.payoff + (there.payoff - here.payoff) / step
    if not (torch.isfinite(utility).all() and torch.isfinite(payoff).all()):
        return None, None, 0.0
    rules, size = payoff.shape
    worst = blocks(problem.objective.domain, size)
    # Variables: the rules' weights, one floor per worst case, the violation. Row k: floor - phi_k(q) - violation <= 0.
    rows = np.zeros((size, rules + len(worst) + 1))
    rows[:, :rules] = -payoff.T.numpy()
    rows[:, -1] = -1
    for number, block in enumerate(worst):
        rows[list(block), rules + number] = 1
        rows[list(block), -1] = 0
    cost = np.concatenate([-utility.numpy(), -np.ones(len(worst)), [VIOLATION_COST]])
    total = np.concatenate([np.ones(rules), np.zeros(len(worst) + 1)])[None]
    bounds = [(0, None)] * rules + [(None, None)] * len(worst) + [(0, None)]
    found = linprog(cost, rows, np.zeros(size), total, [1.0], bounds, method="highs")
    if found.status != 0:
        return None, None, 0.0
    promised = -(float(found.fun) - VIOLATION_COST * float(found.x[-1]))
    weights = torch.as_tensor(found.x[:rules])
    weights = torch.where(weights > 1e-9, weights, 0.0)
    return weights / weights.sum(), torch.as_tensor(-found.ineqlin.marginals).clamp(min=0), promised
