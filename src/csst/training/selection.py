"""Which model is kept: the best on the objective itself, measured on validation, constraints first; or the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective


@dataclass(frozen=True)
class Standing:
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


def standing(objective: Objective, confusion: Confusion, tolerance: float) -> Standing:
    slack = objective.slack(confusion).tolist()
    missed = max([0.0, *(-s for s in slack)])
    return Standing(float(objective.value(confusion)), slack, missed if missed > tolerance else 0.0)


@dataclass
class Best:
    """The model that is kept so far, with its weights and the gain that was in force when they were trained."""

    step: int = -1
    violation: float = float("inf")
    value: float = -float("inf")
    score: float = -float("inf")
    stale: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)
    gain: Tensor | None = None

    def consider(
        self,
        now: Standing,
        step: int,
        weights: Callable[[], dict[str, Tensor]],
        gain: Tensor,
        any_standing: bool = False,
    ) -> bool:
        """Keep the model's weights (asked for only then) if it stands no worse than the best so far, or in any case.

        Of equals the one trained longer is kept (a worst recall of 0 is a common tie), but only a better one
        counts against early stopping. The untrained model is never a candidate.
        """
        better = (-now.violation, now.value) > (-self.violation, self.value)
        self.stale = 0 if better else self.stale + 1
        if step == 0 or not (any_standing or now.beats((self.violation, self.value))):
            return False
        self.step, self.gain = step, gain.detach().cpu().clone()
        self.violation, self.value, self.score = now.violation, now.value, now.score
        self.state = weights()
        return True

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
