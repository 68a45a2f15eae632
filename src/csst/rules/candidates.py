"""Four ways to decide, from simple to fitted: the argmax, the closed form, the same calibrated, the pooled rule.

The argmax is what the model does without a rule. The closed form is the best response to the objective before anything
was measured: the gain at uniform rates and the first multipliers (1/pi for recall and coverage, the argmax for
accuracy). The pooled rule is searched for on labeled and unlabeled rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from scipy.special import softmax

from csst.estimation.calibration import Calibration
from csst.estimation.class_rates import RateEstimate, count_unlabeled_worth, decide_rates, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import Confusion, make_unchecked
from csst.maths.objectives import Objective
from csst.rules.bias_search import Search, WeightedRows, search_bias
from csst.rules.rule import DecisionRule, build_rule
from csst.rules.soft_objective import Prices, SoftObjective
from csst.rules.sweeps import score_bias, sweep_biases

#: beta = BETA sqrt(n), at most MOST_BETA, for a median of n labels per class: few labels fall back to the mean; from
#: SOFT_LABELS on it grows with n
BETA = 2.5
MOST_BETA = 200.0
#: soft decisions: t = SOFTNESS, and less from SOFT_LABELS labels per class on
SOFTNESS = 0.3
LEAST_SOFTNESS = 0.03
SOFT_LABELS = 50.0
#: the same where there are constraints, which hard decisions have to meet
CONSTRAINED_SOFTNESS = 0.1
#: constraints are to be met by so many standard errors, or by half of it
MARGIN = 1.5
#: unlabeled rows that are swept
SWEPT_ROWS = 4000
#: labels of a class that do not tell yet how well unlabeled rows count
FIRST_LABELS = 3
#: rounds in which the standard errors follow the rule, and what part of a margin counts as reached
MARGIN_ROUNDS = 2
REACHED = 0.8
#: a class that is predicted for fewer rows than this has no precision to speak of: new rows may have none of them
LEAST_ROWS = 3
#: a class's weight is at least this part of the largest
SMALLEST_WEIGHT = 1e-6

R = TypeVar("R")
NAMES = ("argmax", "closed form", "calibrated", "pooled")


@dataclass(frozen=True, eq=False)
class Candidate:
    """argmax_j z_j + b_j, or argmax_j m_j q_j + c_j with q = softmax(T z + a + log pi), on scores z.

    Args:
        name: one of `NAMES`.
        calibration: T and a.
        prior: pi, the deployment prior, (K,).
        bias: b, (K,); None where scale and offset decide.
        scale: m, (K,), or a matrix (K, K).
        offset: c, (K,).
        margins: margins by which the search was to meet the constraints, (m,); None without a search.
        prices: prices of the constraints at the end of the search; None without a search.
    """

    name: str
    calibration: Calibration
    prior: np.ndarray
    bias: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None
    margins: np.ndarray | None = None
    prices: Prices | None = None

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Return the class of every row, (N,)."""
        if self.bias is not None:
            return (scores + self.bias).argmax(1)
        assert self.scale is not None
        assert self.offset is not None
        probs = softmax(self.calibration.apply(scores) + np.log(self.prior), axis=1)
        return ((probs * self.scale if self.scale.ndim == 1 else probs @ self.scale) + self.offset).argmax(1)

    def as_rule(self, train_prior: np.ndarray, undo: torch.Tensor | None = None) -> DecisionRule:
        """Return the same rule on probabilities that have the training prior in them."""
        if self.name == "argmax":
            return DecisionRule.identity(len(train_prior))
        if self.bias is not None:
            log_scale = read_log_weights(self.bias, self.calibration, self.prior)
            scale = np.exp(log_scale - log_scale.max())
            offset = np.zeros(len(scale))
        else:
            assert self.scale is not None
            assert self.offset is not None
            unit = np.abs(self.scale).max()
            scale = self.scale / unit
            offset = self.offset / unit
        return build_rule(scale, offset, self.calibration, self.prior, train_prior, undo)


def estimate_candidate(evidence: HeldOutScores, candidate: Candidate, prior: np.ndarray) -> RateEstimate:
    """Return the rates of a candidate on the rows it was fitted on."""
    return estimate_rates(evidence, candidate.decide(evidence.scores), candidate.decide(evidence.soft_scores), prior)


def read_log_weights(bias: np.ndarray, calibration: Calibration, prior: np.ndarray) -> np.ndarray:
    """Return log m of a rule with biases b: T (z + b) = log q + log m up to a number per row, (K,)."""
    return calibration.temperature * bias - calibration.bias - np.log(prior)


