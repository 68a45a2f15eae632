"""DARP: pseudo-labels of all unlabeled examples refined to a class distribution (Kim et al., 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.selftraining.stateful import Setup, StatefulPart, put

ROUNDS = 10  # of the coordinate ascent, as in DARP's experiments
SMALLEST = 1e-6  # what a removed entry is left with, so that an example that loses all becomes uniform


class DARPRefiner(StatefulPart):
    """Refines pseudo-labels so that those of the whole unlabeled set have the expected class counts.

    It keeps the last prediction of every unlabeled example. After a warm-up, every few steps, all of them are refined
    (`trim`, then `align`), and until the next time the refined ones stand in for the model's own. This happens
    at the end of a step, so an example's refined label is of its last visit, never of the one that uses it.

    The expected counts are N pi_u, with pi_u the class prior of the unlabeled examples: that of the labeled ones, or as
    estimated (`Setup.unlabeled_prior`; DARP's own estimate needs a second model). Under a gain G a softmax is
    norm(G^T p): what is kept and refined is p, and refined labels are turned into softmaxes of the gain of the step
    that uses them.

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
        self.warmup, self.every, self.delta = warmup, every, delta

    def bind(self, setup: Setup) -> None:
        self.first, self.setup = max(1, math.ceil(self.warmup * setup.steps)), setup
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
        late = int(self.steps) - self.first
        if late >= 0 and late % self.every == 0:
            # On the CPU in float64: other devices may have none, and all processes must find the same.
            known = self.predictions.cpu().double()
            known = known / known.sum(1, keepdim=True)
            counts = self.setup.unlabeled_prior * len(known)
            self.refined.copy_(align(trim(known, counts, self.delta), counts))


def trim(probs: Tensor, counts: Tensor, delta: float) -> Tensor:
    """Without the noisy entries: class k keeps its floor(delta * counts_k) largest entries, and rows again sum to 1.

    What a class keeps is scaled to sum to counts_k before the rows are (as DARP's authors do in their code), so that
    rare classes, which head-biased predictions hardly mention, are heard. A removed entry is left with `SMALLEST`, so
    that an example that loses every entry becomes uniform. delta = 0 keeps everything as it is. Of equal entries the
    first are kept.
    """
    if delta == 0:
        return probs
    rank = probs.argsort(stable=True, dim=0, descending=True).argsort(0)
    kept = probs * (rank < (delta * counts).floor())
    kept = kept * (counts + SMALLEST) / (kept.sum(0) + SMALLEST) + SMALLEST
    return kept / kept.sum(1, keepdim=True)


def align(probs: Tensor, counts: Tensor, rounds: int = ROUNDS, tolerance: float = 1e-6) -> Tensor:
    """The distributions nearest to `probs` (N, K) whose columns sum to `counts` (K,): DARP's convex problem.

        min over X of  sum_m w_m KL(X_m || p_m)    s.t.  X 1 = 1,  X^T 1 = counts;        w_m = 1 / entropy(p_m)

    so that certain examples hardly move. At the optimum X_mk = p_mk exp(-(a_m + b_k) / w_m); the dual is climbed in
    turns: all a_m at once (rows sum to 1), then each b_k (its column sums to its count, by Newton's method on the
    logarithm of the sum, which is convex and decreasing in b_k). Rows of the result always sum to 1; its columns do up
    to the tolerance (as a fraction of N) or as well as the rounds allow. `probs` that fit already come back unchanged.
    """
    logs = probs.clamp(min=torch.finfo(probs.dtype).tiny).log()
    entropy = -torch.special.xlogy(probs, probs).sum(1, keepdim=True).clamp(max=0)
    dual = torch.zeros_like(counts)
    refined = probs
    for _ in range(rounds):
        if float((refined.sum(0) - counts).abs().max()) <= tolerance * len(probs):
            break
        normed = logs - torch.logsumexp(logs - entropy * dual, 1, keepdim=True)
        dual = _columns(normed, entropy, counts, dual)
        refined = torch.softmax(logs - entropy * dual, 1)
    return refined


def _columns(logs: Tensor, entropy: Tensor, counts: Tensor, dual: Tensor, tolerance: float = 1e-9) -> Tensor:
    """The b_k at which sum_m exp(logs_mk - entropy_m b_k) = counts_k."""
    wanted = counts.clamp(min=SMALLEST).log()
    for _ in range(100):
        terms = logs - entropy * dual
        gap = torch.logsumexp(terms, 0) - wanted
        if float(gap.abs().max()) <= tolerance:
            break
        slope = (torch.softmax(terms, 0) * entropy).sum(0)
        # Where only certain examples are left in a column nothing can move it.
        dual = dual + torch.where(slope > 1e-12, gap / slope.clamp(min=1e-12), 0)
    return dual
