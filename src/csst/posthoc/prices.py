"""Starts for the search where coverage is bounded: the best assignment of the examples, and the offsets that make it.

    max_a  sum_n S[n, a(n)]   such that the constraints on coverage hold,    S = (G^T p) / (r . p)

with G the best response to the other multipliers and r p the posterior up to its sum. Coverage does not depend on the
labels, so that a constraint met here is met. A linear programme finds a; its vertices are whole assignments where the
bounds are whole counts. Prices b with   argmax_j S[n, j] + b_j = a(n)   exist for the best a; of them those are taken
that keep every example farthest from a tie, so that the rule   G + r b^T   is exactly a.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from csst.posthoc.mixture import VIOLATION_COST, Mixture
from csst.posthoc.problem import Problem
from csst.posthoc.sweep import Candidate, candidate

#: examples times classes above which no programme is solved: up to here it takes 3 seconds at most
LARGEST = 200_000
#: by how many examples the bounds are raised: a rule that just meets them leaves the search little room
MARGINS = (0, 1)


def priced(problem: Problem, mixture: Mixture) -> list[Candidate]:
    """The rules of the best assignments under the multipliers of a mixture; none where no coverage is bounded.

    Nor are there any for an objective that is not a sentence, or above `LARGEST` (200 000) examples times classes.
    """
    if mixture.multipliers is None or not problem.by_margins or problem.probs.numel() > LARGEST:
        return []
    linear, rows, constants = coverage_constraints(problem)
    if not len(rows):
        return []
    others = torch.where(linear, 0.0, mixture.multipliers)
    gain = problem.derivative(others, problem.confusion(mixture.counts))
    worth = (problem.probs @ gain / (problem.probs @ problem.odds).clamp(min=1e-300)[:, None]).numpy()
    spread = float(worth.max() - worth.min()) or 1.0
    worth = worth / spread
    chosen = [assigned(worth, rows, constants - margin / len(worth)) for margin in MARGINS]
    prices = [offsets(worth, one) for one in chosen if one is not None]
    return [
        candidate(problem, gain / spread + problem.odds[:, None] * torch.from_numpy(b)) for b in prices if b is not None
    ]


def coverage_constraints(problem: Problem) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Which payoffs (P,) are constraints   h . coverage + c >= 0,   with their h (Q, K) and c (Q,)."""
    classes, generator = problem.classes, torch.Generator().manual_seed(0)
    unit = torch.eye(classes, dtype=torch.float64)
    # No coverage, one class at a time, and two points at random, where a payoff of another form gives itself away.
    shares = torch.cat([torch.zeros_like(unit[:1]), unit, torch.rand(2, classes, generator=generator).double()])
    hits = torch.rand(2, classes, generator=generator).double() * problem.totals
    hits = torch.cat([hits[:1].expand(classes + 1, -1), hits])
    payoff = problem.measure_margins(hits, shares * problem.totals.sum()).payoff
    constants, rows = payoff[0], (payoff[1 : classes + 1] - payoff[0]).T
    off = (payoff[classes + 1 :] - constants - shares[classes + 1 :] @ rows.T).abs().amax(0)
    linear = (off < 1e-9) & (rows.abs().amax(1) > 1e-9) & ~problem.objective.domain.worst_cases(len(constants))
    return linear, rows[linear].numpy(), constants[linear].numpy()


def assigned(worth: np.ndarray, rows: np.ndarray, constants: np.ndarray) -> np.ndarray | None:
    """The class of each example (N,) for the largest total worth (N, K), constraints first; None if none was found.

    Where the entries of a row are whole multiples of its largest, the count it bounds is whole, and so the bound.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    examples, classes = worth.shape
    unit = np.abs(rows).max(1, keepdims=True)
    scaled, bounds = rows / unit, examples * constants / unit[:, 0]
    whole = (np.abs(scaled - scaled.round()) < 1e-9).all(1)
    bounds = np.where(whole, np.floor(bounds + 1e-9 * examples), bounds)
    # Variables: how much of example n goes to class j, and the largest miss of a constraint.
    counted = sparse.hstack([sparse.kron(np.ones((1, examples)), scaled), 1 / unit]).tocsr()
    once = sparse.hstack([sparse.kron(sparse.eye(examples), np.ones((1, classes))), np.zeros((examples, 1))]).tocsr()
    cost = np.append(-worth.ravel(), VIOLATION_COST)
    found = linprog(cost, -counted, bounds, once, np.ones(examples), (0, None), method="highs-ipm")
    return found.x[:-1].reshape(examples, classes).argmax(1) if found.status == 0 else None


def offsets(worth: np.ndarray, chosen: np.ndarray) -> np.ndarray | None:
    """Prices b (K,) for which the least lead of   worth + b   at the chosen classes over any other is largest.

    None where the solver gives up.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    classes = worth.shape[1]
    lead = np.full((classes, classes), 10.0)
    for k in np.unique(chosen):
        members = worth[chosen == k]
        lead[k] = (members[:, k : k + 1] - members).min(0)
    own, other = (~np.eye(classes, dtype=bool)).nonzero()
    # Row (i, j): b_j - b_i + least lead <= the lead of i over j without prices.
    index = np.arange(len(own))
    where = np.concatenate([other, own, np.full(len(own), classes)])
    signs = np.repeat([1.0, -1.0, 1.0], len(own))
    rows = sparse.csr_matrix((signs, (np.tile(index, 3), where)), (len(own), classes + 1))
    free = [(None, None)] * classes + [(None, 1.0)]
    found = linprog(np.append(np.zeros(classes), -1.0), rows, lead[own, other], bounds=free, method="highs")
    return found.x[:classes] if found.status == 0 else None
