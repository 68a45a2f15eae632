"""Which of two models is better: the one that misses its constraints by less, then the one with the higher value."""

from __future__ import annotations

from dataclasses import dataclass

from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective


@dataclass(frozen=True)
class ValidationScore:
    """How good a model is: the violation of its constraints is compared first, then the value.

    Args:
        value: value of the objective.
        slack: slack of each constraint, negative if it is missed.
        violation: the largest miss if it exceeds a tolerance, else 0.
    """

    value: float
    slack: list[float]
    violation: float

    @property
    def score(self) -> float:
        """One number for both: the value if the constraints are met, else the value - 10 · the largest violation."""
        if self.violation > 0:
            return self.value - 10 * max(0.0, -min(self.slack))
        return self.value

    @property
    def rank(self) -> tuple[float, float]:
        """Key by which models are ordered: the higher, the better."""
        return -self.violation, self.value


def score_on(objective: Objective, confusion: Confusion, tolerance: float) -> ValidationScore:
    """Return the score of a model with this confusion; a miss of at most the tolerance counts as met."""
    slack = objective.slack(confusion).tolist()
    miss = max([0.0, *(-s for s in slack)])
    return ValidationScore(float(objective.value(confusion)), slack, miss if miss > tolerance else 0.0)
