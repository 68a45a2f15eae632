"""Decision rules for sentences about groups of rows: one for all groups, or one for each.

Groups and classes become cells (`csst.rules.cells`), for which a rule is searched, judged and estimated as for classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.estimation.class_rates import UNLABELED_WORTH, RateEstimate
from csst.estimation.expectation import estimate_intervals
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import Confusion
from csst.maths.language import Sentence
from csst.rules.candidates import MARGIN
from csst.rules.cells import CellObjective, CellScores, RowGroups, count_cells, make_cells
from csst.rules.possible import refuse_impossible
from csst.rules.rule import DecisionRule, GroupedRule, build_rule

#: labels of a class in a group below which its numbers are said to lean on what the model expects
FEW_LABELS = 5


@dataclass(frozen=True, eq=False)
class GroupEstimate:
    """What a rule is expected to do in each group of rows.

    Args:
        groups: the groups of the rows behind it.
        objective: the sentence as an objective of cells.
        estimate: rates of cells, (A K, A K).
        class_names: K names.
        is_per_group: whether each group has a rule of its own.
    """

    groups: RowGroups
    objective: CellObjective
    estimate: RateEstimate
    class_names: tuple[str, ...]
    is_per_group: bool

    @property
    def sentence(self) -> Sentence:
        """The sentence, bound to classes and groups."""
        return self.objective.sentence

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """95 % intervals of the value, the constraints and every cell, simultaneous over cells."""
        return estimate_intervals(self.objective, self.estimate)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: recall and coverage of every group and class with the labels behind them."""
        shape = (len(self.groups.names), len(self.class_names))
        recall = np.array([(row["estimate"], row["low"], row["high"]) for row in self.intervals["recall"]])
        coverage = self.estimate.confusion.coverage.numpy().reshape(shape)
        return {
            "column": self.groups.column,
            "names": list(self.groups.names),
            "is_per_group": self.is_per_group,
            "sentence": str(self.sentence),
            "value": self.intervals["value"],
            "constraints": self.intervals["constraints"],
            "lowest_recall": self.intervals["min_recall"],
            "labels": self.estimate.n.reshape(shape).tolist(),
            "recall": recall.reshape(*shape, 3).tolist(),
            "coverage": (coverage / coverage.sum(1, keepdims=True)).tolist(),
        }


def bind_groups(sentence: Any, groups: RowGroups | None) -> Sentence:
    """Return the sentence for the groups of rows; raise an error unless both or neither is about groups."""
    column = sentence.column
    if groups is None:
        raise InputError(
            f"'{sentence}' needs the {column} of every row: pass group=... to fit, or --data.group {column}"
        )
    if column is None:
        raise InputError(
            f"groups are given, but '{sentence}' names none: write for instance max min(recall by {groups.column})"
        )
    if groups.column and column != groups.column:
        raise InputError(
            f"the sentence says 'by {column}', and the groups are of column {groups.column!r}: use one name"
        )
    assert isinstance(sentence, Sentence)
    return sentence.bind_row_groups(groups.names)


