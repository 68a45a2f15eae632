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
        score: ValidationScore,
        step: int,
        weights: Callable[[], dict[str, Tensor]],
        gain: Tensor,
        always: bool = False,
    ) -> bool:
        """Keep the model's weights if it is at least as good as the best so far.

        Of equals the one trained longer is kept (a worst recall of 0 is a common tie), but only a better one
        counts against early stopping. The untrained model is never a candidate.

        Args:
            score: of the model on validation.
            step: at which it was measured.
            weights: returns the weights, asked only if they are kept.
            gain: under which it was trained.
            always: keep it however good it is.

        Returns:
            Whether the model was kept.
        """
        self.updates_since_improvement = 0 if score.rank > self.rank else self.updates_since_improvement + 1
        if step == 0 or not (always or score.rank >= self.rank):
            return False
        self.step, self.gain = step, gain.detach().cpu().clone()
        self.violation, self.value, self.score = score.violation, score.value, score.score
        self.state = weights()
        return True

    @property
    def rank(self) -> tuple[float, float]:
        """As `ValidationScore.rank`."""
        return -self.violation, self.value

    def copy_weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.state.items()}

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
