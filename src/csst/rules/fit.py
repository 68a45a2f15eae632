"""The decision rule for an objective, from few labels and many unlabeled rows.

    fitted = fit_rule(probs, labels, "max min(recall)", unlabeled_probs, train_prior=prior)
    print(fitted.sentence); fitted.rule.predict(new_probs)

Four candidates (`csst.rules.candidates`) are fitted on all labeled rows, and on folds of them to be judged by rows
they were not fitted on, together with the unlabeled rows (`csst.estimation.class_rates`). Misses of constraints are
compared first, those within one standard error of their difference counting as equal, then values. The pooled rule is
used unless a simpler one is better by more than a standard error, and never where the plain argmax is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import estimate_intervals, expected_value
from csst.estimation.held_out_scores import MOST_UNLABELED, HeldOutScores
from csst.maths.costs import format_amount
from csst.maths.gain import Gain
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.maths.ranking import ValidationScore, score_on
from csst.rules.abstention import add_abstention, fit_abstaining, fit_answering, judge_abstaining
from csst.rules.candidates import MARGIN, estimate_candidate, fit_candidates, soften
from csst.rules.cells import RowGroups
from csst.rules.claims import Certificate
from csst.rules.deployment import read_deployment
from csst.rules.feasibility import TOLERANCE, Bound, describe_bounds, measure_bounds, note_missed
from csst.rules.fresh_labels import RuleRows, deal_rows, list_names
from csst.rules.groups import GroupEstimate, bind_groups, fit_groups
from csst.rules.judging import Judges, choose
from csst.rules.rule import Rule
from csst.rules.soft_objective import SoftObjective
from csst.rules.threads import use_one_thread

#: scores that take away less than this part of the uncertainty about the classes are contradicted by the labels
CONTRADICTED = 0.02
#: and so may be those that take away less than this many standard errors
UNSURE = 1.3


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A decision rule, what it is expected to give, and the evidence for that.

    Args:
        rule: what decides.
        chosen: the name of the candidate that it is, such as "closed form" or "pooled".
        objective: bound to the classes.
        estimate: the rates it is expected to have, cross-fitted.
        unadjusted: the rates of the plain argmax; of a network, of the argmax of its softmax.
        values: the judged value of every candidate.
        evidence: the scores it was fitted on.
        notes: what to be wary of, in sentences.
        certificate: whether the bounds are promised; None where no confidence is stated.
        groups: what to expect in each group of rows, for a sentence about groups; then `objective` is the sentence as
            if all rows were one group.
        unadjusted_groups: what to expect of the plain argmax there, rates of cells.
    """

    rule: Rule
    chosen: str
    objective: Objective
    estimate: RateEstimate
    unadjusted: RateEstimate
    values: dict[str, float]
    evidence: HeldOutScores
    notes: tuple[str, ...] = ()
    certificate: Certificate | None = None
    groups: GroupEstimate | None = None
    unadjusted_groups: RateEstimate | None = None

    @property
    def goal(self) -> Objective:
        """The objective as stated, with groups of rows if it is about them; read from the rates of `judged`."""
        return self.objective if self.groups is None else self.groups.objective

    @property
    def judged(self) -> RateEstimate:
        """The rates that the goal is read from."""
        return self.estimate if self.groups is None else self.groups.estimate

    @cached_property
    def expected(self) -> ValidationScore:
        """The value of the objective that is expected, and the constraints' slack."""
        return expect(self.goal, self.judged)

    @property
    def value(self) -> float:
        """The value of the objective that is expected."""
        return self.expected.value

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """95 % intervals of recall, precision, coverage, the minima and the constraints."""
        intervals = estimate_intervals(self.objective, self.estimate)
        if self.groups is None:
            return intervals
        return {**intervals, **{name: self.groups.intervals[name] for name in ("value", "constraints")}}

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """Every constraint, by how much it is expected to be met, and whether that is safe to say."""
        goal = SoftObjective(self.goal, self.judged.confusion.prior.numpy(), 1.0, self.judged.prior_covariance)
        return measure_bounds(goal, self.judged)

    @property
    def is_met(self) -> bool | None:
        """Whether all constraints are expected to be met, safely; None without constraints. An estimate, no promise."""
        return all(bound.status == "met" for bound in self.bounds) if self.bounds else None

    @property
    def sentence(self) -> str:
        """What the rule changes, what it is expected to give, and how many labels say so."""
        unadjusted_score = expect(self.goal, self.unadjusted_groups or self.unadjusted)
        changes = {
            "argmax": "is the plain argmax, which nothing beat",
            "closed form": "weighs classes by the closed form for the objective",
            "calibrated": "weighs classes by the closed form on calibrated probabilities",
            "pooled": "adds class biases fitted on labeled and unlabeled rows",
            "abstaining": "adds class biases, and gives no answer where one would be worth less than its price",
        }[self.chosen]
        if self.chosen == "pooled" and not self.estimate.unlabeled:
            changes = "adds class biases fitted on the labeled rows"
        return (
            f"{self.goal}: the rule {changes}; expected {describe(self.goal, self.expected)} instead of "
            f"{describe(self.goal, unadjusted_score)}, {self.estimate.basis}.{describe_bounds(self.bounds)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the rule, and the numbers behind the choice."""
        return {
            "rule": self.rule.as_dict(),
            "chosen": self.chosen,
            "value": self.value,
            "violation": self.expected.violation * self.expected.unit,
            "bounds": [bound.as_dict() for bound in self.bounds],
            "candidates": self.values,
            "estimate": self.estimate.as_dict(),
            "intervals": self.intervals,
            "sentence": self.sentence,
            "notes": list(self.notes),
            **({} if self.certificate is None else {"certificate": self.certificate.as_dict()}),
            **({} if self.groups is None else {"groups": self.groups.as_dict()}),
        }


def expect(objective: Objective, estimate: RateEstimate) -> ValidationScore:
    """Return the value and the slack of an objective that an estimate of rates lets one expect."""
    score = score_on(objective, estimate.confusion, TOLERANCE)
    return replace(score, value=expected_value(objective, estimate))


def describe(objective: Objective, score: ValidationScore) -> str:
    """Return the value as the objective states it, and the miss of its constraints, if any."""
    miss = format_amount(score.violation * score.unit, score.unit)
    remark = f" (a constraint missed by {miss})" if score.violation > 0 else ""
    return f"{objective.describe_value(score.value)}{remark}"


def fit_rule(
    probs: Any,
    labels: Any,
    objective: Objective | str,
    unlabeled_probs: Any = None,
    *,
    train_prior: Any = "labels",
    labeled_prior: Any = None,
    deployment_prior: Any = "labels",
    gain: Gain | None = None,
    class_names: Sequence[str] | None = None,
    most_unlabeled: int = MOST_UNLABELED,
    is_cross_fitted: bool = False,
    confidence: float | None = None,
    seed: int = 0,
    margin: float = MARGIN,
    groups: RowGroups | None = None,
    per_group: bool = False,
) -> FittedRule:
    """Return the rule for an objective on these probabilities (n, K) and labels (n,).

    Args:
        probs: probabilities of labeled rows, by a model that has not learned from them.
        labels: class indices; every class at least once.
        objective: a sentence, a short name or an `Objective`.
        unlabeled_probs: probabilities of rows without a label, (m, K), by the model that the rule is for.
        train_prior: the class prior behind the probabilities: "labels" for the fractions of these labels, "uniform" for
            a class-weighted or logit-adjusted model, or one number per class.
        labeled_prior: the class fractions of the labels that were learned from, if the train_prior is not that.
        deployment_prior: the class prior under which the objective is measured: "labels" (the fractions of these
            labels), "train" (of those learned from), "uniform", one number per class, "unlabeled" (as estimated from
            labels and unlabeled rows: bounds then allow for the error of that), or None: the same, also without
            unlabeled rows.
        gain: the gain that a network was trained under, if any: its probabilities are taken back first.
        class_names: for messages and named classes.
        most_unlabeled: a random choice of so many unlabeled rows is used.
        is_cross_fitted: whether probs are out of fold, by other models than the one that the rule is for: intervals are
            wider then.
        confidence: how sure one must be that all bounds hold, as "with confidence 0.95" in a sentence says. Half of the
            labels then fit the rule and half certify it; all must be scored by the very model that is used, and not out
            of fold.
        seed: seed of the choice of unlabeled rows, of the folds and of the deal.
        margin: estimated standard errors by which constraints are to be met, as far as they can be; 0 for none.
        groups: the groups of the rows, for a sentence such as "max min(recall by region)".
        per_group: whether each group gets a rule of its own, which needs the group of every new row.

    Returns:
        The rule, and what it is expected to give.
    """
    goal = read_objective(objective, class_names=class_names, confidence=confidence)
    rows = RuleRows(probs, labels, unlabeled_probs, train_prior, groups)
    if goal.confidence is not None:
        if is_cross_fitted:
            raise InputError(
                "with a confidence, labels certify the very model that is used, and probabilities out of fold "
                "(is_cross_fitted=True) are those of other models: give probabilities of labeled rows that the model "
                "has not learned from, or leave out the confidence"
            )
        deployment_prior = "labels" if deployment_prior is None else deployment_prior
        goal, rows = deal_rows(goal, rows, deployment_prior, class_names, seed)
    evidence = HeldOutScores.from_probs(
        rows.probs,
        rows.labels,
        rows.unlabeled_probs,
        train_prior=rows.train_prior,
        labeled_prior=labeled_prior,
        gain=gain,
        class_names=class_names,
        most_unlabeled=most_unlabeled,
        seed=seed,
        is_cross_fitted=is_cross_fitted,
    )
    prior, evidence = read_deployment(deployment_prior, evidence)
    bound = bind(goal.unpromised, evidence, class_names)
    if rows.groups is None and bound.column is None:
        fitted = fit_evidence(evidence, bound, prior, seed, margin)
    else:
        sentence = bind_groups(bound, rows.groups)
        assert rows.groups is not None
        sample = rows.groups.sample(most_unlabeled, seed)
        fitted = fit_groups(evidence, sentence, sample, prior, seed, margin, per_group)
    if rows.fresh is None:
        return fitted
    # It builds on this module.
    from csst.rules.promise import promise, state_confidence

    assert isinstance(goal, Sentence)  # only sentences have a confidence
    names = list_names(class_names, evidence.classes)
    return promise(state_confidence(fitted, goal), rows.fresh, deployment_prior, names)


def bind(objective: Objective | str, evidence: HeldOutScores, class_names: Sequence[str] | None = None) -> Objective:
    """Return the objective for these classes; the rarest among the labels learned from are the tail."""
    sentence = read_objective(objective, class_names=class_names)
    bound = sentence.bind_prior(torch.from_numpy(evidence.labeled_prior))
    if bound.constant_gain is not None and len(bound.constant_gain) != evidence.classes:
        raise InputError(f"the gain matrix has {len(bound.constant_gain)} classes and probs {evidence.classes}")
    return bound


@use_one_thread
def fit_evidence(
    evidence: HeldOutScores, objective: Objective, prior: np.ndarray, seed: int = 0, margin: float = MARGIN
) -> FittedRule:
    """Return the rule of `fit_rule` from checked scores, for a bound objective and a deployment prior (K,)."""
    if objective.abstains:
        return fit_with_abstention(evidence, objective, prior, seed, margin)
    goal = soften(objective, prior, evidence)
    candidates = fit_candidates(goal, evidence, margin)
    judges = Judges(goal, evidence, margin, seed)
    verdicts = judges.judge(candidates)
    index = 1 if evidence.is_constant else choose(judges, verdicts, evidence.undo is not None)
    candidate = candidates[index]
    estimate = verdicts[index].estimate
    notes = [*find_doubts(evidence)]
    if verdicts[index].is_unstable:
        own_estimate = estimate_candidate(evidence, candidate, prior)
        estimate = min(estimate, own_estimate, key=lambda rates: expect(objective, rates).rank)
        notes.append(
            "the rule in use differs from the rules of the folds that judge it more than these differ from each other, "
            "so the lower of two estimates is reported: label more rows"
        )
    return FittedRule(
        candidate.as_rule(evidence.train_prior, evidence.undo),
        candidate.name,
        objective,
        estimate,
        estimate_candidate(evidence, candidates[0], prior),
        {rival.name: verdict.value * goal.value_unit for rival, verdict in zip(candidates, verdicts, strict=True)},
        evidence,
        (*notes, *note_missed(goal, estimate)),
    )


def fit_with_abstention(
    evidence: HeldOutScores, objective: Objective, prior: np.ndarray, seed: int, margin: float
) -> FittedRule:
    """Return the rule that may give no answer; the rule that always answers where that is clearly better."""
    assert isinstance(objective, Sentence)  # only sentences say how often to abstain
    answering_rule = fit_evidence(evidence, objective.answering, prior, seed, margin)
    answering_rule = replace(
        answering_rule,
        objective=objective,
        estimate=add_abstention(answering_rule.estimate),
        unadjusted=add_abstention(answering_rule.unadjusted),
    )
    if evidence.is_constant:
        return answering_rule
    goal = soften(objective, prior, evidence)
    candidates = fit_answering(goal, evidence)
    rule, margins = fit_abstaining(goal, evidence, candidates, margin)
    judges = Judges(goal, evidence)
    verdicts = judge_abstaining(goal.with_margins(margins), judges.rows, candidates[-1], rule, seed)
    if judges.measure(*verdicts).decides(1.0):
        return answering_rule
    estimate = verdicts[1].estimate
    return replace(
        answering_rule,
        rule=rule.as_rule(evidence.train_prior, evidence.undo),
        chosen="abstaining",
        estimate=estimate,
        values={**answering_rule.values, "abstaining": verdicts[1].value},
        notes=(*find_doubts(evidence), *note_missed(goal, estimate)),
    )


def find_doubts(evidence: HeldOutScores) -> tuple[str, ...]:
    """Return what is wrong with the evidence, in sentences; () if nothing is."""
    if evidence.is_constant:
        return ("the scores are the same for every row, so no rule can tell the classes apart: look at the model",)
    notes = [evidence.doubt] if evidence.doubt else []
    if evidence.information < max(CONTRADICTED, UNSURE * evidence.information_error):
        notes.append(
            "the labels do not show that the scores say anything about the classes: check that labels and scores are "
            "of the same rows, with the classes in the same order, or label more rows"
        )
    unlabeled = len(evidence.unlabeled_scores)
    if 0 < unlabeled < evidence.classes:
        rows = "1 unlabeled row" if unlabeled == 1 else f"{unlabeled} unlabeled rows"
        notes.append(f"only {rows} for {evidence.classes} classes: they hardly count")
    return tuple(notes)
