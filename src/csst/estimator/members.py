"""The default behind `CSSTClassifier`: cheap learners, cross-fitted and averaged, with the pooled decision rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from csst.estimator.fitting import Data
from csst.estimator.inputs import is_sparse, statistics
from csst.learners import read_learner
from csst.learners.portfolio import Labeled, Portfolio, fit_portfolio
from csst.learners.protocol import Rows
from csst.objectives import Objective
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


def fit_members(
    data: Data, learner: Any, objective: Any, deployment_prior: Any, embedded: bool, seed: int
) -> MembersFit:
    """Fit the learners and the rule on the parts of the data; `embedded` says that rows are embeddings."""
    mean, std = statistics(data.labeled if not data.unlabeled.shape[0] else data.unlabeled)
    table = Rows(mean, np.where(std > 1e-12, std, 1.0), tuple(data.sizes))
    members = read_learner(learner, table, not is_sparse(data.labeled), embedded)
    validation = None if data.validation is None else Labeled(*data.validation)
    labeled = Labeled(data.labeled, data.labels)
    portfolio, evidence = fit_portfolio(members, labeled, data.unlabeled, validation, seed=seed)
    bound = bind(objective, evidence, data.class_names)
    prior = read_deployment_prior("labels" if deployment_prior is None else deployment_prior, evidence)
    fitted = fit_evidence(evidence, bound, prior, None, seed)
    alone = [name for name, n in zip(data.class_names, np.bincount(data.labels), strict=True) if n < 2]
    notes = list(fitted.notes)
    if alone and validation is None:
        notes.append(
            f"classes {alone[:10]} have one label each, which their models have learned from: what is expected of them "
            "is too high; label more"
        )
    return MembersFit(portfolio, fitted, notes=notes)
