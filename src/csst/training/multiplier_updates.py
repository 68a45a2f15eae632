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
    """Moves multipliers as `settings.dual` says.

    Args:
        multipliers: changed in place.
        settings: of the training.
        is_solvable: whether the gain follows the run's objective, so that there is something to solve for.
        prior: class fractions under which the objective is judged, (K,).
    """

    def __init__(self, multipliers: Multipliers, settings: Settings, is_solvable: bool, prior: Tensor) -> None:
        self.multipliers, self.settings = multipliers, settings
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
        """The gain behind the averaged model: averaged as its weights are where it is solved for, else the present."""
        return self.multipliers.gain if self.averaged_gain is None else self.averaged_gain.gain

    def end_step(self) -> None:
        """Take in one optimizer step under the present gain."""
        if self.averaged_gain is not None:
            self.averaged_gain.update(self.multipliers.gain)

    def solve(
        self, measurement: Measurement, train_prior: Tensor, class_names: Sequence[str] | None
    ) -> Solution | None:
        """The gain that the present scores ask for; None where it is not solved for.

        Args:
            measurement: of the averaged model.
            train_prior: class fractions of the labeled examples, (K,).
            class_names: for messages.

        Returns:
            The solution.
        """
        if self.solver is None:
            return None
        return self.solver.solve(measured_evidence(measurement, self.measured_gain, train_prior, class_names))

    def move(self, confusion: Confusion, solution: Solution | None, step: int) -> float:
        """Let lambda and the gain follow a measurement; after the last step nothing moves.

        Args:
            confusion: of the averaged model.
            solution: what `solve` gave.
            step: optimizer steps taken.

        Returns:
            The size of the step: omega, or the part of the way to the solution; 0 for fixed multipliers.
        """
        dual, progress = self.settings.dual, step / self.settings.training.steps
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
        """The averaged gain, where there is one."""
        return {} if self.averaged_gain is None else self.averaged_gain.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the averaged gain.
        """
        if self.averaged_gain is not None:
            self.averaged_gain.load_state_dict(state)


def make_multipliers(objective: Objective, train_prior: Tensor, dual: Dual) -> Multipliers:
    """The multipliers of an objective as they start."""
    metric_prior = None if dual.metric_prior == "default" else dual.metric_prior
    waits = dual.update == "gradient" and dual.windup == "wait"
    return Multipliers(objective, train_prior, dual.step_size, dual.initial, metric_prior, waits)
