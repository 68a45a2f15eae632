"""Pseudo-labels of classes in which they are often wrong count less.

Rows with labels that the network has not learned from are labeled and selected like unlabeled examples. Of the rows
that would be used with pseudo-label j, right_j of n_j are right:

    a_j = (right_j + PRIOR_LABELS PROMISE) / (n_j + PRIOR_LABELS)
    w_j = (a_j - WORTHLESS) / (ENOUGH - WORTHLESS),  not below 0 and not above 1

The rows have the class prior of the objective, not of the unlabeled examples: pseudo-labels of a frequent class that
are right for nearly all unlabeled examples still do harm if they cover most examples of a rare class.

The averaged network may be right while the network that makes the pseudo-labels is not: its weights and its gain change
at every step. Let u_j be the fraction of the latest unlabeled examples that are used with pseudo-label j. These labels
cannot be right if u_j is many times the fraction of the class, so the weight of a pseudo-label j is

    w_j min(1, MOST_SHARE max(pi_u,j, pi_L,j) / u_j).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from csst.selftraining.stateful import Setup, StatefulPart

#: accuracy from which pseudo-labels count fully, and up to which they do not count at all
ENOUGH = 0.9
WORTHLESS = 0.5
#: accuracy that the thresholds promise (exp(-tau) of the default), and the number of rows that this prior counts as
PROMISE = 0.95
PRIOR_LABELS = 2.0
#: largest ratio of a class's pseudo-labels to its examples, and the steps over which pseudo-labels are counted
MOST_SHARE = 3.0
MEMORY = 100


class HoldBack(StatefulPart):
    """Weights of the pseudo-labels of each class, by their accuracy and their number.

    Args:
        classes: K.
    """

    accuracy: Tensor
    share: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("accuracy", torch.full((classes,), PROMISE))
        self.register_buffer("share", torch.zeros(classes))

    def bind(self, setup: Setup) -> None:
        """Store the setup, which holds the class priors.

        Args:
            setup: facts about the data.
        """
        self.setup = setup

    @property
    def weights(self) -> Tensor:
        """The weight of a pseudo-label of each class, (K,)."""
        by_accuracy = ((self.accuracy - WORTHLESS) / (ENOUGH - WORTHLESS)).clamp(0, 1)
        fractions = torch.maximum(self.setup.unlabeled_prior, self.setup.prior.cpu().double())
        limit = MOST_SHARE * fractions.to(self.share)
        return by_accuracy * torch.where(self.share > limit, limit / self.share, 1.0)

    def learn(self, accuracy: Tensor) -> None:
        """Use these accuracies from now on.

        Args:
            accuracy: a, (K,).
        """
        self.accuracy.copy_(accuracy)

    def forward(self, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the lowered weights of pseudo-labels.

        Args:
            labels: class of every pseudo-label, (B,).
            weights: weight of every pseudo-label from its selection, (B,).

        Returns:
            The lowered weights, (B,).
        """
        # The weights before lowering are counted; otherwise a class would recover as soon as it is held back.
        self.record(labels, weights)
        return weights * self.weights.to(weights)[labels]

    def update(self, *rows: Tensor) -> None:
        labels, weights = rows
        batch_share = torch.zeros_like(self.share).index_add_(0, labels, weights.to(self.share)) / len(labels)
        self.share.lerp_(batch_share, 1 / MEMORY)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A checkpoint from before this class existed continues as if all pseudo-labels had been right.
        for name, value in self.named_buffers():
            state.setdefault(f"{prefix}{name}", value)
        super()._load_from_state_dict(state, prefix, *rest)


def estimate_accuracy(labels: Tensor, weights: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Return a_j, the accuracy of the used pseudo-labels of each class, (K,), float64.

    Args:
        labels: class of every row's pseudo-label, (n,).
        weights: weight of every pseudo-label from its selection, (n,).
        truth: true classes of the rows, (n,).
        classes: K.

    Returns:
        Accuracies; `PROMISE` for a class without any used pseudo-label.
    """
    weights = weights.double().cpu()
    labels = labels.cpu()
    is_right = (labels == truth.cpu()).double()
    totals = torch.bincount(labels, weights, minlength=classes)
    hits = torch.bincount(labels, weights * is_right, minlength=classes)
    return (hits + PRIOR_LABELS * PROMISE) / (totals + PRIOR_LABELS)
