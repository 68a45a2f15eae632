"""A gain for each group of rows, solved for as `csst.training.solved_multipliers` solves for one.

A sentence such as max min(recall by region) has a rule for each group a (`csst.rules.cells`), and the labeled rows of a
group are learned under the gain G_a to which the rule of the group is the best response:

    G_a = w_a / P(k | a),     w_a = diag(exp b_a)     for the rule  argmax_k log P(x | k, a) + b_ak

Each group is shrunk toward the first gain by the error of its own rule, so a group with few labels hardly moves. Rows
of unknown group have the mean gain, log G = sum_a P(a) log G_a, which is also what scores are freed of: what a network
that sees the group has learned beyond it is found by the calibration of each group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.gain import Gain, canonical
from csst.maths.language import Sentence
from csst.maths.multipliers import GainBuffer, Multipliers
from csst.maths.row_gain import RowGain
from csst.rules.candidates import Candidate
from csst.rules.cells import CellObjective, RowGroups, make_cells
from csst.training.measurement import Measurement
from csst.training.solved_multipliers import (
    ROWS,
    Solution,
    decide,
    find_reason_to_hold,
    fit_and_judge,
    judge,
    mix,
    parameters_of_gain,
    parameters_of_rule,
    shrink,
    weights_of,
)


class GroupGains(GainBuffer):
    """The gains of the groups of rows, all equal to that of the first multipliers at first.

    Args:
        gain: gain of the first multipliers.
        counts: labeled examples of each group and class, (A, K).
    """

    def __init__(self, gain: Gain, counts: np.ndarray) -> None:
        super().__init__()
        shares = counts.sum(1) / counts.sum()
        # One more row of each class, spread as all rows are: no fraction is 0.
        fractions = counts + shares[:, None]
        self.shares = shares
        self.fractions = fractions / fractions.sum(1, keepdims=True)
        self.register_buffer("entries", torch.stack([gain.entries.detach().cpu().double()] * len(counts)))
        self._cached: tuple[Tensor, int, list[Gain]] | None = None

    @property
    def gains(self) -> list[Gain]:
        """The gain of each group, A of them."""
        entries = self.entries
        # Loading a state writes into the buffer.
        if self._cached is None or self._cached[0] is not entries or self._cached[1] != entries._version:
            self._cached = entries, entries._version, [Gain(values) for values in entries]
        return self._cached[2]

    @property
    def parameters_of_groups(self) -> list[np.ndarray]:
        """b, (K,), or w, (K, K), of the rule to which each gain belongs."""
        pairs = zip(self.gains, self.fractions, strict=True)
        return [parameters_of_gain(gain, torch.from_numpy(fractions)) for gain, fractions in pairs]

    def of_rows(self, groups: Tensor, mean: Gain) -> RowGain:
        """Return the gain of each row.

        Args:
            groups: groups of the rows, (B,); -1 if unknown.
            mean: gain of a row of unknown group.

        Returns:
            The gains of the rows.
        """
        return RowGain([*self.gains, mean], groups)

    def adopt(self, parameters: list[np.ndarray]) -> Tensor:
        """Set the gains from parameters of rules.

        Args:
            parameters: b, (K,), or w, (K, K), of the rule of each group.

        Returns:
            The mean gain, (K,) or (K, K).
        """
        weights = [torch.from_numpy(weights_of(values)) for values in parameters]
        fractions = torch.from_numpy(self.fractions)
        shares = torch.from_numpy(self.shares)
        if all(values.ndim == 1 for values in weights):
            self.entries = torch.stack(weights) / fractions
            return (shares @ self.entries.log()).exp()
        matrices = [torch.diag(values) if values.ndim == 1 else values for values in weights]
        gains = [canonical(matrix / part[:, None]) for matrix, part in zip(matrices, fractions, strict=True)]
        self.entries = torch.stack([gain / gain.mean() for gain in gains])
        return (shares[:, None, None] * self.entries).sum(0)


class GroupSolver:
    """Solves for the gains of a sentence about groups of rows.

    Args:
        sentence: bound to its classes and groups.
        gains: gains of the groups, at first that of the first multipliers.
        prior: class fractions under which the sentence is judged, (K,).
        farthest: largest distance of log G of a class from its value at the first multipliers.
    """

    def __init__(self, sentence: Sentence, gains: GroupGains, prior: Tensor, farthest: float) -> None:
        self.sentence = sentence
        self.gains = gains
        self.prior = prior.cpu().double().numpy()
        self.farthest = farthest
        self.start = gains.parameters_of_groups

    def solve(self, evidence: HeldOutScores, groups: RowGroups) -> Solution:
        """Return the rules that are best for the current scores, each shrunk by its error.

        Args:
            evidence: scores without the mean gain.
            groups: groups of its rows.

        Returns:
            The parameters of the rule of each group, or the reason not to move.
        """
        reason = find_reason_to_hold(evidence)
        if reason:
            return Solution(hold=reason)
        cells = make_cells(evidence, groups, self.prior, are_tied=False)
        scores = cells.thin(ROWS)
        objective = CellObjective(self.sentence, torch.from_numpy(cells.cell_prior))
        prior = cells.labeled_prior
        judged_rule = fit_and_judge(scores, objective, prior)
        first_decisions = [decide_in_groups(self.start, z) for z in (scores.scores, scores.soft_scores)]
        if judged_rule.rank <= judge(scores, objective, prior, *first_decisions):
            return Solution(tuple(self.start))
        targets = read_groups(judged_rule.rule, len(self.start))
        parts = [read_groups(part, len(self.start)) for part in judged_rule.part_rules]
        results = [
            shrink(target, [part[a] for part in parts], start, self.farthest)
            for a, (target, start) in enumerate(zip(targets, self.start, strict=True))
        ]
        parameters, trusts = zip(*results, strict=True)
        return Solution(parameters, trust=float(self.gains.shares @ trusts))

    def move(self, multipliers: Multipliers, solution: Solution, share: float) -> None:
        """Move the gains as `Solver.move` does, each group to its solution, and the multipliers to the mean gain."""
        if solution.hold:
            return
        pairs = zip(self.gains.parameters_of_groups, solution.parameters, strict=True)
        mean = self.gains.adopt([mix(start, target, share) for start, target in pairs])
        prior = multipliers.train_prior.cpu()
        weights = mean * (prior if mean.ndim == 1 else prior[:, None])
        multipliers.adopt(weights, multipliers.value.cpu())


def read_groups(rule: Candidate, number: int) -> list[np.ndarray]:
    """Return the parameters of a rule of cells in each of a number of groups: b, (K,), or w, (K, K)."""

    def cut(values: np.ndarray | None) -> list[Any]:
        return [None] * number if values is None else list(values.reshape(number, -1))

    calibration = Calibration.identity(len(rule.prior) // number)
    blocks = zip(*map(cut, (rule.prior, rule.bias, rule.scale, rule.offset)), strict=True)
    return [parameters_of_rule(Candidate(rule.name, calibration, *block)) for block in blocks]


def decide_in_groups(parameters: list[np.ndarray], scores: np.ndarray) -> np.ndarray:
    """Return the cells (N,) that the rule of each row's group chooses for scores of cells, (N, A K)."""
    blocks = scores.reshape(len(scores), len(parameters), -1)
    groups = blocks.max(2).argmax(1)
    cells = np.zeros(len(scores), dtype=np.int64)
    for a, values in enumerate(parameters):
        rows = groups == a
        cells[rows] = a * blocks.shape[2] + decide(values, blocks[rows, a])
    return cells


def find_measured_groups(measurement: Measurement, task: Task, watched: Tensor | None) -> RowGroups:
    """Return the groups of the validation rows and of the watched unlabeled rows of a measurement."""
    assert measurement.groups is not None
    assert task.unlabeled_groups is not None
    rows = torch.zeros(0, dtype=torch.int64) if watched is None else watched
    unlabeled = task.unlabeled_groups[rows].numpy()
    return RowGroups(task.group_column, task.group_names, measurement.groups.numpy(), unlabeled)


def count_task_cells(task: Task) -> np.ndarray:
    """Return the labeled examples of each group and class of a task, (A, K)."""
    groups = task.labeled.groups
    if groups is None or task.unlabeled_groups is None:
        raise InputError("a sentence about groups of rows needs the group of every labeled example")
    is_known = groups >= 0  # pseudo-labels of an earlier generation may be of unknown group
    cells = groups[is_known] * task.classes + task.labeled.labels[is_known]
    number = len(task.group_names)
    return torch.bincount(cells, minlength=number * task.classes).reshape(number, task.classes).numpy()
