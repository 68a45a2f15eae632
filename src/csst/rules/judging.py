"""Candidates judged by rows they were not fitted on, and the one to use.

Each candidate is fitted again on folds of the labeled rows. Its decisions on the rows left out are counted, and pooled
with its own decisions on the unlabeled rows (`csst.estimation.class_rates`): what is judged is what is deployed, as far
as labels that have shaped it can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate, combine_rates, count_labels, decide_rates
from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import make_unchecked
from csst.rules.candidates import MARGIN, Candidate, count_worth, fit_candidates
from csst.rules.soft_objective import SoftObjective

#: folds of the labeled rows on which candidates are judged; fewer do where labels are many
FOLDS = 5
FEW_FOLDS = 2
MANY_LABELS = 500
#: added to the seed of those folds
FOLD_SEED = 1000
#: unlabeled rows that take part in judging
JUDGING_ROWS = 2000
#: a constraint that is expected to be met by so many standard errors is said to be met
SAFE = 1.0


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate as judged by rows it was not fitted on.

    Args:
        decisions: on the labeled rows, each by the rule of the folds without it, (n,).
        soft_decisions: decisions of the candidate itself on the soft rows that judge, (m,).
        estimate: rates from both.
        value: with soft minima.
        miss: by how much the worst constraint is short of being safely met, by `SAFE` standard errors; of being met
            where no margin is asked for.
        clear_miss: by how much it is missed beyond a standard error.
        is_unstable: whether the candidate is another rule than the rules of the folds.
    """

    decisions: np.ndarray
    soft_decisions: np.ndarray
    estimate: RateEstimate
    value: float
    miss: float
    clear_miss: float
    is_unstable: bool

    @classmethod
    def read(
        cls,
        goal: SoftObjective,
        margins: np.ndarray,
        estimate: RateEstimate,
        decisions: np.ndarray,
        soft_decisions: np.ndarray,
        is_unstable: bool = False,
    ) -> Judged:
        """Return what an estimate says about constraints that are to be met by margins, (m,)."""
        value, slack = goal.with_margins(margins).judge(estimate.confusion)
        _, clear_slack = goal.with_margins(-measure_errors(goal, estimate)).judge(estimate.confusion)
        miss = max(0.0, -slack)
        return cls(decisions, soft_decisions, estimate, value, miss, max(0.0, -clear_slack), is_unstable)


@dataclass(frozen=True)
class Lead:
    """By how much one candidate is ahead of another in misses and in value, with standard errors."""

    miss: float
    clear_miss: float
    miss_error: float
    value: float
    value_error: float

    def decides(self, errors: float) -> bool:
        """Return whether the one misses clearly less, or no more and has a value higher by so many standard errors.

        A higher value never makes up for a miss that is larger, though it may be so by chance; nor does a smaller
        doubt about a miss make up for a clear one.
        """
        if abs(self.clear_miss) > self.miss_error:
            return self.clear_miss > 0
        return self.miss >= 0 and self.value > errors * self.value_error


@dataclass(frozen=True, eq=False)
class Judges:
    """The objective, and the rows that judge candidates.

    Args:
        goal: the objective.
        evidence: scores of all rows that candidates are fitted on.
        margin: standard errors by which constraints are to be met.
        seed: seed of the folds.
    """

    goal: SoftObjective
    evidence: HeldOutScores
    margin: float = MARGIN
    seed: int = 0

    @cached_property
    def rows(self) -> HeldOutScores:
        """All labeled rows, and those unlabeled rows that judge."""
        return self.evidence.thin(JUDGING_ROWS)

    def judge(self, candidates: list[Candidate]) -> list[Judged]:
        """Judge every candidate by rows it was not fitted on."""
        evidence = self.evidence
        classes = evidence.classes
        soft_scores = self.rows.soft_scores
        decisions = np.zeros((len(candidates), len(evidence.labels)), dtype=np.int64)
        soft_decisions: list[list[np.ndarray]] = [[] for _ in candidates]
        soft_labels = np.zeros((len(candidates), classes, classes))
        for fold_rows, part in split_folds(self.rows, self.seed):
            for k, candidate in enumerate(fit_candidates(self.goal, part, self.margin, candidates[-1])):
                decisions[k][fold_rows] = candidate.decide(evidence.scores[fold_rows])
                soft_decisions[k].append(candidate.decide(soft_scores))
                soft_labels[k] += decide_rates(evidence.labeled_posterior[fold_rows], decisions[k][fold_rows], classes)
        verdicts = []
        for k, candidate in enumerate(candidates):
            deployed_decisions = candidate.decide(soft_scores)
            is_unstable = differs_from(deployed_decisions, soft_decisions[k])
            mass = decide_rates(evidence.posterior, candidate.decide(evidence.unlabeled_scores), classes)
            if not evidence.has_unlabeled:
                deployed_decisions = decisions[k]  # its own would be of the rows it was fitted on
                mass = soft_labels[k]
            counts = count_labels(evidence.labels, decisions[k], classes)
            estimate = combine_rates(evidence, counts, mass, self.goal.prior.numpy())
            margins = min(self.margin, SAFE) * measure_errors(self.goal, estimate)
            verdicts.append(Judged.read(self.goal, margins, estimate, decisions[k], deployed_decisions, is_unstable))
        return verdicts

    def measure(self, candidate: Judged, rival: Judged) -> Lead:
        """Return the lead of one candidate over another, and its standard errors by the delta method.

        A row of class k adds G_k,F(x) - G_k,F'(x) to the difference, G being the derivative by the rates between the
        two; labels and posteriors of a class together are worth n_k + kappa rows.
        """
        mean_rates = (candidate.estimate.confusion.rates + rival.estimate.confusion.rates) / 2
        by_value, by_slack = self.goal.judge_slopes(make_unchecked(mean_rates, self.goal.prior))
        return Lead(
            rival.miss - candidate.miss,
            rival.clear_miss - candidate.clear_miss,
            self.spread(by_slack, candidate, rival),
            candidate.value - rival.value,
            self.spread(by_value, candidate, rival),
        )

    def spread(self, slope: np.ndarray, candidate: Judged, rival: Judged) -> float:
        """Return the standard error of a difference whose derivative by the rates is a slope, (K, K)."""
        truth = self.rows.labels
        classes = self.rows.classes
        squares = (slope[truth, candidate.decisions] - slope[truth, rival.decisions]) ** 2
        labeled = np.bincount(truth, squares, minlength=classes)
        posterior = self.rows.soft_posterior
        rows = np.flatnonzero(candidate.soft_decisions != rival.soft_decisions)
        steps = slope[:, candidate.soft_decisions[rows]] - slope[:, rival.soft_decisions[rows]]
        unlabeled = (posterior[rows].T * steps**2).sum(1) / np.maximum(posterior.sum(0), 1e-300)
        worth = candidate.estimate.worth
        variance = (labeled + worth * unlabeled) / (candidate.estimate.n + worth) ** 2
        return float(variance.sum() ** 0.5)


