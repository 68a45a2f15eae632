"""The default of `CSSTClassifier` and of `csst train array`: learners, averaged, with the pooled decision rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from csst.data.tabular.tables import is_sparse, statistics
from csst.learners.portfolio import Labeled, Portfolio, fit_portfolio
from csst.learners.protocol import Rows
from csst.learners.read import read_learner
from csst.maths.objectives import Objective
from csst.rules import DecisionRule, FittedRule, fit_evidence
from csst.rules.fit import bind, read_deployment_prior
from csst.statistics.rates import RateEstimate


@dataclass
class MembersFit:
    """What a fit of learners gave: the portfolio, and its decision rule."""

    portfolio: Portfolio
    fitted: FittedRule
    method: str = "learners"
    notes: list[str] = field(default_factory=list)

    @property
    def objective(self) -> Objective:
        return self.fitted.objective

    @property
    def rule(self) -> DecisionRule:
        return self.fitted.rule

    @property
    def expected(self) -> RateEstimate:
        return self.fitted.estimate

    @property
    def about(self) -> str:
        """Who decides, in words."""
        names = " + ".join(one.name for one in self.portfolio.members)
        left_out = "".join(f", without {name}, which was clearly worse" for name in self.portfolio.left_out)
        return f"{names}{left_out}, rule: {self.fitted.chosen}, for"

    def probs(self, rows: Any) -> np.ndarray:
        """What the rule looks at, (N, K)."""
        return self.portfolio.probs(rows)


@dataclass(frozen=True)
class RowParts:
    """Rows of numbers with classes 0 .. K-1; `validation` is None where the labeled rows are judged out of fold.

    sizes: number of categories of every column, 0 for numbers.
    """

    labeled: Any
    labels: np.ndarray
    unlabeled: Any
    validation: tuple[Any, np.ndarray] | None
    class_names: tuple[str, ...]
    sizes: list[int]


def fit_members(
    parts: RowParts, learner: Any, objective: Any, deployment_prior: Any, embedded: bool, seed: int
) -> MembersFit:
    """Fit the learners and the rule.

    Args:
        parts: labeled, unlabeled and validation rows.
        learner: see `read_learner`.
        objective: a sentence, a short name or an Objective.
        deployment_prior: see `read_deployment_prior`; None for that of the labels that are judged.
        embedded: whether rows are embeddings.
        seed: of the folds and the learners.
    """
    mean, std = statistics(parts.unlabeled if parts.unlabeled.shape[0] else parts.labeled)
    table = Rows(mean, np.where(std > 1e-12, std, 1.0), tuple(parts.sizes))
    members = read_learner(learner, table, not is_sparse(parts.labeled), embedded)
    validation = None if parts.validation is None else Labeled(*parts.validation)
    labeled = Labeled(parts.labeled, parts.labels)
    portfolio, evidence = fit_portfolio(members, labeled, parts.unlabeled, validation, seed=seed)
    bound = bind(objective, evidence, parts.class_names)
    prior = read_deployment_prior("labels" if deployment_prior is None else deployment_prior, evidence)
    fitted = fit_evidence(evidence, bound, prior, None, seed)
    alone = [name for name, n in zip(parts.class_names, np.bincount(parts.labels), strict=True) if n < 2]
    notes = list(fitted.notes)
    if alone and validation is None:
        notes.append(
            f"classes {alone[:10]} have one label each, which their models have learned from: what is expected of them "
            "is too high; label more"
        )
    return MembersFit(portfolio, fitted, notes=notes)
