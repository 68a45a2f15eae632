"""The decision rule for an objective, from few labels and many unlabeled rows.

    fitted = fit_rule(probs, labels, "max min(recall)", unlabeled_probs, train_prior=prior)
    print(fitted.sentence); fitted.rule.predict(new_probs)

Three candidates (`csst.rules.candidates`) are fitted on all labeled rows, and on folds of them to be judged by rows
they were not fitted on, together with the unlabeled rows (`csst.statistics.rates`). The pooled rule is used unless a
simpler one is better by more than one standard error of their difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from csst.errors import InputError
from csst.maths.confusion import make_unchecked
from csst.maths.gain import Gain
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.maths.ranking import ValidationScore, score_on
from csst.rules.candidates import Candidate, all_candidates, decide_plainly, sharpness
from csst.rules.deployment import read_deployment_prior
from csst.rules.feasibility import TOLERANCE, note_missed
from csst.rules.rule import DecisionRule, undo_gain
from csst.rules.smooth import SmoothObjective
from csst.statistics.evidence import MOST_UNLABELED, Evidence, check_probs
from csst.statistics.expectation import estimate_intervals, expected_value
from csst.statistics.folds import deal_folds
from csst.statistics.rates import RateEstimate, combine_rates, count_labels, decide_rates, estimate_rates

#: folds of the labeled rows on which candidates are judged; fewer do where labels are many
FOLDS, FEW_FOLDS, MANY_LABELS = 5, 2, 500
#: unlabeled rows that take part in judging
JUDGING_ROWS = 2000
#: scores that take away less than this part of the uncertainty about the classes are contradicted by the labels
CONTRADICTED = 0.02


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A decision rule, what it is expected to give, and from what that is known.

    Args:
        rule: what decides.
        chosen: which of the candidates it is: "closed form", "calibrated" or "pooled".
        objective: bound to the classes.
        estimate: the rates it is expected to have, cross-fitted.
        unadjusted: those of the plain argmax, of a network that of its softmax.
        values: the judged value of every candidate.
        evidence: the scores it was fitted on.
        notes: what to be wary of, in sentences.
    """

    rule: DecisionRule
    chosen: str
    objective: Objective
    estimate: RateEstimate
    unadjusted: RateEstimate
    values: dict[str, float]
    evidence: Evidence
    notes: tuple[str, ...] = ()

    @cached_property
    def expected(self) -> ValidationScore:
        """The value of the objective that is expected, and the constraints' slack."""
        return expect(self.objective, self.estimate)

    @property
    def value(self) -> float:
        """The value of the objective that is expected."""
        return self.expected.value

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """95 % intervals of recall, precision, coverage, the minima and the constraints."""
        return estimate_intervals(self.objective, self.estimate)

    @property
    def sentence(self) -> str:
        """What the rule changes, what it is expected to give, and with how many labels that is known."""
        before = expect(self.objective, self.unadjusted)
        changes = {
            "closed form": "weighs classes by the closed form for the objective",
            "calibrated": "weighs classes by the closed form on calibrated probabilities",
            "pooled": "adds class biases fitted on labeled and unlabeled rows",
        }[self.chosen]
        if self.chosen == "pooled" and not self.estimate.unlabeled:
            changes = "adds class biases fitted on the labeled rows"
        return (
            f"{self.objective}: the rule {changes}; expected {describe(self.expected)} instead of {describe(before)}, "
            f"{self.estimate.basis}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the rule, and the numbers behind the choice."""
        return {
            "rule": self.rule.as_dict(),
            "chosen": self.chosen,
            "value": self.value,
            "violation": self.expected.violation,
            "candidates": self.values,
            "estimate": self.estimate.as_dict(),
            "intervals": self.intervals,
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


def expect(objective: Objective, estimate: RateEstimate) -> ValidationScore:
    """What an estimate lets one expect of an objective."""
    score = score_on(objective, estimate.confusion, TOLERANCE)
    return replace(score, value=expected_value(objective, estimate))


def describe(score: ValidationScore) -> str:
    return f"{score.value:.3f}" + (f" (a constraint missed by {score.violation:.3f})" if score.violation > 0 else "")


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
    seed: int = 0,
) -> FittedRule:
    """The rule for an objective on these probabilities (n, K) and labels (n,).

    Args:
        probs: of labeled rows, by a model that has not learned from them.
        labels: class indices; every class at least once.
        objective: a sentence, a short name or an `Objective`.
        unlabeled_probs: of rows without a label, (m, K), by the model that the rule is for.
        train_prior: the class prior behind the probabilities: "labels" for the fractions of these labels, "uniform" for
            a class-weighted or logit-adjusted model, or one number per class.
        labeled_prior: the class fractions of the labels that were learned from, if the train_prior is not that.
        deployment_prior: the class prior under which the objective is measured: "labels" (the fractions of these
            labels), "train" (of those learned from), "unlabeled" (as estimated), "uniform", or one number per class.
        gain: the gain that a network was trained under, if any: its probabilities are taken back first.
        class_names: for messages and named classes.
        most_unlabeled: a random choice of so many unlabeled rows is used.
        seed: of that choice and of the folds.

    Returns:
        The rule, and what it is expected to give.
    """
    undo = None if gain is None else gain.softmax_inverse
    if undo is not None:
        probs = undo_gain(torch.from_numpy(check_probs(probs)), undo)
        probs = probs / probs.sum(1, keepdim=True)
        if unlabeled_probs is not None:
            unlabeled_probs = undo_gain(torch.from_numpy(check_probs(unlabeled_probs)), undo)
            unlabeled_probs = unlabeled_probs / unlabeled_probs.sum(1, keepdim=True)
    evidence = Evidence.from_probs(
        probs,
        labels,
        unlabeled_probs,
        train_prior=train_prior,
        labeled_prior=labeled_prior,
        class_names=class_names,
        most_unlabeled=most_unlabeled,
        seed=seed,
    )
    prior = read_deployment_prior(deployment_prior, evidence)
    bound = bind(objective, evidence, class_names)
    return fit_evidence(evidence, bound, prior, undo, seed)


def bind(objective: Objective | str, evidence: Evidence, class_names: Sequence[str] | None = None) -> Objective:
    """The objective for these classes, the rarest of the labels learned from being the tail."""
    read = read_objective(objective, class_names=class_names)
    bound = read.bind_prior(torch.from_numpy(evidence.labeled_prior))
    if bound.constant_gain is not None and len(bound.constant_gain) != evidence.classes:
        raise InputError(f"the gain matrix has {len(bound.constant_gain)} classes and probs {evidence.classes}")
    return bound


def fit_evidence(
    evidence: Evidence, objective: Objective, prior: np.ndarray, undo: torch.Tensor | None = None, seed: int = 0
) -> FittedRule:
    """`fit_rule` of checked evidence, for a bound objective and a deployment prior (K,)."""
    smooth = SmoothObjective(objective, prior, sharpness(evidence))
    full = all_candidates(smooth, evidence)
    judged = judge(smooth, evidence, full, seed)
    notes = find_doubts(evidence)
    chosen = 0 if evidence.is_constant else choose(judged)
    plain, plain_soft = (decide_plainly(z, evidence.train_prior, undo) for z in (evidence.scores, evidence.soft_scores))
    soft = judged[chosen].soft
    if evidence.has_unlabeled:
        decided = full[chosen].decide(evidence.unlabeled_scores)
        soft = decide_rates(evidence.posterior, decided, evidence.classes)
    estimate = combine_rates(evidence, judged[chosen].counts, soft, prior)
    return FittedRule(
        full[chosen].as_rule(evidence.train_prior, undo),
        full[chosen].name,
        objective,
        estimate,
        estimate_rates(evidence, plain, plain_soft, prior),
        {candidate.name: value.value for candidate, value in zip(full, judged, strict=True)},
        evidence,
        (*notes, *note_missed(smooth, estimate)),
    )


def find_doubts(evidence: Evidence) -> tuple[str, ...]:
    """What is wrong with the evidence, if anything, in sentences."""
    if evidence.is_constant:
        return ("the scores are the same for every row, so no rule can tell the classes apart: look at the model",)
    notes = []
    if evidence.information < CONTRADICTED:
        notes.append(
            "the labels contradict the scores: after calibration these say nothing about the classes; check that "
            "labels and scores are of the same rows, with the classes in the same order"
        )
    unlabeled = len(evidence.unlabeled_scores)
    if 0 < unlabeled < evidence.classes:
        rows = "1 unlabeled row" if unlabeled == 1 else f"{unlabeled} unlabeled rows"
        notes.append(f"only {rows} for {evidence.classes} classes: they hardly count")
    return tuple(notes)


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate's cross-fitted decisions, its counts on labels and posteriors (K, K), and its judged value."""

    decisions: np.ndarray
    soft_decisions: np.ndarray
    counts: np.ndarray
    soft: np.ndarray
    value: float
    lead: float = 0.0
    error: float = 0.0


def judge(smooth: SmoothObjective, evidence: Evidence, full: list[Candidate], seed: int) -> list[Judged]:
    """Every candidate by rows it was not fitted on; `lead` and `error` are against the last one, the pooled rule.

    lead: by how much the judged value is higher than the pooled rule's; error: the standard error of that.
    """
    few = evidence.thin(JUDGING_ROWS)
    number = FOLDS if len(evidence.labels) < MANY_LABELS else FEW_FOLDS
    folds = deal_folds(evidence.labels, min(number, len(evidence.labels)), seed)
    decisions = [np.zeros(len(evidence.labels), dtype=np.int64) for _ in full]
    soft = [np.zeros((evidence.classes, evidence.classes)) for _ in full]
    for fold in np.unique(folds):
        held = np.flatnonzero(folds == fold)
        for k, candidate in enumerate(all_candidates(smooth, few.part(np.flatnonzero(folds != fold)))):
            decisions[k][held] = candidate.decide(evidence.scores[held])
            if not evidence.has_unlabeled:
                soft[k] += decide_rates(evidence.labeled_posterior[held], decisions[k][held], evidence.classes)
    candidates_judged = []
    for k, candidate in enumerate(full):
        counts = count_labels(evidence.labels, decisions[k], evidence.classes)
        decided = candidate.decide(few.unlabeled_scores) if evidence.has_unlabeled else decisions[k]
        mass = decide_rates(few.soft_posterior, decided, evidence.classes) if evidence.has_unlabeled else soft[k]
        rates = combine_rates(evidence, counts, mass, smooth.prior.numpy()).confusion
        candidates_judged.append(Judged(decisions[k], decided, counts, mass, smooth.judge_gradient(rates)[0]))
    return [compare(smooth, evidence, few, judged, candidates_judged[-1]) for judged in candidates_judged]


def compare(smooth: SmoothObjective, evidence: Evidence, few: Evidence, one: Judged, other: Judged) -> Judged:
    """The lead of one candidate over another, and its standard error by the delta method.

    A row of class k adds G_k,F(x) - G_k,F'(x) to the difference, G being the derivative by the rates between the two;
    labels and posteriors of a class together are worth n_k + kappa rows.
    """
    if one is other:
        return one
    prior = smooth.prior.numpy()
    rates = [combine_rates(evidence, each.counts, each.soft, prior) for each in (one, other)]
    middle = (rates[0].confusion.rates + rates[1].confusion.rates) / 2
    gradient = smooth.judge_gradient(make_unchecked(middle, smooth.prior))[1]
    truth = evidence.labels
    variance_of_rows = (gradient[truth, one.decisions] - gradient[truth, other.decisions]) ** 2
    labeled = np.bincount(truth, variance_of_rows, minlength=evidence.classes)
    apart = np.flatnonzero(one.soft_decisions != other.soft_decisions)
    moved = gradient[:, one.soft_decisions[apart]] - gradient[:, other.soft_decisions[apart]]
    mass = few.soft_posterior.sum(0)
    unlabeled = (few.soft_posterior[apart].T * moved**2).sum(1) / np.maximum(mass, 1e-300)
    size = rates[0].n + rates[0].worth
    variance = (labeled + rates[0].worth * unlabeled) / size**2
    return replace(one, lead=one.value - other.value, error=float(variance.sum() ** 0.5))


def choose(judged: list[Judged]) -> int:
    """The pooled rule, unless a simpler one leads by more than the standard error of the difference."""
    better = [k for k, candidate in enumerate(judged[:-1]) if candidate.lead > candidate.error]
    return max(better, key=lambda k: judged[k].value) if better else len(judged) - 1
