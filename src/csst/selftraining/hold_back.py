"""Classes whose pseudo-labels turn out wrong teach less.

Rows with labels that the network has not learned from are labeled and selected as unlabeled examples are. Of those that
would be used with pseudo-label j, right_j of n_j are right:

    a_j = (right_j + PRIOR_LABELS PROMISE) / (n_j + PRIOR_LABELS)
    w_j = (a_j - WORTHLESS) / (ENOUGH - WORTHLESS),  not below 0 and not above 1

The weight of a pseudo-label j is multiplied by w_j. The rows are weighed as the objective weighs them, not as unlabeled
examples are: a frequent class that is right nearly always among unlabeled examples still teaches wrongly if it takes in
most examples of a rare one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

#: accuracy from which pseudo-labels count fully, and up to which they do not count at all
ENOUGH, WORTHLESS = 0.9, 0.5
#: accuracy that the thresholds promise (exp(-tau) of the default), believed as if seen on so many rows
PROMISE, PRIOR_LABELS = 0.95, 2.0


class HoldBack(nn.Module):
    """The accuracy of the used pseudo-labels of each class, and how much they count by it.

    Args:
        classes: K.
    """

    accuracy: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("accuracy", torch.full((classes,), PROMISE, dtype=torch.float64))

    @property
    def weights(self) -> Tensor:
        """w, (K,), float64."""
        return ((self.accuracy - WORTHLESS) / (ENOUGH - WORTHLESS)).clamp(0, 1)

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
            w_label used, (B,).
        """
        return used * self.weights.to(used)[labels]

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A run that began before pseudo-labels were held back goes on as if all had been right.
        state.setdefault(f"{prefix}accuracy", self.accuracy)
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
