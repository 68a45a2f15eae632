"""Which of two models is better: the one that misses its constraints by less, then the one with the higher value."""

from __future__ import annotations

from dataclasses import dataclass

from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective


@dataclass(frozen=True)
class ValidationScore:
    """How a model stands: the violation beyond the tolerance comes first, then the value."""

    value: float
    slack: list[float]
    violation: float

    @property
    def score(self) -> float:
        """One number for the same order of things: value if feasible, else value - 10 · largest violation."""
        return self.value - 10 * max(0.0, -min(self.slack)) if self.violation > 0 else self.value

    def beats(self, other: tuple[float, float]) -> bool:
        return (-self.violation, self.value) >= (-other[0], other[1])


def score_on(objective: Objective, confusion: Confusion, tolerance: float) -> ValidationScore:
    slack = objective.slack(confusion).tolist()
    missed = max([0.0, *(-s for s in slack)])
    return ValidationScore(float(objective.value(confusion)), slack, missed if missed > tolerance else 0.0)