def name_few_labels(counts: np.ndarray, groups: RowGroups, class_names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a sentence about groups with few labels of a class, counts (A, K); or none."""
    cells = np.argwhere(counts < FEW_LABELS)
    if not len(cells):
        return ()
    examples = [f"{class_names[k]!r} in {groups.names[a]!r} ({counts[a, k]})" for a, k in cells[:3]]
    remainder = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
    return (
        f"fewer than {FEW_LABELS} labels of a class in a group: {', '.join(examples)}{remainder}; their rates are "
        "drawn to what the model expects: label more of these rows, or merge groups",
    )


def make_rule(cells: CellScores, rule: DecisionRule, chosen: str) -> DecisionRule | GroupedRule:
    """Return a rule of cells as one on the model's probabilities: one for all groups, or one for each."""
    shape = cells.shift.shape
    scale = rule.scale.numpy().reshape(shape)
    offset = rule.offset.numpy().reshape(shape)
    if chosen == "argmax":
        scale = (cells.train_prior / cells.labeled_prior).reshape(shape)
        offset = np.zeros(shape)
    rules = []
    for a, fractions in enumerate(cells.cell_prior):
        balance = fractions / fractions.sum()
        weights = scale[a]
        if cells.layout.are_tied:
            weights = weights * fractions / cells.class_prior
            balance = cells.class_prior
        unit = np.abs(weights).max()
        calibration = Calibration(float(cells.temperature[a]), cells.shift[a])
        train_prior = cells.plain.train_prior
        rules.append(build_rule(weights / unit, offset[a] / unit, calibration, balance, train_prior, cells.plain.undo))
        if cells.layout.are_tied:
            return rules[0]
    return GroupedRule(cells.groups.column, cells.groups.names, tuple(rules))


def merge_groups(estimate: RateEstimate, cells: CellScores) -> RateEstimate:
    """Return the rates of classes over all groups, (K, K), from the rates of cells."""
    cell_prior = cells.cell_prior
    number, classes = cell_prior.shape
    counts = estimate.n.reshape(cell_prior.shape)

    def merge(rates: np.ndarray, weights: np.ndarray) -> np.ndarray:
        blocks = rates.reshape(number, classes, number, classes).sum(2)
        return (blocks * weights[:, :, None]).sum(0) / np.maximum(weights.sum(0), 1e-300)[:, None]

    prior = cell_prior.sum(0)
    rates = merge(estimate.confusion.rates.numpy(), cell_prior)
    return RateEstimate(
        Confusion(torch.from_numpy(rates), torch.from_numpy(prior)),
        merge(estimate.labeled_rates, np.maximum(counts, 1e-9)),
        merge(estimate.unlabeled_rates, cell_prior),
        counts.sum(0),
        np.minimum(UNLABELED_WORTH, estimate.worth.reshape(number, classes).sum(0)),
        len(cells.plain.unlabeled_scores),
        cells.plain.unlabeled_prior,
        estimate.is_cross_fitted,
    )


def fit_groups(
    evidence: HeldOutScores,
    sentence: Sentence,
    groups: RowGroups,
    prior: np.ndarray,
    seed: int = 0,
    margin: float = MARGIN,
    per_group: bool = False,
) -> Any:
    """Return the rule for a sentence about groups of rows, a `csst.rules.FittedRule`.

    Args:
        evidence: scores of classes of labeled and unlabeled rows.
        sentence: bound to its classes.
        groups: groups of the rows of the evidence.
        prior: the deployment prior, (K,).
        seed: seed of the folds that judge rules.
        margin: standard errors by which constraints are to be met, as far as they can be.
        per_group: whether each group gets a rule of its own, which needs the group of every new row.
    """
    # It builds on this module.
    from csst.rules.fit import fit_evidence

    bound = bind_groups(sentence, groups)
    groups.require_rows(evidence)
    names = bound.binding.class_names or tuple(map(str, range(evidence.classes)))
    cells = make_cells(evidence, groups, prior, not per_group)
    for name, fractions in zip(groups.names, cells.cell_prior, strict=True):
        try:
            refuse_impossible(bound.of_one_group, fractions / fractions.sum())
        except InputError as error:
            raise InputError(f"in {bound.column} {name!r}, {error}") from None
    objective = CellObjective(bound, torch.from_numpy(cells.cell_prior))
    fitted = fit_evidence(cells, objective, cells.labeled_prior, seed, margin)
    assert isinstance(fitted.rule, DecisionRule)
    notes = name_few_labels(count_cells(evidence, groups), groups, names)
    return replace(
        fitted,
        rule=make_rule(cells, fitted.rule, fitted.chosen),
        objective=bound.ungrouped,
        estimate=merge_groups(fitted.estimate, cells),
        unadjusted=merge_groups(fitted.unadjusted, cells),
        evidence=evidence,
        notes=(*fitted.notes, *notes),
        groups=GroupEstimate(groups, objective, fitted.estimate, names, per_group),
        unadjusted_groups=fitted.unadjusted,
    )
