"""How the multipliers of a training move: by gradient (Algorithms 1 and 2), solved for, or not at all."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from csst.data.task import Task
from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.gain import Gain
from csst.maths.language import Sentence
from csst.maths.multipliers import Multipliers
from csst.maths.objectives import Objective
from csst.settings import Settings
from csst.training.group_gains import GroupGains, GroupSolver, count_task_cells, find_measured_groups
from csst.training.measurement import Measurement, measured_evidence
from csst.training.schedules import dual_step
from csst.training.solved_multipliers import AveragedGain, Solution, Solver


class MultiplierUpdates:
    """Makes the multipliers of a training, and moves them according to `settings.dual`.

    Args:
        goal: the objective that the gain follows, bound to its classes.
        stated_objective: the run's objective, which may be about groups of rows; each group then has its own gain.
        task: the examples.
        settings: settings of the training.
        is_solvable: whether the gain follows the run's objective, so that it can be solved for.
    """

    def __init__(
        self, goal: Objective, stated_objective: Objective, task: Task, settings: Settings, is_solvable: bool
    ) -> None:
        dual = settings.dual
        metric_prior = None if dual.metric_prior == "default" else dual.metric_prior
        waits = dual.update == "gradient" and dual.windup == "wait"
        self.settings = settings
        self.multipliers = Multipliers(goal, task.train_prior, dual.step_size, dual.initial, metric_prior, waits)
        self.solver: Solver | GroupSolver | None = None
        self.averaged_gain: AveragedGain | None = None
        self.group_gains: GroupGains | None = None
        if dual.update == "solve" and is_solvable and goal.constant_gain is None:
            self.solver = Solver(self.multipliers, task.validation_prior, dual.farthest)
            self.averaged_gain = AveragedGain(self.multipliers.gain, settings.ema)
        if is_solvable and isinstance(stated_objective, Sentence) and stated_objective.column is not None:
            self._add_groups(stated_objective.bind_row_groups(task.group_names), task)

    def _add_groups(self, sentence: Sentence, task: Task) -> None:
        """Give each group of rows a gain of its own if gains are solved for."""
        if self.solver is not None:
            self.group_gains = GroupGains(self.multipliers.gain, count_task_cells(task))
            farthest = self.settings.dual.farthest
            self.solver = GroupSolver(sentence, self.group_gains, task.validation_prior, farthest)
        elif self.settings.dual.update == "gradient" and self.multipliers.objective.constant_gain is None:
            raise InputError(
                f"gains of groups of rows ('by {sentence.column}') are solved for, and dual.update is 'gradient': set "
                "dual.update to solve, or leave the groups out"
            )

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

    def find_row_gain(self, groups: Tensor | None) -> Gain:
        """Return the gain of each row of a batch, or one gain for all without groups.

        Args:
            groups: groups of the rows, (B,); -1 if unknown.
        """
        if self.group_gains is None or groups is None:
            return self.multipliers.gain
        return self.group_gains.of_rows(groups, self.multipliers.gain)

    def solve(self, measurement: Measurement, task: Task, watched: Tensor | None) -> Solution | None:
        """Solve for the gain that the current scores ask for.

        Args:
            measurement: measurement of the averaged model.
            task: the examples.
            watched: unlabeled rows that are measured; None for none.

        Returns:
            The solution; None if the gain is not solved for.
        """
        if self.solver is None:
            return None
        evidence = measured_evidence(measurement, self.measured_gain, task)
        if isinstance(self.solver, Solver):
            return self.solver.solve(evidence)
        return self.solver.solve(evidence, find_measured_groups(measurement, task, watched))

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
        """Return the state of the averaged gain, and of the gains of groups; empty if the gain is not solved for."""
        state = {} if self.averaged_gain is None else self.averaged_gain.state_dict()
        return state if self.group_gains is None else {**state, "by_group": self.group_gains.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Args:
            state: the averaged gain, and the gains of groups.
        """
        if self.averaged_gain is not None:
            self.averaged_gain.load_state_dict({name: state[name] for name in state if name != "by_group"})
        if self.group_gains is not None:
            self.group_gains.load_state_dict(state["by_group"])