def plain_argmax(train_prior: np.ndarray, undo: torch.Tensor | None = None) -> Candidate:
    """Return what a model does without a rule: the argmax of its own softmax, in which a network's gain still is.

    Args:
        train_prior: pi_train, (K,), which scores z = log p - log pi_train have lost.
        undo: what took the softmax to the probabilities p, (K,) or (K, K), see `DecisionRule`; None for no gain.
    """
    candidate = Candidate("argmax", Calibration.identity(len(train_prior)), train_prior, bias=np.log(train_prior))
    if undo is None:
        return candidate
    inverse = undo.double().numpy()
    if inverse.ndim == 1:
        return replace(candidate, bias=np.log(train_prior) - np.log(inverse))
    return replace(candidate, bias=None, scale=np.linalg.pinv(inverse), offset=np.zeros(len(inverse)))


def softness(objective: SoftObjective, evidence: HeldOutScores) -> float:
    """Return t, which falls with the square root of the labels once they are many."""
    labels = max(1.0, float(np.median(evidence.counts)))
    first_softness = CONSTRAINED_SOFTNESS if objective.has_constraints else SOFTNESS
    return max(LEAST_SOFTNESS, first_softness * min(1.0, (SOFT_LABELS / labels) ** 0.5))


def sharpness(evidence: HeldOutScores) -> float:
    """Return beta, which grows with the square root of the labels per class, and faster once they are many."""
    labels = max(1.0, float(np.median(evidence.counts)))
    return min(MOST_BETA, BETA * (labels * max(1.0, labels / SOFT_LABELS)) ** 0.5)


def soften(objective: Objective, prior: np.ndarray, evidence: HeldOutScores) -> SoftObjective:
    """Return an objective under a deployment prior (K,), as sharp as the labels of the evidence allow."""
    return SoftObjective(objective, prior, sharpness(evidence), evidence.prior_covariance)


def weigh_classes(objective: SoftObjective, calibration: Calibration) -> np.ndarray:
    """Return the bias b (K,) that gives every class the weight of its own recall at uniform rates."""
    return weigh_argmax(clip_positive(objective.first_weights[0]), calibration)


def fit_closed_form(objective: SoftObjective, calibration: Calibration, name: str) -> Candidate:
    """Return the rule of the gain at uniform rates, on scores calibrated like this."""
    prior = objective.prior.numpy()
    if objective.reads_entries:
        uniform = Confusion.uniform(objective.prior)
        weights = objective.gradient(uniform.rates, objective.multipliers(uniform)) / prior[:, None]
        return Candidate(name, calibration, prior, scale=weights, offset=np.zeros(len(prior)))
    weight, price = objective.first_weights
    if np.ptp(price) > 1e-9 * np.abs(weight).max():
        return Candidate(name, calibration, prior, scale=clip_positive(weight / prior), offset=price)
    return Candidate(name, calibration, prior, bias=weigh_classes(objective, calibration))


def fit_pooled(
    objective: SoftObjective,
    evidence: HeldOutScores,
    margin: float = MARGIN,
    margins: np.ndarray | None = None,
    prices: Prices | None = None,
) -> Candidate:
    """Return the rule that is best on labels and unlabeled rows together.

    Sentences that treat classes alike are searched with soft decisions (`csst.rules.bias_search`), which few labels do
    not lead astray. Those with constraints, or with a goal on some of the classes, are searched from several starts,
    and single biases are swept (`csst.rules.sweeps`).

    Args:
        objective: under the deployment prior.
        evidence: scores of labeled and unlabeled rows.
        margin: standard errors by which constraints are to be met, as far as they can be.
        margins: margins in units of the constraints, if known, (m,); then `margin` does not count.
        prices: prices of a search on similar rows, which shorten this one; None for none.
    """
    calibration = evidence.calibration
    prior = objective.prior.numpy()
    rows = WeightedRows.pool(evidence if objective.is_even else evidence.thin(SWEPT_ROWS))
    goal = objective.with_margins(0.0 if margins is None else margins, LEAST_ROWS / len(rows.scores))
    search = find_bias(goal, rows, calibration, softness(goal, evidence), prices)
    if margins is None and goal.has_constraints and margin > 0:
        search, margins = keep_distance(goal, evidence, rows, search, margin)
        if goal.balances is not None and not margins.any():
            # No rule is that safe where the balance is hardly known; one that is safe at the estimated balance may be.
            search, margins = keep_distance(goal.with_known_balance, evidence, rows, search, margin)
        goal = goal.with_margins(margins)
    bias = rows.blocks.spread(search.bias - search.bias.mean())
    candidate = Candidate("pooled", calibration, prior, bias=bias, margins=goal.margins, prices=search.prices)
    if not goal.reads_entries:
        return candidate
    # Single wrong predictions count: the rule argmax_j (G^T q)_j of the gain at the fitted multipliers and rates.
    rates = torch.from_numpy(hard_rates(rows, candidate.decide(rows.scores)))
    weights = goal.gradient(rates, goal.multipliers(make_unchecked(rates, goal.prior), search.prices))
    gain_rule = replace(candidate, bias=None, scale=weights / prior[:, None], offset=np.zeros(len(prior)))
    if not goal.has_constraints and not goal.worst_cases:
        return gain_rule
    # Multipliers are of soft decisions: they do not fit where the bias is better.
    judge = goal.with_margins(REACHED * goal.margins)
    return max(gain_rule, candidate, key=lambda rule: rank_decisions(judge, rows, rule.decide(rows.scores)))


