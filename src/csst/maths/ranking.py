"""Which of two models is better: the one that misses its constraints by less, then the one with the higher value."""

from __future__ import annotations

from dataclasses import dataclass

from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective


@dataclass(frozen=True)
class ValidationScore:
    """How good a model is: the violation of its constraints is compared first, then the value.

    Args:
        value: of the objective.
        slack: of every constraint, negative where it is missed.
        violation: the largest miss beyond a tolerance, else 0.
    """

    value: float
    slack: list[float]
    violation: float

    @property
    def score(self) -> float:
        """One number for both: the value if the constraints are met, else the value - 10 · the largest violation."""
        return self.value - 10 * max(0.0, -min(self.slack)) if self.violation > 0 else self.value

    @property
    def rank(self) -> tuple[float, float]:
        """What models are ordered by: the higher, the better."""
        return -self.violation, self.value


def score_on(objective: Objective, confusion: Confusion, tolerance: float) -> ValidationScore:
    """The score of a model with this confusion; a constraint missed by no more than the tolerance counts as met."""
    slack = objective.slack(confusion).tolist()
    missed = max([0.0, *(-s for s in slack)])
    return ValidationScore(float(objective.value(confusion)), slack, missed if missed > tolerance else 0.0)
