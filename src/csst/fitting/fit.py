"""One road from data to a fitted model.

    fitted = fit(task, Network(make_model, "csst"), "max min(recall)")

`csst train` and `CSSTClassifier` come here with a task and a learner.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from csst.data.examples import as_rows
from csst.data.input_spec import InputSpec
from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.folds import CERTIFYING
from csst.fitting.conclusion import conclude, describe_prior
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import FitDetails, Outputs
from csst.learners.dealing import deal_certifying
from csst.learners.fit import fit_members
from csst.learners.network import Network
from csst.maths.gain import Gain
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.deployment import refuse_contradiction
from csst.rules.fresh_labels import FreshLabels
from csst.rules.promise import promise
from csst.training.crossfit import CrossFit
from csst.training.generations import Generations
from csst.training.records import Record
from csst.training.warnings import CollapseDetector, ReachCheck

OnRecord = Callable[[Generations | CrossFit, Record], None]


def fit(
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
    n_jobs: int | None = 1,
    state: dict[str, Any] | None = None,
    on_record: OnRecord | None = None,
    certifying: float = CERTIFYING,
) -> FittedModel:
    """From data to a fitted model.

    Args:
        task: what there is to learn from; rows of numbers for learners other than a network.
        learner: a `Network`; or a name of `csst.learners.LEARNERS`, a scikit-learn classifier, or a list of these.
        objective: a sentence, a short name or an Objective.
        fits_rule: whether a network gets a decision rule; the other learners always have one.
        deployment_prior: see `csst.rules.fit_rule`; None for the class balance of the labels that are judged.
        inputs: what the model takes, if not told by the task.
        seed: of the weights, the folds and the order of examples.
        rounds: of self-training of learners other than a network, see `csst.learners.portfolio.fit_portfolio`.
        tau: the largest divergence that such a round trusts.
        n_jobs: learners other than a network that are fitted at a time.
        state: of an earlier training to go on from, see `FitDetails.state`; the order of examples begins anew.
        on_record: is called at every multiplier update of a network.
        certifying: with a confidence, the share of the labels that certify and that nothing is fitted to.

    Returns:
        The model with its decision rule, and the details of its fit.
    """
    is_network = isinstance(learner, Network)
    cuts_validation = is_network and task.validation is not None
    task = deal_certifying(task, objective, deployment_prior, seed, certifying, cuts_validation)
    if not is_network:
        options = {"deployment_prior": deployment_prior, "rounds": rounds, "tau": tau, "seed": seed, "n_jobs": n_jobs}
        return fit_learners(task, learner, objective, inputs=inputs, **options)
    fits_rule = fits_rule or read_objective(objective).confidence is not None
    threads, history = torch.get_num_threads(), []
    try:
        runner = start(task, learner, objective, seed, deployment_prior)
        if state is not None:
            resume(runner, state)
        reach = ReachCheck(runner)
        detector = CollapseDetector.of(runner)
        for record in runner.run():
            history.append(record.as_dict())
            for note in detector.update(history[-1]):
                warnings.warn(note, stacklevel=2)
            reach.warn_once(record.step)
            if on_record is not None:
                on_record(runner, record)
        last = runner.last_weights() if fits_rule else None
        fitted = conclude(runner, task, last, deployment_prior, inputs, seed)
    finally:
        torch.set_num_threads(threads)  # a network may have been asked to use fewer
    assert fitted.details is not None
    return replace(fitted, details=replace(fitted.details, history=history, state=runner.state_dict()))


def start(
    task: Task, learner: Network, objective: Objective | str, seed: int, deployment_prior: Any
) -> Generations | CrossFit:
    """The training of a network before its first step; raises if no classifier could meet the constraints."""
    judge = task.labeled if task.validation is None else task.validation
    refuse_contradiction(objective, task.labeled.labels, judge.labels, task.class_names, deployment_prior)
    return learner.start(task, objective, seed)


def resume(runner: Generations | CrossFit, state: dict[str, Any]) -> None:
    """Go on from where an earlier training of the same network, objective and method ended."""
    try:
        # The order of examples begins anew: there may be other unlabeled rows than last time.
        runner.load_state_dict(state, keeps_order=False)
    except (RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"warm_start continues with the same network, objective and method, but these differ: {reason}"
        ) from None


def fit_learners(
    task: Task, learner: Any, objective: Any, *, inputs: InputSpec | None = None, **options: Any
) -> FittedModel:
    """Learners on rows, averaged, with their decision rule; options: see `fit_members`."""
    is_embedded = inputs is not None and inputs.is_embedded
    members = fit_members(task, learner, objective, is_embedded=is_embedded, **options)
    rule, portfolio = members.fitted, members.portfolio
    notes = members.notes
    if task.certifying is not None:
        kept = None if task.kept_apart is None else portfolio.probs(as_rows(task.kept_apart))
        fresh = FreshLabels(portfolio.probs(as_rows(task.certifying.inputs)), task.certifying.labels.numpy(), kept)
        rule = promise(members.fitted, fresh, options.get("deployment_prior"), task.class_names)
        notes = [*rule.notes, *(note for note in notes if note not in members.fitted.notes)]
    log_prior = torch.from_numpy(np.log(rule.evidence.train_prior))
    parts = {"validation": (torch.from_numpy(rule.evidence.scores) + log_prior, torch.from_numpy(rule.evidence.labels))}
    if task.test is not None:
        probs = torch.from_numpy(portfolio.probs(as_rows(task.test.inputs)))
        parts["test"] = (probs.clamp(min=1e-300).log(), task.test.labels)
    unlabeled = torch.from_numpy(rule.evidence.unlabeled_scores) + log_prior
    outputs = Outputs(parts, unlabeled, Gain(torch.ones(task.classes, dtype=torch.float64)))
    about = {
        "learner": learner if isinstance(learner, str) else repr(learner),
        "method": " + ".join(portfolio.names),
        "members": portfolio.describe(),
        "left_out": portfolio.left_out,
        "labeled_counts": task.train_counts.tolist(),
        "multipliers": {},
        "deployment_prior": describe_prior(options.get("deployment_prior")),
    }
    details = FitDetails(
        outputs,
        rule.unadjusted,
        rule,
        outputs,
        about,
        portfolio.prior,
        len(task.unlabeled),
        tuple(notes),
    )
    spec = inputs or InputSpec(task.kind, task.input_shape)
    return FittedModel(
        portfolio,
        rule.rule,
        rule.objective,
        task.class_names,
        spec,
        details=details,
        row_hashes=task.hash_rows(),
        reference=members.reference,
    )
