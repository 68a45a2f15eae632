"""Estimates that pseudo-labels follow beside the gain: the unlabeled class prior, and the teacher's accuracy."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from csst.data.task import Task
from csst.maths.gain import Gain
from csst.selftraining.step import SelfTraining
from csst.training.measurement import Measurement, measured_balance


@dataclass(frozen=True, eq=False)
class Teaching:
    """Estimates about pseudo-labels from one measurement.

    Args:
        prior: class prior of the unlabeled examples, (K,); None if it is not estimated.
        accuracy: accuracy of the used pseudo-labels of each class, (K,); None if pseudo-labels are not held back.
    """

    prior: Tensor | None = None
    accuracy: Tensor | None = None


class Teacher:
    """Lets the consistency loss of a method follow measurements.

    Args:
        selftraining: the consistency loss, changed in place; None for a method that learns from labels only.
    """

    def __init__(self, selftraining: SelfTraining | None) -> None:
        self.balance = None if selftraining is None else selftraining.estimated_balance
        self.hold_back = None if selftraining is None else selftraining.hold_back
        self.selftraining = selftraining

    def measure(self, measurement: Measurement, gain: Gain, task: Task) -> Teaching:
        """Estimate the unlabeled class prior and the accuracy of pseudo-labels.

        Args:
            measurement: measurement of the averaged model.
            gain: gain behind the averaged model.
            task: what the model learns from.

        Returns:
            The estimates that the method uses; None for the others.
        """
        if self.balance is None:
            return Teaching()
        prior = measured_balance(measurement, gain, task)
        if self.selftraining is None or self.hold_back is None:
            return Teaching(prior)
        return Teaching(prior, self.selftraining.measure_accuracy(measurement.logits, measurement.labels, gain))

    def learn(self, teaching: Teaching, train_prior: Tensor) -> None:
        """Let pseudo-labels and their weights follow these estimates from now on.

        Args:
            teaching: result of `measure`.
            train_prior: class fractions of the labeled examples, (K,).
        """
        if self.balance is not None and teaching.prior is not None:
            self.balance.learn(teaching.prior, train_prior)
        if self.hold_back is not None and teaching.accuracy is not None:
            self.hold_back.learn(teaching.accuracy)

    @property
    def prior(self) -> list[float] | None:
        """Estimated class prior of the unlabeled examples; None if it is not estimated."""
        return None if self.balance is None else self.balance.prior.tolist()

    @property
    def accuracy(self) -> list[float] | None:
        """Accuracy of the used pseudo-labels of each class; None if pseudo-labels are not held back."""
        return None if self.hold_back is None else self.hold_back.accuracy.tolist()

    @property
    def weights(self) -> list[float] | None:
        """Weight of the pseudo-labels of each class, 0 to 1; None if pseudo-labels are not held back."""
        return None if self.hold_back is None else self.hold_back.weights.tolist()
