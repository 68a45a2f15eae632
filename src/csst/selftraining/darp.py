"""DARP: pseudo-labels of all unlabeled examples refined to a class distribution (Kim et al., 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.selftraining.stateful import Setup, StatefulPart, put

#: rounds of the coordinate ascent, as in DARP's experiments
ROUNDS = 10
#: value of a removed entry, so that an example that loses all entries becomes uniform
SMALLEST = 1e-6


class DARPRefiner(StatefulPart):
    """Refines pseudo-labels so that all unlabeled examples together have the expected class counts.

    It stores the last prediction of every unlabeled example. After a warm-up, every few steps, all of them are refined
    (`trim`, then `align`), and the refined ones replace the model's own until the next refinement. This happens at the
    end of a step, so an example's refined label comes from an earlier visit, never from the step that uses it.

    The expected counts are N pi_u. The class prior pi_u of the unlabeled examples is the labeled one, or an estimate
    (`Setup.unlabeled_prior`; DARP's own estimate needs a second model). Under a gain G a softmax is norm(G^T p): p is
    stored and refined, and turned into a softmax under the gain of the step that uses it.

    Args:
        warmup: fraction of the steps before the first refinement.
        every: steps between two refinements.
        delta: see `trim`.
    """

    predictions: Tensor
    refined: Tensor
    steps: Tensor

    def __init__(self, warmup: float = 0.4, every: int = 10, delta: float = 2.0) -> None:
        super().__init__()
        if not 0 <= warmup <= 1 or every < 1 or delta < 0:
            raise InputError(
                f"DARP needs a warmup from 0 to 1, every >= 1 and delta >= 0; found {warmup}, {every}, {delta}"
            )
        self.warmup = warmup
        self.every = every
        self.delta = delta

    def bind(self, setup: Setup) -> None:
        self.setup = setup
        self.first = max(1, math.ceil(self.warmup * setup.steps))
        uniform = torch.full((setup.unlabeled, setup.classes), 1 / setup.classes)
        self.register_buffer("predictions", uniform)
        self.register_buffer("refined", uniform.clone())
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, probs: Tensor, index: Tensor, gain: Gain) -> Tensor:
        self.record(index, gain.posterior(probs))
        return gain.optimal(self.refined[index], probs) if int(self.steps) >= self.first else probs

    def update(self, *rows: Tensor) -> None:
        index, probs = rows
        put(self.predictions, index, probs.to(self.predictions.dtype))
        self.steps += 1
        steps_since_first = int(self.steps) - self.first
        if steps_since_first >= 0 and steps_since_first % self.every == 0:
            # On the CPU in float64: other devices may lack float64, and all processes must compute the same.
            predictions = self.predictions.cpu().double()
            predictions = predictions / predictions.sum(1, keepdim=True)
            counts = self.setup.unlabeled_prior * len(predictions)
            self.refined.copy_(align(trim(predictions, counts, self.delta), counts))


def trim(probs: Tensor, counts: Tensor, delta: float) -> Tensor:
    """Remove noisy entries: class k keeps its floor(delta * counts_k) largest entries, and rows sum to 1 again.

    The entries that a class keeps are scaled to sum to counts_k before the rows are scaled (as in the code of DARP's
    authors), so that rare classes, to which head-biased predictions give little, count. A removed entry becomes
    `SMALLEST`, so that an example that loses every entry becomes uniform. delta = 0 changes nothing. Ties go to the
    first entries.
    """
    if delta == 0:
        return probs
    rank = probs.argsort(stable=True, dim=0, descending=True).argsort(0)
    weights = probs * (rank < (delta * counts).floor())
    weights = weights * (counts + SMALLEST) / (weights.sum(0) + SMALLEST) + SMALLEST
    return weights / weights.sum(1, keepdim=True)


def align(probs: Tensor, counts: Tensor, rounds: int = ROUNDS, tolerance: float = 1e-6) -> Tensor:
    """Return the distributions nearest to `probs` (N, K) whose columns sum to `counts` (K,): DARP's convex problem.

        min over X of  sum_m w_m KL(X_m || p_m)    s.t.  X 1 = 1,  X^T 1 = counts;        w_m = 1 / entropy(p_m)

    so that confident examples hardly move. At the optimum X_mk = p_mk exp(-(a_m + b_k) / w_m). Coordinate ascent on the
    dual alternates: all a_m at once (rows sum to 1), then each b_k (its column sums to its count, by Newton's method on
    the logarithm of the sum, which is convex and decreasing in b_k). Rows of the result always sum to 1; its columns
    reach the counts up to the tolerance (as a fraction of N), or as far as the rounds allow. `probs` whose columns have
    the counts already are returned unchanged.
    """
    logs = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    entropy = -torch.special.xlogy(probs, probs).sum(1, keepdim=True).clamp(max=0)
    dual = torch.zeros_like(counts)
    solution = probs
    for _ in range(rounds):
        if float((solution.sum(0) - counts).abs().max()) <= tolerance * len(probs):
            break
        row_logs = logs - torch.logsumexp(logs - entropy * dual, 1, keepdim=True)
        dual = _solve_columns(row_logs, entropy, counts, dual)
        solution = torch.softmax(logs - entropy * dual, 1)
    return solution


def _solve_columns(logs: Tensor, entropy: Tensor, counts: Tensor, dual: Tensor, tolerance: float = 1e-9) -> Tensor:
    """Return the b_k at which sum_m exp(logs_mk - entropy_m b_k) = counts_k."""
    goal = counts.clamp(min=SMALLEST).log()
    for _ in range(100):
        terms = logs - entropy * dual
        gap = torch.logsumexp(terms, 0) - goal
        if float(gap.abs().max()) <= tolerance:
            break
        slope = (torch.softmax(terms, 0) * entropy).sum(0)
        # A column in which all remaining examples are certain cannot move.
        dual = dual + torch.where(slope > 1e-12, gap / slope.clamp(min=1e-12), 0)
    return dual
