"""CReST and CReST+: generations that add rebalanced pseudo-labels to the labeled set (Wei et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.selftraining.stateful import Setup, StatefulPart

#: batches in the running mean of predictions
RECENT = 128
#: added to both distributions, so that a class that is never predicted does not divide by 0
SMALLEST = 1e-6


def sampling_rates(prior: Tensor, alpha: float) -> Tensor:
    """Return the fraction of each class's pseudo-labels that joins the labeled set, mu_l = (N_(L+1-l) / N_1)^alpha.

    l counts classes from frequent to rare (ties by index), so the rarest class keeps all, and the most frequent one the
    share (N_L / N_1)^alpha. alpha = 0 keeps everything.
    """
    order = prior.argsort(descending=True, stable=True)
    fractions = prior[order].double()
    rates = torch.empty_like(fractions)
    rates[order] = (fractions.flip(0) / fractions[0]) ** alpha
    return rates


@dataclass(frozen=True)
class GenerationSchedule:
    """The outer loop: trainings from scratch, each on the labels and on pseudo-labels of the training before.

    Args:
        generations: number of trainings; the steps of the recipe are split among them.
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
        """Return a generation's part of the steps: equal parts, of which the first take the remainder."""
        if total < self.generations:
            raise InputError(f"{self.generations} generations need at least as many steps; found {total}")
        return total // self.generations + (generation < total % self.generations)

    def choose(self, probs: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unlabeled examples that join the labeled set, and their classes.

        Of the n_l examples predicted as class l, the floor(mu_l n_l) most confident ones join; ties go to the first.
        """
        confidence, predictions = probs.max(1)
        parts = []
        for label, rate in enumerate(sampling_rates(prior, self.alpha).tolist()):
            members = (predictions == label).nonzero().flatten()
            ranking = members[confidence[members].argsort(descending=True, stable=True)]
            parts.append(ranking[: int(rate * len(members))])
        index = torch.cat(parts)
        return index, predictions[index]


class Alignment(StatefulPart):
    """Progressive distribution alignment, CReST+'s addition.

        aligned ∝ p * q_t / mean(p),    q_t ∝ prior^t,    t = 1 - generation * (1 - temperature)

    The prior of the unlabeled examples is the labeled one, or an estimate (`Setup.unlabeled_prior`).

    mean(p) is over the last `RECENT` batches of weak views, fewer at the start; nothing is aligned before the first. t
    falls from 1 in the first generation to `temperature` in the last, so that q_t goes from the labeled prior toward a
    flatter one. Under a gain G a softmax is norm(G^T p), and p is aligned.

    Args:
        temperature: t of the last generation, in [0, 1].
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
        posterior = gain.posterior(probs)
        self.record(posterior)
        batches = min(int(self.seen), RECENT)
        if batches == 0:
            return probs
        goal = self.expected.to(probs.dtype).to(probs.device)
        mean = self.recent[:batches].mean(0).to(probs.dtype)
        weights = posterior * (goal + SMALLEST) / (mean + SMALLEST)
        return gain.optimal(weights / weights.sum(1, keepdim=True), probs)

    def update(self, *rows: Tensor) -> None:
        (probs,) = rows
        self.recent[int(self.seen) % RECENT] = probs.to(self.recent.dtype).mean(0)
        self.seen += 1
