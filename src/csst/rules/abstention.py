"""Rules that may give no answer, for sentences that say how often: max min(recall) s.t. abstain <= 0.1

    F(x) = argmax over the classes j and "no answer" of     m_j q_j(x)     and     alpha sum_j m_j q_j(x) - cut

Leaving out an example of class i raises the recall of what is answered by its share of the misses, so that the worth of
no answer is linear in the posterior q, like that of an answer: alpha is about the recall that is reached, and the cut
is the price of a human. alpha = 0 would cut on the largest score alone. The weights m begin at those of the rule that
always answers and are swept one at a time; the cut is found exactly for every trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import softmax

from csst.estimation.calibration import Calibration
from csst.estimation.class_rates import RateEstimate, combine_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import Confusion
from csst.maths.language import Sentence
from csst.maths.language.meaning import entries, evaluate, is_constant
from csst.maths.language.tree import Each, Metric, walk
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import Candidate, fit_candidates, read_log_weights
from csst.rules.judging import Judged, measure_errors, split_folds
from csst.rules.rule import DecisionRule, build_rule
from csst.rules.soft_objective import SoftObjective

#: parts of the recall that no answer is worth
SLOPES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)
#: shares of rows without an answer that are tried, besides those that the sentence names
SHARES = np.concatenate([[0.0], np.geomspace(0.005, 0.95, 32)])
#: changes of a single log weight, and rounds over all classes
STEPS = (-0.8, -0.3, -0.1, 0.1, 0.3, 0.8)
ROUNDS = 2
#: classes up to which single weights are swept
SWEPT_CLASSES = 50
#: unlabeled rows that the search looks at
SEARCH_ROWS = 2000
#: what a miss of a bound by 1 costs
MISS_COST = 10.0
#: a miss that counts as none
SMALL_MISS = 2e-3
#: a trial must be better than the best one by more than this
LEAST_GAIN = 1e-4


@dataclass(frozen=True, eq=False)
class Abstaining:
    """A rule that may give no answer, on scores z = log p - log pi_train.

    Args:
        calibration: calibration of the scores.
        prior: the deployment prior, (K,).
        log_weights: log m, (K,).
        slope: alpha.
        cut: the price of no answer.
    """

    calibration: Calibration
    prior: np.ndarray
    log_weights: np.ndarray
    slope: float
    cut: float

    def weigh(self, scores: np.ndarray) -> np.ndarray:
        """Return m_j q_j for every row, (N, K)."""
        posterior = softmax(self.calibration.apply(scores) + np.log(self.prior), axis=1)
        return posterior * np.exp(self.log_weights)

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Return the class of every row, and K for no answer, (N,)."""
        class_worth = self.weigh(scores)
        worth = self.slope * class_worth.sum(1) - self.cut
        return np.where(worth > class_worth.max(1), len(self.prior), class_worth.argmax(1))

    def as_rule(self, train_prior: np.ndarray, undo: torch.Tensor | None = None) -> DecisionRule:
        """Return the same rule on probabilities that have the training prior in them."""
        weights = np.exp(self.log_weights)
        scale = np.column_stack([np.diag(weights), self.slope * weights])
        offset = np.append(np.zeros(len(weights)), -self.cut)
        return build_rule(scale, offset, self.calibration, self.prior, train_prior, undo)


@dataclass(frozen=True, eq=False)
class Trial:
    """Weights, slope and share of no answers, and what they are worth: the value less the cost of a miss."""

    log_weights: np.ndarray
    slope: float
    share: float
    score: float
    miss: float


