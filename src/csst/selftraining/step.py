"""One step of self-training on unlabeled examples: label, select, learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from csst.maths.gain import Gain
from csst.maths.losses import cost_sensitive_loss
from csst.selftraining.balance import UnlabeledBalance
from csst.selftraining.hold_back import HoldBack, estimate_accuracy
from csst.selftraining.labelers import Labeler
from csst.selftraining.selectors import Selector
from csst.selftraining.stateful import Setup, StatefulPart


class Refiner(Protocol):
    """(probs (B, K), index (B,), gain) -> probs (B, K), before they are labeled and selected."""

    def __call__(self, probs: Tensor, index: Tensor, gain: Gain) -> Tensor: ...


class SelfTraining(nn.Module):
    """The consistency loss (paper, Sec. 4, Eq. 9 [loss:CSST-KL], and appendix "Objective", Eq. 21 [loss:supp-hybloss]).

        L_u = mean over the batch of  used(x) * loss(s(strong x), p, G),     p = label(refine(softmax(s(weak x))))

    FixMatch is label = Hard, UDA is label = Sharpened; CSST selects by `KLThreshold`; most methods refine nothing. A
    part with state is a `StatefulPart` and so is saved with this module: `bind` it once, `commit` after every step.

    With a balance, unlabeled examples may have another class prior than labeled ones: they are labeled by their class
    probabilities q under their own prior, and selected under their own gain G_u; see `csst.selftraining.balance`.

    Args:
        label: makes pseudo-labels of probabilities.
        select: the weight in [0, 1] of each pseudo-label.
        refine: changes probabilities before they are labeled and selected; None changes nothing.
        balance: the class prior of unlabeled examples, under which they are labeled without the gain; None labels
            them by the softmax.
        hold_back: weighs pseudo-labels by the accuracy of their class on labels that were not learned from; None uses
            all that are selected.
    """

    def __init__(
        self,
        label: Labeler,
        select: Selector,
        refine: Refiner | None = None,
        balance: UnlabeledBalance | None = None,
        hold_back: HoldBack | None = None,
    ) -> None:
        super().__init__()
        self.label = label
        self.select = select
        self.refine = refine
        self.balance = balance
        self.hold_back = hold_back

    @property
    def estimated_balance(self) -> UnlabeledBalance | None:
        """The class prior of unlabeled examples if it is estimated, otherwise None."""
        return self.balance if self.balance is not None and self.balance.is_estimated else None

    def forward(self, weak: Tensor, strong: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """Return the loss of a batch. No gradient flows through the weak views.

        Args:
            weak: logits of the weak views, (B, K).
            strong: logits of the strong views, (B, K).
            index: positions of the examples among all unlabeled ones, (B,).
            gain: G at the current multipliers.

        Returns:
            The loss, a scalar, and the weight of each example in [0, 1], (B,).
        """
        target, weights = self.pseudo_labels(weak, index, gain)
        return self.loss(strong, target, weights, gain), weights

    @torch.no_grad()
    def pseudo_labels(self, weak: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """Return the target and the weight of each example.

        Args:
            weak: logits of the weak views, (B, K).
            index: positions of the examples among all unlabeled ones, (B,).
            gain: G at the current multipliers.

        Returns:
            Targets, class indices (B,) or distributions (B, K), and weights in [0, 1], (B,).
        """
        probs = as_probs(weak)
        unlabeled_gain = self._unlabeled_gain(gain)
        if self.refine is not None:
            probs = self.refine(probs, index, unlabeled_gain)
        target, weights = self._label_and_select(probs, index, unlabeled_gain)
        if self.hold_back is not None:
            weights = self.hold_back(as_classes(target), weights)
        return target, weights

    @torch.no_grad()
    def measure_accuracy(self, logits: Tensor, truth: Tensor, gain: Gain) -> Tensor:
        """Return the accuracy of the pseudo-labels of each class that would be used; nothing is refined or held back.

        Args:
            logits: logits of rows whose labels were not learned from, (n, K).
            truth: labels of the rows, (n,).
            gain: gain under which the logits were learned.

        Returns:
            Accuracies, (K,), float64.
        """
        index = torch.arange(len(logits))
        target, weights = self._label_and_select(as_probs(logits), index, self._unlabeled_gain(gain))
        return estimate_accuracy(as_classes(target), weights, truth, logits.shape[1])

    def _label_and_select(self, probs: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """Return targets and weights of probabilities (B, K) under the gain of unlabeled examples."""
        target = self.label(probs if self.balance is None else gain.posterior(probs), index)
        return target, self.select(target, probs, gain, index)

    def loss(self, strong: Tensor, target: Tensor, weights: Tensor, gain: Gain) -> Tensor:
        """Return the mean of the weighted losses (paper, Sec. 4, Eq. 9 [loss:CSST-KL]).

        Args:
            strong: logits of the strong views, (B, K).
            target: class indices (B,) or distributions (B, K).
            weights: weight of each example, (B,).
            gain: G at the current multipliers.

        Returns:
            A scalar.
        """
        return (weights * cost_sensitive_loss(strong, target, gain)).mean()

    def _unlabeled_gain(self, gain: Gain) -> Gain:
        """Return the gain of unlabeled examples: G_u with a balance, otherwise G."""
        return gain if self.balance is None else self.balance.gain(gain)

    def bind(self, setup: Setup) -> SelfTraining:
        """Make the buffers of the stateful parts for this data and this many steps.

        Args:
            setup: facts about the data.

        Returns:
            The module itself.
        """
        for part in self._stateful_parts():
            part.bind(setup)
        return self

    def commit(self) -> None:
        """End a step: let the stateful parts learn from the rows they recorded, on all processes."""
        for part in self._stateful_parts():
            part.commit()

    def _stateful_parts(self) -> Iterator[StatefulPart]:
        return (part for part in self.modules() if isinstance(part, StatefulPart))


def as_probs(logits: Tensor) -> Tensor:
    """Return the softmax, (B, K), in single precision at least."""
    return torch.softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), 1)


def as_classes(target: Tensor) -> Tensor:
    """Return the classes (B,) of targets: class indices (B,) or distributions (B, K)."""
    return target.argmax(1) if target.is_floating_point() else target