def find_bias(
    objective: SoftObjective, rows: WeightedRows, calibration: Calibration, t: float, prices: Prices | None = None
) -> Search:
    """Return the bias (K,) that is best on the rows, from starts that the calibration says."""
    if objective.is_even:
        anchor = rows.blocks.merge(weigh_classes(objective, calibration))
        if len(np.unique(rows.decide(anchor))) == rows.scores.shape[1]:
            return search_bias(objective, rows, anchor, t)
        # A class that is never predicted has no slope: a sharp minimum of F1 at uniform rates weighs one class alone.
        argmax = rows.blocks.merge(weigh_argmax(objective.prior.numpy(), calibration))
        return solve_softly(objective, rows, [anchor, argmax], t)
    # The calibrated argmax and, if all classes count, 1/pi.
    starts = [weigh_argmax(objective.prior.numpy(), calibration)]
    if objective.weighs_all:
        starts.append(weigh_classes(objective, calibration))
    return solve(objective, rows, [rows.blocks.merge(start) for start in starts], t, prices)


def weigh_argmax(prior: np.ndarray, calibration: Calibration) -> np.ndarray:
    """Return the bias (K,) of the argmax of calibrated probabilities under a prior (K,)."""
    bias = (calibration.bias + np.log(prior)) / calibration.temperature
    return bias - bias.mean()


def solve(
    objective: SoftObjective, rows: WeightedRows, starts: list[np.ndarray], t: float, prices: Prices | None = None
) -> Search:
    """Return the bias (K,) with the highest score on the rows, by soft search and sweeps from every start (K,).

    Each search begins with the prices of the one before it, if that one has met the constraints.
    """
    if not objective.by_margins:
        return solve_softly(objective, rows, starts, t)
    biases = list(starts)
    if len(starts[0]) > 2:  # a sweep alone is exact for two classes
        for start in starts:
            search = search_bias(objective, rows, start, t, prices)
            biases.append(search.bias)
            prices = search.prices if search.is_feasible else prices
    beginning = max(biases, key=lambda bias: score_bias(objective, rows, bias))
    return Search(sweep_biases(objective, rows, beginning), prices or objective.first_prices)


def solve_softly(objective: SoftObjective, rows: WeightedRows, starts: list[np.ndarray], t: float) -> Search:
    """Return the same for an objective that reads all rates, by soft search alone."""
    searches = (search_bias(objective, rows, start, t) for start in starts)
    return max(searches, key=lambda search: rank_decisions(objective, rows, rows.decide(search.bias)))


def rank_decisions(objective: SoftObjective, rows: WeightedRows, decisions: np.ndarray) -> tuple[float, float]:
    """Return what decisions (N,) are compared by: the largest miss of a constraint, as a slack, then the value."""
    rates = torch.from_numpy(hard_rates(rows, decisions))
    value, slack = objective.judge(make_unchecked(rates, objective.prior))
    return min(0.0, slack), value


