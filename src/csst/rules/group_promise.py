"""A rule for groups of rows whose bounds are promised, as `csst.rules.promise` promises bounds on classes.

A bound "by region" is a bound on each group, and all of them must be proved, each by the fresh labels of its group:
within a group they are a random sample of its rows (for recall, of its rows of the class), so that the tests for
classes hold there as they are, and no correction for the number of groups is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, count_labels
from csst.maths.confusion import Confusion
from csst.rules.cells import CellScores, make_cells
from csst.rules.claims import Claim
from csst.rules.fit import FittedRule, find_doubts
from csst.rules.groups import GroupEstimate, make_rule, merge_groups
from csst.rules.path import PathRule, make_path
from csst.rules.promise import Proof, estimate_freshly
from csst.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class GroupProof(Proof):
    """Fresh labels of groups of rows; counts and rates are of cells, a class in a group each.

    Args:
        groups: the groups of the fit.
        places: the group of every fresh row, (n,).
    """

    groups: GroupEstimate
    places: np.ndarray

    @cached_property
    def cells(self) -> CellScores:
        """The rows of the fit as rows of cells."""
        prior = self.fitted.estimate.confusion.prior.numpy()
        return make_cells(self.fitted.evidence, self.groups.groups, prior, not self.groups.is_per_group)

    @property
    def shares(self) -> np.ndarray:
        """How frequent the rows of each cell are, (A, K)."""
        return self.cells.cell_prior

    @property
    def fresh_cells(self) -> np.ndarray:
        """The cell of every fresh row, (n,)."""
        return self.places * self.fitted.evidence.classes + self.fresh.labels

    @property
    def rows(self) -> np.ndarray:
        """Fresh labels of every cell, (A, K)."""
        return np.bincount(self.fresh_cells, minlength=self.shares.size).reshape(self.shares.shape)

    def make_rules(self) -> list[PathRule]:
        return make_path(self.cells, self.groups.objective, self.cells.labeled_prior)

    def make_trial(self, place: PathRule) -> Rule:
        rule = place.candidate.as_rule(self.cells.train_prior)
        return make_rule(self.cells, rule, place.candidate.name)

    def count(self, rule: Rule) -> np.ndarray:
        """Return the counts of fresh labels under a rule, (A K, A K)."""
        answers = rule.predict(self.fresh.probs, np.array(self.groups.groups.names)[self.places])
        predicted_cells = self.places * self.fitted.evidence.classes + answers.numpy()
        return count_labels(self.fresh_cells, predicted_cells, self.shares.size)

    def take_counts(self, bound: Claim, table: np.ndarray) -> np.ndarray:
        """Return the counts of the group that a bound is about, or of all rows, (K, K), from counts of cells."""
        number, classes = self.shares.shape
        blocks = table.reshape(number, classes, number, classes)
        by_group = np.stack([blocks[a, :, a] for a in range(number)])
        return by_group.sum(0) if bound.group is None else by_group[bound.group]

    def take_rows(self, bound: Claim, rows: np.ndarray) -> np.ndarray:
        return rows.sum(0) if bound.group is None else rows[bound.group]

    def expect(self, bound: Claim, estimate: RateEstimate) -> Confusion:
        joint = self.take_counts(bound, self.shares.reshape(-1, 1) * estimate.confusion.rates.numpy())
        fractions = joint.sum(1)
        return Confusion(torch.from_numpy(joint / fractions[:, None]), torch.from_numpy(fractions / fractions.sum()))

    def pool_fresh(self, place: PathRule) -> RateEstimate:
        """Return the rates by the labels of the fit: a cell has few fresh ones."""
        return place.estimate

    def adopt(self, place: PathRule) -> FittedRule:
        rule = self.make_trial(place)
        prior = self.cells.labeled_prior
        estimate = estimate_freshly(self.cells, place, self.count(rule), self.groups.estimate, prior)
        return replace(
            self.fitted,
            rule=rule,
            chosen=place.candidate.name,
            estimate=merge_groups(estimate, self.cells),
            notes=find_doubts(self.fitted.evidence),
            groups=replace(self.groups, estimate=estimate),
        )
