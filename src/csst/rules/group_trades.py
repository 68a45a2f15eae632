"""What it costs to leave no group of rows behind: mean recall against the lowest recall of a class in a group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.rules.candidates import fit_pooled, sharpness
from csst.rules.cell_objective import CellObjective
from csst.rules.cells import CellScores, RowGroups, make_cells
from csst.rules.class_trades import keep_trade
from csst.rules.feasibility import describe_feasibility, find_missed
from csst.rules.fit import estimate_candidate
from csst.rules.soft_objective import SoftObjective
from csst.rules.threads import use_one_thread

#: sentences from the highest mean recall to the highest recall of the worst class in the worst group
STEPS = 6


@dataclass(frozen=True)
class GroupPoint:
    """What the rule of one sentence is expected to do.

    Args:
        sentence: the sentence, which gives the rule again by `decide`.
        mean_recall: mean over the classes of all rows.
        lowest_recall: lowest recall of a class in a group.
    """

    sentence: str
    mean_recall: float
    lowest_recall: float


@use_one_thread
def trace_groups(
    evidence: HeldOutScores, groups: RowGroups, prior: np.ndarray, per_group: bool, class_names: tuple[str, ...]
) -> tuple[GroupPoint, ...]:
    """Return the trade from the highest mean recall down, each point with a higher lowest recall than those before.

    Estimated from the rows that the rules are fitted on, as the other points of a frontier are.

    Args:
        evidence: scores of labeled and unlabeled rows.
        groups: groups of its rows.
        prior: the deployment prior, (K,).
        per_group: whether each group has a rule of its own.
        class_names: K names.

    Returns:
        The points.
    """
    cells = make_cells(evidence, groups, prior, not per_group)
    points = []
    for text in list_sentences(groups.column):
        sentence = read_objective(text, class_names=class_names)
        assert isinstance(sentence, Sentence)
        objective = CellObjective(sentence.bind_row_groups(groups.names), torch.from_numpy(cells.cell_prior))
        confusion = fit_cells(cells, objective).confusion
        mean = float(objective.view(confusion).recall.mean())
        points.append(GroupPoint(text, mean, float(confusion.recall.min())))
    return keep_trade(points, lambda point: (point.mean_recall, point.lowest_recall))


@use_one_thread
def check_groups(
    evidence: HeldOutScores, groups: RowGroups, prior: np.ndarray, per_group: bool, sentence: Sentence
) -> tuple[bool, str]:
    """Return whether the bounds of a sentence about groups can be met, and what comes nearest, in words.

    Args:
        evidence: scores of labeled and unlabeled rows.
        groups: groups of its rows.
        prior: the deployment prior, (K,).
        per_group: whether each group has a rule of its own.
        sentence: bound to its classes and groups.

    Returns:
        Whether they can, and the sentence.
    """
    cells = make_cells(evidence, groups, prior, not per_group)
    objective = CellObjective(sentence, torch.from_numpy(cells.cell_prior))
    estimate = fit_cells(cells, objective)
    misses = list(find_missed(objective, estimate))
    return not misses, describe_feasibility(objective, estimate, misses, lambda goal: estimate)


def fit_cells(cells: CellScores, objective: CellObjective) -> RateEstimate:
    """Return the rates of cells that the rule of an objective is expected to have."""
    rule = fit_pooled(SoftObjective(objective, cells.labeled_prior, sharpness(cells)), cells)
    return estimate_candidate(cells, rule, cells.labeled_prior)


def list_sentences(column: str) -> list[str]:
    """Return sentences from the highest mean recall to the best worst class in the worst group of a column."""
    shares = np.linspace(0, 1, STEPS)
    # A share of the minimum stays in the first, so that it is about groups, too.
    shares[0] = 0.01
    mixtures = [f"max {1 - share:.6g}*mean(recall) + {share:.6g}*min(recall by {column})" for share in shares[:-1]]
    return [*mixtures, f"max min(recall by {column})"]
