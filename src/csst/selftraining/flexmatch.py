"""FlexMatch's curriculum: classes that are learned slowly need less confidence (Zhang et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from csst.maths.gain import Gain
from csst.selftraining.selectors import Threshold
from csst.selftraining.stateful import Setup, StatefulPart, put


class Curriculum(StatefulPart):
    """Curriculum pseudo-labeling over a threshold rule.

        sigma(c) = number of unlabeled examples whose last pseudo-label that the rule trusted is c
        beta(c)  = sigma(c) / max(max_k sigma(k), N - sum_k sigma(k))          the second term is the warm-up
        M(c)     = beta(c) / (2 - beta(c))                                      the convex mapping

    Over `Confidence(t)` this is FlexMatch: an example with pseudo-label c is used if max p >= t * M(c).
    Over `KLThreshold(tau)`, as in csst-flexmatch, KL <= tau corresponds to confidence >= exp(-tau), which is lowered:
    exp(-KL) >= exp(-tau) * M(c), which is KL <= tau - log M(c). For a diagonal gain and hard labels it is FlexMatch at
    threshold exp(-tau). All pseudo-labels of a class without any trusted one (M = 0) are used.

    An example counts as learned by the rule itself, not by the lowered threshold, until it is trusted again.

    Args:
        rule: the selector whose threshold is lowered.
    """

    selected: Tensor

    def __init__(self, rule: Threshold) -> None:
        super().__init__()
        self.rule = rule

    def bind(self, setup: Setup) -> None:
        self.classes = setup.classes
        self.register_buffer("selected", torch.full((setup.unlabeled,), -1))

    def forward(self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor) -> Tensor:
        label = target.argmax(1) if target.is_floating_point() else target
        is_trusted = self.rule(target, probs, gain, index) > 0
        self.record(index, torch.where(is_trusted, label, -1))
        return self.rule(target, probs, gain, index, self.class_thresholds().to(probs.dtype)[label])

    def class_thresholds(self) -> Tensor:
        """Return M(c), the factor on each class's threshold, (K,): 1 for the class learned best, 0 if never trusted."""
        counts = torch.bincount(self.selected + 1, minlength=self.classes + 1)  # examples never trusted come first
        beta = counts[1:] / counts.max()
        return beta / (2 - beta)

    def update(self, *rows: Tensor) -> None:
        index, label = rows
        put(self.selected, index[label >= 0], label[label >= 0])
