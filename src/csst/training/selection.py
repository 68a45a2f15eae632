"""Selection of a model: the best value of the objective on validation, constraints first; or the last model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from csst.maths.ranking import ValidationScore


@dataclass
class Best:
    """The selected model so far: its validation score, its weights, and the gain they were trained under."""

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
        """Select the model if it is at least as good as the best so far.

        Of two equal models the one trained longer is selected (a worst recall of 0 is a common tie), but only a better
        one resets early stopping. The untrained model is never selected.

        Args:
            score: score of the model on validation.
            step: step at which it was measured.
            weights: returns the weights; called only if the model is selected.
            gain: gain under which it was trained.
            always: select the model whatever its score.

        Returns:
            Whether the model was selected.
        """
        self.updates_since_improvement = 0 if score.rank > self.rank else self.updates_since_improvement + 1
        if step == 0 or not (always or score.rank >= self.rank):
            return False
        self.step = step
        self.violation = score.violation
        self.value = score.value
        self.score = score.score
        self.state = weights()
        self.gain = gain.detach().cpu().clone()
        return True

    @property
    def rank(self) -> tuple[float, float]:
        """The order of models, as in `ValidationScore.rank`."""
        return -self.violation, self.value

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
