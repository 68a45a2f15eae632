"""One step of self-training on unlabeled examples: label, select, learn."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from csst.gain import Gain
from csst.losses import cost_sensitive_loss
from csst.selftraining.labelers import Labeler
from csst.selftraining.selectors import Selector


class SelfTraining(nn.Module):
    """The consistency loss (paper, Eqs. loss:CSST-KL and loss:supp-hybloss).

        L_u = mean over the batch of  used(x) * loss(s(strong x), p, G),     p = label(softmax(s(weak x)))

    FixMatch is label = Hard, UDA is label = Sharpened; CSST selects by `KLThreshold`. A labeler or selector with
    state is a module and so is saved with this one.
    """

    def __init__(self, label: Labeler, select: Selector) -> None:
        super().__init__()
        self.label, self.select = label, select

    def forward(self, weak: Tensor, strong: Tensor, index: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
        """The loss, and the weight in [0, 1] with which each example was used. No gradient flows through `weak`."""
        with torch.no_grad():
            probs = torch.softmax(weak.to(torch.promote_types(weak.dtype, torch.float32)), 1)
            target = self.label(probs, index)
            used = self.select(target, probs, gain, index)
        return (used * cost_sensitive_loss(strong, target, gain)).mean(), used