def keep_distance(
    objective: SoftObjective, evidence: HeldOutScores, rows: WeightedRows, search: Search, margin: float
) -> tuple[Search, np.ndarray]:
    """Return a rule that meets the constraints by so many standard errors, as far as one does, and these margins (m,).

    A rule that just meets a constraint on the rows it was fitted on misses it on every second set of new ones.
    """
    worth = count_worth(evidence.counts, count_unlabeled_worth(evidence))
    places = objective.constraints
    t = softness(objective, evidence)

    def measure(end: Search) -> tuple[np.ndarray, np.ndarray]:
        """Return the slack of every constraint, infinite for other payoffs, and standard errors, both (m,)."""
        rates = hard_rates(rows, rows.decide(end.bias))
        with torch.no_grad():
            payoff = objective.objective.payoff(make_unchecked(torch.from_numpy(rates), objective.prior)).numpy()
        slack = np.full(len(payoff), np.inf)
        slack[places] = payoff[places]
        return slack, objective.measure_errors(rates, worth)

    def search_safer(targets: np.ndarray, start: Search) -> Search | None:
        if not objective.can_reach(REACHED * targets):
            return None
        return solve(objective.with_margins(targets), rows, [start.bias], t, search.prices)

    return raise_margin(search, margin, measure, search_safer) or (search, objective.margins)


def raise_margin(
    rule: R,
    margin: float,
    measure: Callable[[R], tuple[np.ndarray, np.ndarray]],
    search: Callable[[np.ndarray, R], R | None],
) -> tuple[R, np.ndarray] | None:
    """Return a rule that meets constraints by so many standard errors, or by half of it, and these margins.

    Args:
        rule: where to begin.
        margin: standard errors by which constraints are to be met.
        measure: slack and standard errors of a rule, (m,) each.
        search: the best rule with margins (m,), given the rule before it; None if they are out of reach.

    Returns:
        The rule and the margins, (m,); None if there is none.
    """
    errors = measure(rule)[1]
    for factor in (margin, margin / 2):
        start = rule
        targets = factor * errors
        for _ in range(MARGIN_ROUNDS):
            safer = search(targets, start)
            if safer is None:
                break
            slack, safer_errors = measure(safer)
            # A safer rule may be known worse (fewer predictions), never better: at the bound the error is this large.
            raised_targets = np.maximum(targets, factor * safer_errors)
            if (slack >= REACHED * raised_targets).all():
                return safer, raised_targets
            if (slack < REACHED * targets).any():
                break
            start = safer
            targets = raised_targets
    return None


def count_worth(labels: np.ndarray, unlabeled_worth: np.ndarray) -> np.ndarray:
    """Return how many labels an estimate of each class is worth for its error, (K,).

    Unlabeled rows add no more than there are labels beyond the first few: what a model of three labels expects of
    itself is not known better by more rows, and a part of a class that these labels do not show is not in it.
    """
    return np.maximum(1, labels) + np.minimum(unlabeled_worth, np.maximum(0, labels - FIRST_LABELS))


def hard_rates(rows: WeightedRows, decisions: np.ndarray) -> np.ndarray:
    """Return the pooled rates of hard decisions, (K, K), as if a class without any row were predicted at random."""
    rates = decide_rates(rows.fractions, decisions, rows.scores.shape[1])
    totals = rates.sum(1, keepdims=True)
    return np.where(totals > 0, rates / np.maximum(totals, 1e-300), 1 / len(rates))


def fit_candidates(
    objective: SoftObjective,
    evidence: HeldOutScores,
    margin: float = MARGIN,
    model: Candidate | None = None,
) -> list[Candidate]:
    """Return the argmax, the closed form, the calibrated closed form and the pooled rule, fitted on the evidence.

    Args:
        objective: under the deployment prior.
        evidence: scores of labeled and unlabeled rows.
        margin: see `fit_pooled`.
        model: a pooled rule for similar rows, whose margins and prices are used; None for none.
    """
    if model is None:
        pooled_rule = fit_pooled(objective, evidence, margin)
    else:
        pooled_rule = fit_pooled(objective, evidence, margin, model.margins, model.prices)
    simple_rules = [plain_argmax(evidence.train_prior, evidence.undo)]
    if not evidence.blocks.are_tied:  # a closed form has weights of its own for every group
        simple_rules.append(fit_closed_form(objective, Calibration.identity(evidence.classes), "closed form"))
        simple_rules.append(fit_closed_form(objective, evidence.calibration, "calibrated"))
    return [*simple_rules, pooled_rule]


def clip_positive(weights: np.ndarray) -> np.ndarray:
    """Return weights of classes, none less than a small part of the largest."""
    return np.maximum(weights, SMALLEST_WEIGHT * max(float(np.max(weights)), 1e-300))