def split_folds(evidence: HeldOutScores, seed: int) -> Iterator[tuple[np.ndarray, HeldOutScores]]:
    """Yield the labeled rows of a fold, and the evidence without their labels.

    They differ from the folds of the learners, which would tie a rule to the models that scored its rows.

    Args:
        evidence: the rows that judge.
        seed: seed of the folds.
    """
    number = FOLDS if len(evidence.labels) < MANY_LABELS else FEW_FOLDS
    folds = deal_folds(evidence.labels, min(number, len(evidence.labels)), seed + FOLD_SEED)
    for fold in np.unique(folds):
        yield np.flatnonzero(folds == fold), evidence.part(np.flatnonzero(folds != fold))


def measure_errors(goal: SoftObjective, estimate: RateEstimate) -> np.ndarray:
    """Return standard errors of the constraints' payoffs at estimated rates, 0 for other payoffs, (m,).

        sqrt(e^2 + (phi(R^L) - phi(R^U))^2 / 4)

    e is the error of chance (`SoftObjective.measure_errors`); unlabeled rows count for a class as far as its labels do,
    see `count_worth`. Half of what labels and unlabeled rows differ by is an error of the model: where it is wrong
    about itself, or the models of folds are others than the one in use, one of the two is far from the truth.
    """
    rates = estimate.confusion.rates.numpy()
    errors = goal.measure_errors(rates, count_worth(estimate.n, estimate.worth))
    labeled_payoff, unlabeled_payoff = (
        goal.objective.payoff(make_unchecked(torch.from_numpy(rates_of_rows), goal.prior)).numpy()
        for rates_of_rows in (estimate.labeled_rates, estimate.unlabeled_rates)
    )
    places = goal.constraints
    errors[places] = np.hypot(errors[places], (labeled_payoff - unlabeled_payoff)[places] / 2)
    return errors


def differs_from(decisions: np.ndarray, fold_decisions: list[np.ndarray]) -> bool:
    """Return whether a rule decides otherwise (m,) than rules of folds, by more than these differ from each other.

    More than twice the median share of rows on which two of them differ, and a hundredth.
    """
    pairs = [(left_rule != right_rule).mean() for left_rule, right_rule in combinations(fold_decisions, 2)]
    shares = [(decisions != fold_rule).mean() for fold_rule in fold_decisions]
    return bool(np.median(shares) > 2 * np.median(pairs) + 0.01)


def choose(judges: Judges, verdicts: list[Judged], has_gain: bool = False) -> int:
    """Return the index of the candidate to use.

    The pooled rule, unless a simpler one is better by more than a standard error; and the argmax, which is the first,
    where it is any better than that. The argmax of a network that was trained under a gain has to lead by a standard
    error, too: its multipliers have seen the labels that judge it.

    Args:
        judges: measure leads.
        verdicts: the argmax first, the pooled rule last.
        has_gain: whether a gain was undone.
    """
    index = len(verdicts) - 1
    for k in range(len(verdicts) - 1):
        beats_pooled = judges.measure(verdicts[k], verdicts[-1]).decides(errors=1.0)
        if beats_pooled and judges.measure(verdicts[k], verdicts[index]).decides(errors=0.0):
            index = k
    lead = judges.measure(verdicts[0], verdicts[index])
    return 0 if lead.decides(errors=1.0 if has_gain else 0.0) else index
