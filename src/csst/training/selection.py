"""Which model is kept: the best on the objective itself, measured on validation, constraints first; or the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from csst.maths.ranking import ValidationScore


@dataclass
class Best:
    """The model that is kept so far, with its weights and the gain that was in force when they were trained."""

    step: int = -1
    violation: float = float("inf")
    value: float = -float("inf")
    score: float = -float("inf")
    updates_since_improvement: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)
    gain: Tensor | None = None

    def consider(
        self,
        now: ValidationScore,
        step: int,
        weights: Callable[[], dict[str, Tensor]],
        gain: Tensor,
        always: bool = False,
    ) -> bool:
        """Keep the model's weights (asked for only then) if it stands no worse than the best so far, or in any case.

        Of equals the one trained longer is kept (a worst recall of 0 is a common tie), but only a better one
        counts against early stopping. The untrained model is never a candidate.
        """
        better = (-now.violation, now.value) > (-self.violation, self.value)
        self.updates_since_improvement = 0 if better else self.updates_since_improvement + 1
        if step == 0 or not (always or now.beats((self.violation, self.value))):
            return False
        self.step, self.gain = step, gain.detach().cpu().clone()
        self.violation, self.value, self.score = now.violation, now.value, now.score
        self.state = weights()
        return True

    def copy_weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.state.items()}

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
