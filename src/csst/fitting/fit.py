"""One road from data to a fitted model.

    fitted = fit(task, Network(make_model, "csst"), "max min(recall)")

`CSSTClassifier` calls `fit`. `csst train` calls `begin`, and writes a journal and checkpoints between records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from csst.data.examples import InputSpec, as_rows
from csst.data.task import Task
from csst.estimation.folds import CERTIFYING
from csst.estimation.held_out_scores import HeldOutScores
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import FitDetails, Outputs
from csst.fitting.network_fit import Fit, NetworkFit, describe_prior
from csst.learners.fit import fit_members, read_task_groups
from csst.learners.network import Network
from csst.learners.portfolio import Portfolio
from csst.maths.gain import Gain
from csst.maths.objectives import Objective
from csst.rules.deployment import refuse_contradiction
from csst.rules.fresh_labels import deal_certifying
from csst.training.records import Record

OnRecord = Callable[[Any, Record], None]


def fit(
    task: Task,
    learner: Any,
    objective: Objective | str,
    *,
    state: dict[str, Any] | None = None,
    on_record: OnRecord | None = None,
    **options: Any,
) -> FittedModel:
    """Fit a model to data.

    Args:
        task: see `begin`.
        learner: see `begin`.
        objective: a sentence, a short name or an Objective.
        state: state of an earlier training to continue, see `FitDetails.state`; the order of examples begins anew.
        on_record: function called with the training and the record at every multiplier update of a network.
        **options: see `begin`.

    Returns:
        The model with its decision rule, and the details of its fit.
    """
    threads = torch.get_num_threads()
    try:
        ongoing_fit = begin(task, learner, objective, **options)
        if state is not None and isinstance(ongoing_fit, NetworkFit):
            ongoing_fit.resume(state)
        for record in ongoing_fit.run():
            if on_record is not None:
                on_record(ongoing_fit.runner, record)
        model = ongoing_fit.conclude()
    finally:
        torch.set_num_threads(threads)  # a network may have been asked to use fewer
    if isinstance(ongoing_fit, NetworkFit):
        model = replace(model, details=replace(model.full_details, state=ongoing_fit.runner.state_dict()))
    return model


def begin(
    task: Task,
    learner: Any,
    objective: Objective | str,
    *,
    fits_rule: bool = True,
    deployment_prior: Any = None,
    inputs: InputSpec | None = None,
    seed: int = 0,
    rounds: int = 0,
    tau: float = 0.05,
    n_jobs: int | None = None,
    certifying: float = CERTIFYING,
    per_group: bool = False,
) -> Fit:
    """Return a fit before its first step; raise an error if no classifier could meet the constraints.

    Args:
        task: the data; rows of numbers for learners other than a network.
        learner: a `Network`; or a name of `csst.learners.LEARNERS`, a scikit-learn classifier, or a list of these.
        objective: a sentence, a short name or an Objective.
        fits_rule: whether a network gets a decision rule; the other learners always have one.
        deployment_prior: see `csst.rules.fit_rule`; None for the class balance of the labels that are judged.
        inputs: inputs of the model; None if the task tells them.
        seed: seed of the weights, the folds and the order of examples.
        rounds: rounds of self-training of learners other than a network, see `csst.learners.portfolio.fit_portfolio`.
        tau: the largest divergence that such a round trusts.
        n_jobs: number of learners other than a network fitted at a time.
        certifying: with a confidence, the share of the labels that certify and that nothing is fitted to.
        per_group: whether each group of rows gets a decision rule of its own, for a sentence about groups.
    """
    if isinstance(learner, Network):
        read_task_groups(task, objective)  # refuses before anything is learned
        task = deal_certifying(task, objective, deployment_prior, seed, certifying, task.validation is not None)
        judge = task.labeled if task.validation is None else task.validation
        refuse_contradiction(objective, task.labeled.labels, judge.labels, task.class_names, deployment_prior)
        return NetworkFit(learner.start(task, objective, seed), fits_rule, deployment_prior, inputs, seed, per_group)
    task = deal_certifying(task, objective, deployment_prior, seed, certifying)
    options = {"rounds": rounds, "tau": tau, "seed": seed, "n_jobs": n_jobs, "per_group": per_group}
    return LearnersFit(task, learner, objective, inputs, deployment_prior, options)


@dataclass
class LearnersFit(Fit):
    """The fit of learners on rows, which are averaged, and of their decision rule.

    Args:
        task: rows of numbers.
        learner: see `begin`.
        objective: see `begin`.
        inputs: see `begin`.
        deployment_prior: see `begin`.
        options: see `fit_members`.
    """

    task: Task
    learner: Any
    objective: Objective | str
    inputs: InputSpec | None
    deployment_prior: Any
    options: dict[str, Any]

    def conclude(self) -> FittedModel:
        """Fit the learners and their rule, certified if examples are reserved for that."""
        task = self.task
        is_embedded = self.inputs is not None and self.inputs.is_embedded
        options = {**self.options, "deployment_prior": self.deployment_prior, "is_embedded": is_embedded}
        members = fit_members(task, self.learner, self.objective, **options)
        portfolio = members.portfolio
        rule = self.certify(members.fitted, lambda inputs: portfolio.probs(as_rows(inputs)))
        notes = [*rule.notes, *(note for note in members.notes if note not in members.fitted.notes)]
        outputs = self.score_parts(portfolio, rule.evidence)
        details = FitDetails(
            outputs,
            rule.unadjusted,
            rule,
            outputs,
            self.describe(portfolio),
            portfolio.prior,
            len(task.unlabeled),
            tuple(notes),
        )
        return FittedModel(
            portfolio,
            rule.rule,
            rule.objective,
            task.class_names,
            self.inputs or InputSpec(task.kind, task.input_shape),
            details=details,
            row_hashes=task.hash_rows(),
            reference=members.reference,
        )

    def score_parts(self, portfolio: Portfolio, evidence: HeldOutScores) -> Outputs:
        """Return the scores of the labels that judge, of the test examples and of the unlabeled rows."""
        log_prior = torch.from_numpy(np.log(evidence.train_prior))
        parts = {"validation": (torch.from_numpy(evidence.scores) + log_prior, torch.from_numpy(evidence.labels))}
        if self.task.test is not None:
            probs = torch.from_numpy(portfolio.probs(as_rows(self.task.test.inputs)))
            parts["test"] = (probs.clamp(min=1e-300).log(), self.task.test.labels)
        unlabeled = torch.from_numpy(evidence.unlabeled_scores) + log_prior
        gain = Gain(torch.ones(self.task.classes, dtype=torch.float64))
        return Outputs(parts, unlabeled, gain, evidence.is_cross_fitted, self.test_groups)

    def describe(self, portfolio: Portfolio) -> dict[str, Any]:
        """Return entries about the learners for metrics.json."""
        return {
            "learner": self.learner if isinstance(self.learner, str) else repr(self.learner),
            "method": " + ".join(portfolio.names),
            "members": portfolio.describe(),
            "left_out": portfolio.left_out,
            "labeled_counts": self.task.train_counts.tolist(),
            "multipliers": {},
            "deployment_prior": describe_prior(self.deployment_prior),
        }