class CutSearch:
    """Finds the best slope and cut for given weights on weighted rows.

    Args:
        goal: the objective, with the margins that its bounds are to be met by.
        rows: labeled and unlabeled rows with their scores and class weights.
        calibration: calibration of the scores.
    """

    def __init__(self, goal: SoftObjective, rows: WeightedRows, calibration: Calibration) -> None:
        self.goal = goal
        self.fractions = rows.fractions
        self.prior = goal.prior.numpy()
        self.posterior = softmax(calibration.apply(rows.scores) + np.log(self.prior), axis=1)
        self.pulls = rows.fractions @ self.prior
        self.shares = np.union1d(SHARES, list_stated_shares(goal))

    def try_all(self, pairs: list[tuple[np.ndarray, float]]) -> Trial:
        """Return the best trial of these pairs of log weights and slope, each with all shares of no answers."""
        points = [self._measure_cuts(log_weights, slope) for log_weights, slope in pairs]
        hits, coverage, abstentions = (np.vstack(values) for values in zip(*points, strict=True))
        value, miss = self.goal.measure_margins(hits, coverage, abstentions)
        scores = value - MISS_COST * miss
        winner = int(scores.argmax())
        log_weights, slope = pairs[winner // len(self.shares)]
        share = float(self.shares[winner % len(self.shares)])
        return Trial(log_weights, slope, share, float(scores[winner]), float(miss[winner]))

    def _measure_cuts(self, log_weights: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return diagonal rates, coverages and abstentions for all shares of no answers, (S, K) each."""
        class_worth = self.posterior * np.exp(log_weights)
        decisions = class_worth.argmax(1)
        index = np.arange(len(decisions))
        order = np.argsort(class_worth.max(1) - slope * class_worth.sum(1), kind="stable")
        places = np.searchsorted(np.cumsum(self.pulls[order]), self.shares + 1e-12, side="right")
        hits = np.zeros_like(self.fractions)
        hits[index, decisions] = self.fractions[index, decisions]
        coverage = np.zeros_like(self.fractions)
        coverage[index, decisions] = self.pulls
        # What rows between two places of the order take away if they get no answer, summed up to each place.
        groups = np.searchsorted(places, np.arange(len(order)), side="right")
        losses = [_sum_groups(values[order], groups, len(places)) for values in (hits, coverage, self.fractions)]
        return (
            np.maximum(hits.sum(0) - losses[0], 0),
            np.maximum(coverage.sum(0) - losses[1], 0),
            np.minimum(losses[2], 1),
        )


def _sum_groups(values: np.ndarray, groups: np.ndarray, number: int) -> np.ndarray:
    """Return the sums of rows of values (N, K) in groups 0 .. s, for s below the number of groups, (S, K)."""
    edges = np.searchsorted(groups, np.arange(number + 1))
    sums = np.zeros((number, values.shape[1]))
    for group in range(number):
        sums[group] = values[edges[group] : edges[group + 1]].sum(0)
    return np.cumsum(sums, axis=0)


def list_stated_shares(goal: SoftObjective) -> list[float]:
    """Return the numbers of the sentence's bounds that are shares, such as 0.1 of abstain <= 0.1."""
    sentence = goal.objective
    assert isinstance(sentence, Sentence)
    numbers = []
    for constraint in sentence.constraints:
        for side in (constraint.left, constraint.right):
            if is_constant(side):
                numbers.append(float(evaluate(side, None, sentence.binding)))
    return [number for number in numbers if 0 < number < 1]


def fit_abstaining(
    goal: SoftObjective, evidence: HeldOutScores, candidates: list[Candidate], margin: float
) -> tuple[Abstaining, np.ndarray]:
    """Return the rule that is best on labels and unlabeled rows, and the margins (m,) by which it meets bounds.

    Args:
        goal: the objective under the deployment prior.
        evidence: scores of labeled and unlabeled rows.
        candidates: rules that always answer, from which the search starts.
        margin: standard errors by which bounds are to be met, as far as one rule does; none for bounds on abstention,
            which needs no labels.
    """
    evidence = evidence.thin(SEARCH_ROWS)
    rule, _ = search_rule(goal.with_margins(0.0), evidence, candidates)
    if margin > 0 and goal.has_constraints:
        estimate = estimate_abstaining(evidence, rule.decide(evidence.scores), rule, rule.prior)
        errors = measure_errors(goal, estimate) * ~find_abstention_bounds(goal)
        for factor in (margin, margin / 2) if errors.any() else ():
            cautious_goal = goal.with_margins(factor * errors)
            cautious_rule, miss = search_rule(cautious_goal, evidence, candidates, [rule.log_weights])
            if miss <= SMALL_MISS:
                return cautious_rule, cautious_goal.margins
    return rule, np.zeros(len(goal.margins))


def search_rule(
    goal: SoftObjective,
    evidence: HeldOutScores,
    candidates: list[Candidate],
    starts: Sequence[np.ndarray] = (),
) -> tuple[Abstaining, float]:
    """Return the rule that is best when bounds are to be met by the margins of the objective, and its largest miss.

    Args:
        goal: the objective.
        evidence: scores of labeled and unlabeled rows.
        candidates: rules that always answer, from which the search starts.
        starts: log weights (K,) from which it starts, too.
    """
    evidence = evidence.thin(SEARCH_ROWS)
    rows = WeightedRows.pool(evidence)
    prior = goal.prior.numpy()
    trial = search(goal, evidence, rows, [*starts, *list_starts(candidates, evidence, prior)])
    return make_rule(trial, evidence.calibration, rows, prior), trial.miss


def find_abstention_bounds(goal: SoftObjective) -> np.ndarray:
    """Return which payoffs bound abstention and nothing else, (m,)."""
    sentence = goal.objective
    assert isinstance(sentence, Sentence)
    is_bound = np.zeros(len(goal.margins), dtype=bool)
    flags: list[bool] = []
    for constraint in sentence.constraints:
        metrics = {getattr(node, "name", None) for node in walk(constraint) if isinstance(node, Metric | Each)}
        flags += [metrics == {"abstain"}] * entries(constraint, sentence.binding)
    is_bound[goal.constraints] = flags
    return is_bound


def fit_answering(goal: SoftObjective, evidence: HeldOutScores) -> list[Candidate]:
    """Return the rules that always answer, for the sentence without its bounds on abstention."""
    sentence = goal.objective
    assert isinstance(sentence, Sentence)
    answering_goal = SoftObjective(sentence.answering, goal.prior.numpy(), goal.beta)
    return fit_candidates(answering_goal, evidence, 0.0)


def list_starts(candidates: list[Candidate], evidence: HeldOutScores, prior: np.ndarray) -> list[np.ndarray]:
    """Return log weights of rules that always answer: those fitted for the sentence, 1/pi and the argmax."""
    starts = [np.zeros(len(prior)), -np.log(prior)]
    # The argmax without the gain of a network, and the other candidates.
    biases = [np.log(evidence.train_prior)]
    biases += [candidate.bias for candidate in candidates[1:] if candidate.bias is not None]
    starts += [read_log_weights(bias, evidence.calibration, prior) for bias in biases]
    return [log_weights - log_weights.max() for log_weights in starts]


def search(goal: SoftObjective, evidence: HeldOutScores, rows: WeightedRows, starts: list[np.ndarray]) -> Trial:
    """Return the best trial from several starts, single weights swept."""
    cuts = CutSearch(goal, rows, evidence.calibration)
    best_trial = cuts.try_all([(start, slope) for start in starts for slope in SLOPES])
    if evidence.classes > SWEPT_CLASSES:
        return best_trial
    for _ in range(ROUNDS):
        score_before = best_trial.score
        for k in range(evidence.classes):
            moves = [best_trial.log_weights + step * np.eye(evidence.classes)[k] for step in STEPS]
            trial = cuts.try_all([(log_weights, best_trial.slope) for log_weights in moves])
            if trial.score > best_trial.score + LEAST_GAIN:
                best_trial = trial
        trial = cuts.try_all([(best_trial.log_weights, slope) for slope in SLOPES])
        if trial.score > best_trial.score:
            best_trial = trial
        if best_trial.score < score_before + LEAST_GAIN:
            break
    return best_trial


def make_rule(trial: Trial, calibration: Calibration, rows: WeightedRows, prior: np.ndarray) -> Abstaining:
    """Return the rule of a trial, with the cut that leaves its share of the rows without an answer.

    Labeled rows count as they do in the rates: learners that have seen the unlabeled rows are surer of them than of new
    ones, and a cut on unlabeled rows alone would leave more new rows without an answer than was asked.
    """
    rule = Abstaining(calibration, prior, trial.log_weights, trial.slope, 0.0)
    class_worth = rule.weigh(rows.scores)
    worth = rule.slope * class_worth.sum(1) - class_worth.max(1)
    pulls = rows.fractions @ prior
    order = np.argsort(-worth, kind="stable")
    number = int(np.searchsorted(np.cumsum(pulls[order]), trial.share * pulls.sum() + 1e-12, side="right"))
    ends = np.concatenate([[worth[order[0]] + 1.0], worth[order], [worth[order[-1]] - 1.0]])
    # Between the last row without an answer and the first one with.
    return replace(rule, cut=float((ends[number] + ends[number + 1]) / 2) if trial.share > 0 else float(ends[0]))


def count_decisions(weights: np.ndarray, decisions: np.ndarray) -> np.ndarray:
    """Return sum_i W_ik 1[F(x_i) = j] for the classes and no answer, (K, K + 1)."""
    columns = weights.shape[1] + 1
    return weights.T @ (decisions[:, None] == np.arange(columns)).astype(float)


def estimate_abstaining(
    evidence: HeldOutScores, decisions: np.ndarray, rule: Abstaining | Candidate, prior: np.ndarray
) -> RateEstimate:
    """Return the rates of a rule from decisions on labeled rows (n,) and its own on all rows, (K, K + 1).

    How often there is no answer is counted by the rule itself: it needs no labels, and rules of folds have other cuts.
    """
    truth = np.eye(evidence.classes)[evidence.labels]
    own_decisions = rule.decide(evidence.soft_scores)
    counts = match_abstention(count_decisions(truth, decisions), count_decisions(truth, rule.decide(evidence.scores)))
    soft_counts = count_decisions(evidence.soft_posterior, own_decisions)
    if not evidence.has_unlabeled:  # answers of its own would be for the rows it was fitted on
        soft_counts = match_abstention(count_decisions(evidence.soft_posterior, decisions), soft_counts)
    return combine_rates(evidence, counts, soft_counts, prior)


def match_abstention(counts: np.ndarray, own_counts: np.ndarray) -> np.ndarray:
    """Return answers as in `counts` and no answers as in `own_counts`, (K, K + 1), row by row with the same sum.

    A class that has no answer in `counts` takes the row of `own_counts`.
    """
    answers = counts[:, :-1]
    totals = answers.sum(1, keepdims=True)
    own_totals = own_counts[:, :-1].sum(1, keepdims=True)
    matched_answers = np.where(totals > 0, answers * own_totals / np.where(totals > 0, totals, 1), own_counts[:, :-1])
    return np.column_stack([matched_answers, own_counts[:, -1]])


def add_abstention(estimate: RateEstimate) -> RateEstimate:
    """Return the estimate of a rule that always answers with a column of no answers, (K, K + 1)."""

    def add_column(rates: np.ndarray) -> np.ndarray:
        return np.column_stack([rates, np.zeros(len(rates))])

    confusion = estimate.confusion
    rates = torch.from_numpy(add_column(confusion.rates.numpy()))
    return replace(
        estimate,
        confusion=Confusion(rates, confusion.prior),
        labeled_rates=add_column(estimate.labeled_rates),
        unlabeled_rates=add_column(estimate.unlabeled_rates),
    )


def judge_abstaining(
    goal: SoftObjective, evidence: HeldOutScores, answering: Candidate, abstaining: Abstaining, seed: int
) -> list[Judged]:
    """Judge a rule that always answers and one that may abstain by rows that they were not fitted on.

    Both are judged with the margins of the goal: a rule that leaves no row out and just meets its bounds would else be
    preferred to one that meets them safely.

    Args:
        goal: the objective, with the margins by which its bounds were to be met.
        evidence: the rows that judge.
        answering: the rule that always answers.
        abstaining: the rule that may give no answer.
        seed: seed of the folds.
    """
    decisions = np.zeros((2, len(evidence.labels)), dtype=np.int64)
    for fold_rows, part in split_folds(evidence, seed):
        candidates = fit_answering(goal, part)
        decisions[0, fold_rows] = candidates[-1].decide(evidence.scores[fold_rows])
        rule, _ = search_rule(goal, part, candidates)
        decisions[1, fold_rows] = rule.decide(evidence.scores[fold_rows])
    verdicts = []
    rules: tuple[Candidate | Abstaining, ...] = (answering, abstaining)
    for judged_rule, decisions_of_folds in zip(rules, decisions, strict=True):
        estimate = estimate_abstaining(evidence, decisions_of_folds, judged_rule, goal.prior.numpy())
        # Bounds on abstention, which are met to the last row or nearly, may be missed by a standard error.
        margins = np.where(find_abstention_bounds(goal), -measure_errors(goal, estimate), goal.margins)
        soft_decisions = judged_rule.decide(evidence.soft_scores) if evidence.has_unlabeled else decisions_of_folds
        verdicts.append(Judged.read(goal, margins, estimate, decisions_of_folds, soft_decisions))
    return verdicts
