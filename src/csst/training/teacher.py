"""What pseudo-labels follow beside the gain: the balance of unlabeled examples, and how often the teacher is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from csst.maths.gain import Gain
from csst.selftraining.step import SelfTraining
from csst.training.measurement import Measurement, measured_balance


@dataclass(frozen=True, eq=False)
class Teaching:
    """What a measurement says about pseudo-labels.

    Args:
        prior: class fractions of the unlabeled examples, (K,); None where they are not estimated.
        accuracy: how often the used pseudo-labels of each class are right, (K,); None where none is held back by it.
    """

    prior: Tensor | None = None
    accuracy: Tensor | None = None


class Teacher:
    """Lets the consistency loss of a method follow measurements; a method without one has nothing to follow.

    Args:
        selftraining: the consistency loss, changed in place; None for a method that learns from labels only.
    """

    def __init__(self, selftraining: SelfTraining | None) -> None:
        self.balance = None if selftraining is None else selftraining.estimated_balance
        self.hold_back = None if selftraining is None else selftraining.hold_back
        self.selftraining = selftraining

    def measure(
        self, measurement: Measurement, gain: Gain, train_prior: Tensor, class_names: Sequence[str] | None
    ) -> Teaching:
        """Return what the averaged model's scores say about pseudo-labels.

        Args:
            measurement: of the averaged model.
            gain: that behind it.
            train_prior: class fractions of the labeled examples, (K,).
            class_names: for messages.

        Returns:
            The teaching; empty where nothing is estimated.
        """
        if self.balance is None:
            return Teaching()
        prior = measured_balance(measurement, gain, train_prior, class_names)
        if self.selftraining is None or self.hold_back is None:
            return Teaching(prior)
        assert measurement.logits is not None
        assert measurement.labels is not None
        return Teaching(prior, self.selftraining.measure_accuracy(measurement.logits, measurement.labels, gain))

    def learn(self, teaching: Teaching, train_prior: Tensor) -> None:
        """Let pseudo-labels and their weights follow a teaching from now on.

        Args:
            teaching: what `measure` gave.
            train_prior: class fractions of the labeled examples, (K,).
        """
        if self.balance is not None and teaching.prior is not None:
            self.balance.learn(teaching.prior, train_prior)
        if self.hold_back is not None and teaching.accuracy is not None:
            self.hold_back.learn(teaching.accuracy)

    @property
    def prior(self) -> list[float] | None:
        """The class fractions of the unlabeled examples that are believed; None where they are not estimated."""
        return None if self.balance is None else self.balance.prior.tolist()

    @property
    def accuracy(self) -> list[float] | None:
        """How often the used pseudo-labels of each class are right; None where none is held back by it."""
        return None if self.hold_back is None else self.hold_back.accuracy.tolist()

    @property
    def weights(self) -> list[float] | None:
        """How much the pseudo-labels of each class count, 0 to 1; None where none is held back."""
        return None if self.hold_back is None else self.hold_back.weights.tolist()
