"""Classes whose pseudo-labels turn out wrong teach less.

Rows with labels that the network has not learned from are labeled and selected as unlabeled examples are. Of those that
would be used with pseudo-label j, right_j of n_j are right:

    a_j = (right_j + PRIOR_LABELS PROMISE) / (n_j + PRIOR_LABELS)
    w_j = (a_j - WORTHLESS) / (ENOUGH - WORTHLESS),  not below 0 and not above 1

The rows are weighed as the objective weighs them, not as unlabeled examples are: a frequent class that is right nearly
always among unlabeled examples still teaches wrongly if it takes in most examples of a rare one.

The averaged network may be right while the one that teaches is not, which sees other batches and a gain that moves. Let
u_j be the part of the latest unlabeled examples that are used with pseudo-label j. These labels cannot be right if that
is many times what the class has, so the weight of a pseudo-label j is

    w_j min(1, MOST_SHARE max(pi_u,j, pi_L,j) / u_j).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from csst.selftraining.stateful import Setup, StatefulPart

#: accuracy from which pseudo-labels count fully, and up to which they do not count at all
ENOUGH, WORTHLESS = 0.9, 0.5
#: accuracy that the thresholds promise (exp(-tau) of the default), believed as if seen on so many rows
PROMISE, PRIOR_LABELS = 0.95, 2.0
#: how many times its examples a class may have in pseudo-labels, and the steps over which these are counted
MOST_SHARE, MEMORY = 3.0, 100


class HoldBack(StatefulPart):
    """How much the pseudo-labels of each class count, by their accuracy and their number.

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
        """Remember where the class fractions of the examples are found.

        Args:
            setup: what is known of the data.
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
        """Believe these accuracies from now on.

        Args:
            accuracy: a, (K,).
        """
        self.accuracy.copy_(accuracy)

    def forward(self, labels: Tensor, used: Tensor) -> Tensor:
        """Return the weights of pseudo-labels, held back.

        Args:
            labels: the class of every pseudo-label, (B,).
            used: its weight so far, (B,).

        Returns:
            The weights, (B,).
        """
        # What is counted is not held back: else a class would be let go as soon as it is held.
        self.record(labels, used)
        return used * self.weights.to(used)[labels]

    def update(self, *rows: Tensor) -> None:
        labels, used = rows
        newest = torch.zeros_like(self.share).index_add_(0, labels, used.to(self.share)) / len(labels)
        self.share.lerp_(newest, 1 / MEMORY)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A run that began before pseudo-labels were held back goes on as if all had been right.
        for name, value in self.named_buffers():
            state.setdefault(f"{prefix}{name}", value)
        super()._load_from_state_dict(state, prefix, *rest)


def estimate_accuracy(labels: Tensor, used: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Return a_j, how often the used pseudo-labels of each class are right, (K,), float64.

    Args:
        labels: the class of every judged row's pseudo-label, (n,).
        used: the weight with which it would be used, (n,).
        truth: the rows' own labels, (n,).
        classes: K.

    Returns:
        Accuracies; `PROMISE` for a class without any used pseudo-label.
    """
    weight = used.double().cpu()
    labels = labels.cpu()
    is_right = (labels == truth.cpu()).double()
    total = torch.bincount(labels, weight, minlength=classes)
    right = torch.bincount(labels, weight * is_right, minlength=classes)
    return (right + PRIOR_LABELS * PROMISE) / (total + PRIOR_LABELS)
