"""One step of self-training on unlabeled examples: label, select, learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from csst.maths.gain import Gain
from csst.maths.losses import cost_sensitive_loss
from csst.selftraining.balance import UnlabeledBalance
from csst.selftraining.labelers import Labeler
from csst.selftraining.memory import Setup, StatefulPart
from csst.selftraining.selectors import Selector


class Refiner(Protocol):
    """(probs (B, K), index (B,), gain) -> probs (B, K), before they are labeled and selected."""

    def __call__(self, probs: Tensor, index: Tensor, gain: Gain) -> Tensor: ...


class SelfTraining(nn.Module):
    """The consistency loss (paper, Eqs. loss:CSST-KL and loss:supp-hybloss).

        L_u = mean over the batch of  used(x) * loss(s(strong x), p, G),     p = label(refine(softmax(s(weak x))))

    FixMatch is label = Hard, UDA is label = Sharpened; CSST selects by `KLThreshold`; most methods refine nothing. A
    part with state is a `StatefulPart` and so is saved with this module: `bind` it once, `commit` after every step.

    With a balance, unlabeled examples may have another class prior than labeled ones: they are labeled by their class
    probabilities q under their own prior, and selected under their own gain G_u; see `csst.selftraining.balance`.
    """

    def __init__(
        self,
        label: Labeler,
        select: Selector,
        refine: Refiner | None = None,
        balance: UnlabeledBalance | None = None,
    ) -> None:
        super().__init__()
        self.label, self.select, self.refine, self.balance = label, select, refine, balance

    def forward(self, weak: Tensor, strong: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """The loss, and the weight in [0, 1] with which each example was used. No gradient flows through `weak`."""
        target, used = self.pseudo_labels(weak, index, gain)
        return self.loss(strong, target, used, gain), used

    @torch.no_grad()
    def pseudo_labels(self, weak: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """The target of each example and the weight with which it is used, from the logits of the weak views."""
        probs = torch.softmax(weak.to(torch.promote_types(weak.dtype, torch.float32)), 1)
        gain = self._own_gain(gain)
        if self.refine is not None:
            probs = self.refine(probs, index, gain)
        target = self.label(probs if self.balance is None else gain.posterior(probs), index)
        return target, self.select(target, probs, gain, index)

    def loss(self, strong: Tensor, target: Tensor, used: Tensor, gain: Gain) -> Tensor:
        return (used * cost_sensitive_loss(strong, target, gain)).mean()

    def _own_gain(self, gain: Gain) -> Gain:
        """The gain of unlabeled examples: G_u with a balance, else the labeled examples' G."""
        return gain if self.balance is None else self.balance.gain(gain)

    def bind(self, setup: Setup) -> SelfTraining:
        """Ready for this data and this many steps; parts without state need nothing."""
        for part in self._stateful_parts():
            part.bind(setup)
        return self

    def commit(self) -> None:
        """End a step: what the parts have noted becomes what they know, on all processes."""
        for part in self._stateful_parts():
            part.commit()

    def _stateful_parts(self) -> Iterator[StatefulPart]:
        return (part for part in self.modules() if isinstance(part, StatefulPart))
