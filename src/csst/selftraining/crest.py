"""CReST and CReST+: generations that add rebalanced pseudo-labels to the labeled set (Wei et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.selftraining.stateful import Setup, StatefulPart

RECENT = 128  # batches behind the running mean of predictions
SMALLEST = 1e-6  # added to both distributions, so that a class never predicted does not divide by 0


def sampling_rates(prior: Tensor, alpha: float) -> Tensor:
    """The fraction of each class's pseudo-labels that joins the labeled set: mu_l = (N_(L+1-l) / N_1)^alpha.

    l counts classes from frequent to rare (ties by index), so the rarest class keeps all, and the most frequent one the
    share (N_L / N_1)^alpha. alpha = 0 keeps everything.
    """
    order = prior.argsort(descending=True, stable=True)
    ranked = prior[order].double()
    rates = torch.empty_like(ranked)
    rates[order] = (ranked.flip(0) / ranked[0]) ** alpha
    return rates


@dataclass(frozen=True)
class GenerationSchedule:
    """The outer loop: trainings from scratch, each on the labels and on chosen pseudo-labels of the one before.

    Args:
        generations: trainings in all; the steps of the recipe are split among them.
        alpha: exponent of the sampling rates.
    """

    generations: int = 1
    alpha: float = 1 / 3

    def __post_init__(self) -> None:
        if self.generations < 1 or not 0 <= self.alpha < float("inf"):
            raise InputError(
                f"CReST needs at least one generation and alpha >= 0; found {self.generations} and {self.alpha}"
            )

    def steps(self, total: int, generation: int) -> int:
        """This generation's part of the steps: equal parts, the first ones one longer where it does not divide."""
        if total < self.generations:
            raise InputError(f"{self.generations} generations need at least as many steps; found {total}")
        return total // self.generations + (generation < total % self.generations)

    def choose(self, probs: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Which unlabeled examples join the labeled set, and as which class.

        Of the n_l examples predicted as class l, the floor(mu_l n_l) most confident ones; of equals the first.
        """
        confidence, predicted = probs.max(1)
        chosen = []
        for label, rate in enumerate(sampling_rates(prior, self.alpha).tolist()):
            members = (predicted == label).nonzero().flatten()
            ranked = members[confidence[members].argsort(descending=True, stable=True)]
            chosen.append(ranked[: int(rate * len(members))])
        index = torch.cat(chosen)
        return index, predicted[index]


class Alignment(StatefulPart):
    """Progressive distribution alignment, what CReST+ adds.

        aligned ∝ p * q_t / mean(p),    q_t ∝ prior^t,    t = 1 - generation * (1 - temperature)

    The prior is that of the unlabeled examples: of the labeled ones, or as estimated (`Setup.unlabeled_prior`).

    mean(p) is over the last `RECENT` batches of weak views, of fewer at the start; nothing is aligned before the first.
    t falls from 1 in the first generation to `temperature` in the last, so q_t goes from the labeled prior towards a
    flatter one. Under a gain G a softmax is norm(G^T p): p is what is aligned.
    """

    recent: Tensor
    seen: Tensor

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        if not 0 <= temperature <= 1:
            raise InputError(f"the alignment temperature must lie in [0, 1]; found {temperature}")
        self.temperature = temperature

    def bind(self, setup: Setup) -> None:
        self.setup = setup
        self.register_buffer("recent", torch.zeros(RECENT, setup.classes))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @property
    def expected(self) -> Tensor:
        """q_t, float64 on the CPU, (K,)."""
        flat = self.setup.unlabeled_prior ** (1 - self.setup.generation * (1 - self.temperature))
        return flat / flat.sum()

    def forward(self, probs: Tensor, index: Tensor, gain: Gain) -> Tensor:
        known = gain.posterior(probs)
        self.record(known)
        seen = min(int(self.seen), RECENT)
        if seen == 0:
            return probs
        expected = self.expected.to(probs.dtype).to(probs.device)
        moved = known * (expected + SMALLEST) / (self.recent[:seen].mean(0).to(probs.dtype) + SMALLEST)
        return gain.optimal(moved / moved.sum(1, keepdim=True), probs)

    def update(self, *rows: Tensor) -> None:
        (probs,) = rows
        self.recent[int(self.seen) % RECENT] = probs.to(self.recent.dtype).mean(0)
        self.seen += 1
