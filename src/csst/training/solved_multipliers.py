"""Multipliers that are solved for: train under the gain to which the current decision rule is the best response.

Algorithms 1 and 2 sum up payoffs in lambda. A class that the network has not learned yet has a recall of 0 for any
lambda, so that the sum grows, and once the class is learned lambda needs many updates to come back. Here the min-player
answers at once instead: at every update the decision rule of the objective is fitted to the averaged network's scores
(milliseconds), and the gain moves part of the way to the gain whose best response is this rule. A rule is described by
the weights w_ij = pi_i G_ij of the rates R_ij in the objective:

    argmax_j z_j + b_j          w = diag(exp b)                                    z = log p - log pi
    argmax_j m_j q_j + c_j      w_ij = (delta_ij m_j + c_j) rho_i exp(a_i)         q = softmax(T z + a + log rho), T = 1

Rules are compared and mixed by parameters in which this is linear: b if w is diagonal, otherwise w itself, because a
mixture of w mixes the scores that rules maximize. With few labels the fitted rule has a large error, so it is shrunk
toward the rule of the first multipliers, b0, by how much it changes when a fold of the labels is left out:

    s^2 = (F - 1)/F sum_f |b_(-f) - mean|^2,     trust = max(0, 1 - s^2 / |b - b0|^2),     b <- b0 + trust (b - b0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csst.estimation.class_rates import combine_rates, count_labels, decide_rates
from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.gain import Gain, canonical
from csst.maths.multipliers import GainBuffer, Multipliers
from csst.maths.objectives import Objective
from csst.maths.ranking import score_on
from csst.rules.bias_search import WeightedRows, search_bias
from csst.rules.candidates import Candidate, fit_pooled, soften, softness
from csst.rules.fit import CONTRADICTED
from csst.rules.soft_objective import SoftObjective

#: folds of the labels that measure a rule's error
FOLDS = 5
#: unlabeled rows that a rule is fitted to, at most
ROWS = 1000
#: a class counts as ignored if its weight is a smaller part of the largest weight
LEAST_WEIGHT = 0.1
#: entries of a gain that differ by less than this part of the largest are equal
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Solution:
    """The gain that the current scores ask for.

    Args:
        parameters: parameters of the rule of each group of rows, or of the only rule, shrunk toward the first
            multipliers: b, (K,), or w, (K, K).
        prices: prices of the constraints, (m,), 0 for entries of a worst case; None with a rule of each group.
        trust: weight of the fitted rule against the first multipliers, 0 to 1.
        hold: reason why the multipliers do not move, as a phrase; "" if they move.
    """

    parameters: tuple[np.ndarray, ...] = ()
    prices: np.ndarray | None = None
    trust: float = 0.0
    hold: str = ""


@dataclass(frozen=True, eq=False)
class JudgedRule:
    """A rule, the rules without each fold of the labels, and how they rank on the labels of their folds.

    Args:
        rule: rule of all labels.
        part_rules: rules without each fold.
        rank: constraints first, then the value.
    """

    rule: Candidate
    part_rules: tuple[Candidate, ...]
    rank: tuple[float, float]


class AveragedGain(GainBuffer):
    """The gain behind an averaged network: log G averaged with the decay of the weights, step by step.

    Gains that are not diagonal are divided by their mean entry and averaged without the logarithm.

    Args:
        gain: gain of the first step.
        decay: decay of the averaged weights.
    """

    steps: Tensor

    def __init__(self, gain: Gain, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("entries", gain.entries.detach().cpu().double().clone())
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, gain: Gain) -> None:
        """Add the gain of a step to the average; the first is copied, as the first weights are.

        Args:
            gain: G of the step.
        """
        entries = gain.entries.detach().cpu().double()
        self.steps += 1
        if int(self.steps) == 1:
            self.entries = entries.clone()
        elif entries.ndim == self.entries.ndim == 1:
            # Logarithms less their mean: a common factor changes no gain.
            logs = [values.log() - values.log().mean() for values in (self.entries, entries)]
            self.entries = (self.decay * logs[0] + (1 - self.decay) * logs[1]).exp()
        else:
            matrices = [torch.diag(values) if values.ndim == 1 else values for values in (self.entries, entries)]
            matrices = [matrix / matrix.mean() for matrix in matrices]
            self.entries = self.decay * matrices[0] + (1 - self.decay) * matrices[1]

    @property
    def gain(self) -> Gain:
        """The averaged gain."""
        return Gain(self.entries)


class Solver:
    """Solves for the gain of an objective.

    Args:
        multipliers: the first multipliers, whose gain stays in force while evidence is weak. A gain that all but
            ignores a class, as for a goal on one class alone, is replaced by the gain of accuracy: no network learns
            scores under it.
        prior: class fractions under which the objective is judged, (K,).
        farthest: largest distance of log G of a class from its value at the first multipliers.
    """

    def __init__(self, multipliers: Multipliers, prior: Tensor, farthest: float) -> None:
        self.objective = multipliers.objective
        self.prior = prior.cpu().double().numpy()
        self.farthest = farthest
        train_prior = multipliers.train_prior
        weights = np.diag(as_matrix(parameters_of_gain(multipliers.gain, train_prior)))
        # The gain of accuracy (dual.initial = "prior") weighs classes by their fractions: that ignores no class.
        least_weight = min(LEAST_WEIGHT, float(train_prior.min() / train_prior.max()) / 2)
        if weights.min() < least_weight * weights.max():
            multipliers.adopt(train_prior, multipliers.value)
        self.start = parameters_of_gain(multipliers.gain, train_prior)
        SoftObjective(self.objective, self.prior, 1.0)  # raises before training if the objective has no rule

    def solve(self, evidence: HeldOutScores) -> Solution:
        """Return the rule that is best for the current scores, shrunk by its error.

        Args:
            evidence: scores without the averaged gain.

        Returns:
            The rule's parameters and prices, or the reason not to move.
        """
        reason = find_reason_to_hold(evidence)
        if reason:
            return Solution(hold=reason)
        evidence = evidence.thin(ROWS)
        judged_rule = fit_and_judge(evidence, self.objective, self.prior)
        prices = find_prices(judged_rule.rule, evidence, self.objective, self.prior)
        # Ties go to the start: a class that no rule can tell from another must not move the gain.
        if judged_rule.rank <= self._judge_start(evidence):
            return Solution((self.start,), prices)
        target = parameters_of_rule(judged_rule.rule)
        parts = [parameters_of_rule(part) for part in judged_rule.part_rules]
        parameters, trust = shrink(target, parts, self.start, self.farthest)
        return Solution((parameters,), prices, trust)

    def move(self, multipliers: Multipliers, solution: Solution, share: float) -> None:
        """Move the gain part of the way to a solution, and set lambda to match.

        Args:
            multipliers: multipliers, changed in place.
            solution: result of `solve`.
            share: eta, the part of the way, 0 to 1.
        """
        if solution.prices is None:  # there is a reason to hold
            return
        (target,) = solution.parameters
        weights = weights_of(mix(parameters_of_gain(multipliers.gain, multipliers.train_prior), target, share))
        prices = (1 - share) * multipliers.value.cpu().numpy() + share * solution.prices
        multipliers.adopt(torch.from_numpy(weights), torch.from_numpy(prices))

    def _judge_start(self, evidence: HeldOutScores) -> tuple[float, float]:
        """Return the rank of the rule of the first multipliers."""
        decisions = (decide(self.start, z) for z in (evidence.scores, evidence.soft_scores))
        return judge(evidence, self.objective, self.prior, *decisions)


def judge(
    evidence: HeldOutScores,
    objective: Objective,
    prior: np.ndarray,
    decisions: np.ndarray,
    soft_decisions: np.ndarray,
) -> tuple[float, float]:
    """Return the rank of decisions: constraints first, then the value.

    Args:
        evidence: scores of labeled and unlabeled rows.
        objective: objective, bound to the classes.
        prior: class fractions under which it is judged, (K,).
        decisions: classes of the labeled rows, (n,).
        soft_decisions: classes of the rows of `evidence.soft_scores`.
    """
    counts = count_labels(evidence.labels, decisions, evidence.classes)
    soft_rates = decide_rates(evidence.soft_posterior, soft_decisions, evidence.classes)
    return score_on(objective, combine_rates(evidence, counts, soft_rates, prior).confusion, 0.0).rank


def fit_and_judge(evidence: HeldOutScores, objective: Objective, prior: np.ndarray) -> JudgedRule:
    """Return the rule of an objective with the rules without each fold of the labels, which judge it.

    Args:
        evidence: scores of labeled and unlabeled rows.
        objective: objective, bound to the classes.
        prior: class fractions under which it is judged, (K,).
    """
    rule = fit_present_rule(evidence, objective, prior)
    folds = deal_judges(evidence.labels)
    parts = [np.flatnonzero(folds != fold) for fold in np.unique(folds)]
    part_rules = tuple(fit_present_rule(evidence.part(rows), objective, prior) for rows in parts)
    decisions = np.zeros(len(evidence.labels), dtype=np.int64)
    for rows, part_rule in zip(parts, part_rules, strict=True):
        fold_rows = np.setdiff1d(np.arange(len(decisions)), rows)
        decisions[fold_rows] = part_rule.decide(evidence.scores[fold_rows])
    return JudgedRule(rule, part_rules, judge(evidence, objective, prior, decisions, rule.decide(evidence.soft_scores)))


def deal_judges(labels: np.ndarray) -> np.ndarray:
    """Return the fold of every judged label, (n,)."""
    return deal_folds(labels, min(FOLDS, len(labels)), 0)


def fit_present_rule(evidence: HeldOutScores, objective: Objective, prior: np.ndarray) -> Candidate:
    """Return the rule of an objective on the evidence, which meets its constraints without a margin.

    Args:
        evidence: scores of labeled and unlabeled rows.
        objective: objective, bound to the classes.
        prior: class fractions under which it is judged, (K,).
    """
    return fit_pooled(soften(objective, prior, evidence), evidence, margin=0.0)


def find_prices(rule: Candidate, evidence: HeldOutScores, objective: Objective, prior: np.ndarray) -> np.ndarray:
    """Return the prices of the constraints near a rule, (m,), by a soft search that begins at the rule.

    Args:
        rule: rule of the objective on the evidence.
        evidence: scores of labeled and unlabeled rows.
        objective: objective, bound to the classes.
        prior: class fractions under which it is judged, (K,).
    """
    soft_objective = soften(objective, prior, evidence)
    if not soft_objective.has_constraints or rule.bias is None:
        return soft_objective.first_prices.values
    rows = WeightedRows.pool(evidence)
    return search_bias(soft_objective, rows, rule.bias, softness(soft_objective, evidence)).prices.values


def find_reason_to_hold(evidence: HeldOutScores) -> str:
    """Return why the scores do not determine a rule, as a phrase; "" if they do."""
    if (evidence.counts == 0).any():
        return "a class has no judged label"
    if len(np.unique(deal_judges(evidence.labels))) < 2:
        return "there are too few judged labels to leave any out"
    if evidence.is_constant:
        return "the scores are the same for every row"
    if evidence.information < CONTRADICTED:
        return "the scores carry no information about the classes"
    return ""


def parameters_of_rule(rule: Candidate) -> np.ndarray:
    """Return b, (K,), or w, (K, K), of a rule (see the top of this file)."""
    if rule.bias is not None:
        return rule.bias - rule.bias.mean()
    assert rule.scale is not None
    assert rule.offset is not None
    # With a temperature T the diagonal rule is exact, and an offset is treated as at T = 1.
    power = 1 / rule.calibration.temperature
    likelihood = (rule.prior * np.exp(rule.calibration.bias)) ** power
    if rule.scale.ndim == 2:
        return simplify((rule.scale + rule.offset) * likelihood[:, None])
    own_weights = likelihood * rule.scale**power
    return simplify(np.diag(own_weights) + np.outer(own_weights / rule.scale, rule.offset))


def parameters_of_gain(gain: Gain, train_prior: Tensor) -> np.ndarray:
    """Return b, (K,), or w, (K, K), of the rule that is the best response to a gain."""
    prior = train_prior.cpu().double().numpy()
    entries = gain.entries.detach().cpu().double().numpy()
    if gain.is_diagonal:
        logs = np.log(entries * prior)
        return logs - logs.mean()
    return simplify(entries * prior[:, None])


def simplify(weights: np.ndarray) -> np.ndarray:
    """Return b, (K,), if a diagonal w gives the same rule as the weights (K, K); otherwise w with a mean entry of 1.

    A constant added to a row changes no rule: rows are shifted until their smallest off-diagonal entry is 0.
    """
    off_diagonal = weights + np.where(np.eye(len(weights), dtype=bool), np.inf, 0.0)
    weights = weights - off_diagonal.min(1, keepdims=True)
    diagonal = np.diag(weights)
    remainder = np.abs(weights - np.diag(diagonal)).max()
    if diagonal.min() > 0 and remainder <= ROUNDING * np.abs(weights).max():
        logs = np.log(diagonal)
        return logs - logs.mean()
    matrix = canonical(torch.from_numpy(weights)).numpy()
    return matrix / matrix.mean()


def weights_of(parameters: np.ndarray) -> np.ndarray:
    """Return w: (K,) if it is diagonal, otherwise (K, K)."""
    return np.exp(parameters) if parameters.ndim == 1 else parameters


def as_matrix(parameters: np.ndarray) -> np.ndarray:
    """Return w as a matrix, (K, K), with a mean entry of 1."""
    weights = weights_of(parameters)
    matrix = np.diag(weights) if weights.ndim == 1 else weights
    return matrix / matrix.mean()


def mix(start: np.ndarray, target: np.ndarray, share: float) -> np.ndarray:
    """Return the parameters part of the way from a start to a target."""
    if not start.ndim == target.ndim == 1:
        start = as_matrix(start)
        target = as_matrix(target)
    return (1 - share) * start + share * target


def shrink(target: np.ndarray, parts: list[np.ndarray], start: np.ndarray, farthest: float) -> tuple[np.ndarray, float]:
    """Return the parameters of a rule, shrunk toward a start by their error and at most `farthest` away, and the trust.

    Args:
        target: b of all labels.
        parts: b without each fold.
        start: b0.
        farthest: largest distance of a log weight from the start's.
    """
    trust = measure_trust(target, parts, start)
    return limit_distance(mix(start, target, trust), start, farthest), trust


def measure_trust(target: np.ndarray, parts: list[np.ndarray], start: np.ndarray) -> float:
    """Return max(0, 1 - s^2 / |b - b0|^2), s^2 = (F - 1)/F sum_f |b_(-f) - mean|^2.

    Args:
        target: b of all labels.
        parts: b without each fold.
        start: b0.
    """
    if not all(parameters.ndim == 1 for parameters in (target, start, *parts)):
        target = as_matrix(target)
        start = as_matrix(start)
        parts = [as_matrix(part) for part in parts]
    deviations = np.stack(parts) - np.mean(parts, axis=0)
    spread = (len(parts) - 1) / len(parts) * float((deviations**2).sum())
    distance = float(((target - start) ** 2).sum())
    return max(0.0, 1 - spread / distance) if distance > 0 else 0.0


def limit_distance(parameters: np.ndarray, start: np.ndarray, farthest: float) -> np.ndarray:
    """Return parameters whose log weights are at most `farthest` from the start's; matrices are mixed as a whole."""
    if parameters.ndim == start.ndim == 1:
        return start + np.clip(parameters - start, -farthest, farthest)
    logs = np.log(np.diag(as_matrix(parameters))) - np.log(np.diag(as_matrix(start)))
    distance = float(np.abs(logs).max())
    return parameters if distance <= farthest else mix(start, parameters, farthest / distance)


def decide(parameters: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the classes (N,) that the rule with these parameters chooses for scores z, (N, K)."""
    if parameters.ndim == 1:
        return (scores + parameters).argmax(1)
    likelihood = np.exp(scores - scores.max(1, keepdims=True))
    return (likelihood @ parameters).argmax(1)
