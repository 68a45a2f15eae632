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
        violation: the largest miss if it exceeds a tolerance, else 0; of costs in their unit, of rates in 1.
        value_unit: the unit of the value, 1 without costs.
        unit: that of the constraint with the largest miss.
    """

    value: float
    slack: list[float]
    violation: float
    value_unit: float = 1.0
    unit: float = 1.0

    @property
    def score(self) -> float:
        """One number for both: the value if the constraints are met, else the value - 10 · the largest violation."""
        if self.violation > 0:
            return self.value - 10 * self.violation * self.value_unit
        return self.value

    @property
    def rank(self) -> tuple[float, float]:
        """Key by which models are ordered: the higher, the better."""
        return -self.violation, self.value


def score_on(objective: Objective, confusion: Confusion, tolerance: float) -> ValidationScore:
    """Return the score of a model with this confusion; a miss of at most the tolerance counts as met."""
    slack = objective.slack(confusion).tolist()
    value_unit, units = objective.measure_units(confusion.prior)
    units = units or (1.0,) * len(slack)
    misses = [-distance / unit for distance, unit in zip(slack, units, strict=True)]
    miss, unit = max([(0.0, 1.0), *zip(misses, units, strict=True)])
    violation = miss if miss > tolerance else 0.0
    return ValidationScore(float(objective.value(confusion)), slack, violation, value_unit, unit)
