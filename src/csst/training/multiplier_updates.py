"""How the multipliers of a training move: by gradient (Algorithms 1 and 2), solved for, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from csst.maths.confusion import Confusion
from csst.maths.gain import Gain
from csst.maths.multipliers import Multipliers
from csst.maths.objectives import Objective
from csst.settings import Dual, Settings
from csst.training.measurement import Measurement, measured_evidence
from csst.training.schedules import dual_step
from csst.training.solved_multipliers import AveragedGain, Solution, Solver


class MultiplierUpdates:
    """Moves multipliers according to `settings.dual`.

    Args:
        multipliers: multipliers, changed in place.
        settings: settings of the training.
        is_solvable: whether the gain follows the run's objective, so that it can be solved for.
        prior: class fractions under which the objective is judged, (K,).
    """

    def __init__(self, multipliers: Multipliers, settings: Settings, is_solvable: bool, prior: Tensor) -> None:
        self.multipliers = multipliers
        self.settings = settings
        self.solver: Solver | None = None
        self.averaged_gain: AveragedGain | None = None
        if settings.dual.update == "solve" and is_solvable and multipliers.objective.constant_gain is None:
            self.solver = Solver(multipliers, prior, settings.dual.farthest)
            self.averaged_gain = AveragedGain(multipliers.gain, settings.ema)

    @property
    def pools_rates(self) -> bool:
        """Whether unlabeled rows are measured together with validation rows."""
        return self.settings.dual.rates == "pooled" or self.solver is not None

    @property
    def measured_gain(self) -> Gain:
        """The gain behind the averaged model: averaged like the weights if it is solved for, else the current gain."""
        return self.multipliers.gain if self.averaged_gain is None else self.averaged_gain.gain

    def end_step(self) -> None:
        """Add the current gain to the averaged gain after an optimizer step."""
        if self.averaged_gain is not None:
            self.averaged_gain.update(self.multipliers.gain)

    def solve(
        self, measurement: Measurement, train_prior: Tensor, class_names: Sequence[str] | None
    ) -> Solution | None:
        """Solve for the gain that the current scores ask for.

        Args:
            measurement: measurement of the averaged model.
            train_prior: class fractions of the labeled examples, (K,).
            class_names: names of the K classes, for messages.

        Returns:
            The solution; None if the gain is not solved for.
        """
        if self.solver is None:
            return None
        return self.solver.solve(measured_evidence(measurement, self.measured_gain, train_prior, class_names))

    def move(self, confusion: Confusion, solution: Solution | None, step: int) -> float:
        """Move lambda and the gain; after the last step nothing moves.

        Args:
            confusion: confusion of the averaged model.
            solution: result of `solve`.
            step: optimizer steps taken.

        Returns:
            The size of the step: omega, or the part of the way to the solution; 0 for fixed multipliers.
        """
        dual = self.settings.dual
        progress = step / self.settings.training.steps
        if dual.update == "fixed":
            return 0.0
        size = dual_step(dual.schedule, dual.step_size if self.solver is None else dual.share, progress)
        if progress < 1 and step >= self.settings.dual_warmup:
            if self.solver is None:
                self.multipliers.update(confusion, size)
            elif solution is not None:
                self.solver.move(self.multipliers, solution, size)
        return size

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the averaged gain; empty if the gain is not solved for."""
        return {} if self.averaged_gain is None else self.averaged_gain.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the averaged gain.
        """
        if self.averaged_gain is not None:
            self.averaged_gain.load_state_dict(state)


def make_multipliers(objective: Objective, train_prior: Tensor, dual: Dual) -> Multipliers:
    """Return the initial multipliers of an objective."""
    metric_prior = None if dual.metric_prior == "default" else dual.metric_prior
    waits = dual.update == "gradient" and dual.windup == "wait"
    return Multipliers(objective, train_prior, dual.step_size, dual.initial, metric_prior, waits)
