"""Three ways to decide, from simple to fitted: the closed form, the closed form on calibrated scores, the pooled rule.

The closed form is the best response to the objective before anything was measured: the gain at uniform rates and the
first multipliers (1/pi for recall and coverage, the plain argmax for accuracy).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import softmax

from csst.maths.confusion import Confusion, make_unchecked
from csst.rules.rule import DecisionRule
from csst.rules.search import WeightedRows, search_bias
from csst.rules.smooth import SmoothObjective
from csst.statistics.calibration import Calibration
from csst.statistics.evidence import Evidence
from csst.statistics.rates import UNLABELED_WORTH, decide_rates

#: beta = BETA sqrt(n), at most MOST_BETA, for a median of n labels per class: few labels fall back to the mean
BETA, MOST_BETA = 2.5, 200.0
#: soft decisions: t = SOFTNESS, and less from SOFT_LABELS labels per class on
SOFTNESS, LEAST_SOFTNESS, SOFT_LABELS = 0.3, 0.03, 50.0
#: the same where there are constraints, which hard decisions have to meet
CONSTRAINED_SOFTNESS = 0.1
#: constraints are to be met by so many standard errors, the first of these that can be; by no more than they can
MARGINS = (1.0, 0.5)
#: a class's weight is at least this part of the largest
SMALLEST_WEIGHT = 1e-6

NAMES = ("closed form", "calibrated", "pooled")


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
    """

    name: str
    calibration: Calibration
    prior: np.ndarray
    bias: np.ndarray | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """The class of every row, (N,)."""
        if self.bias is not None:
            return (scores + self.bias).argmax(1)
        assert self.scale is not None
        assert self.offset is not None
        probs = softmax(self.calibration.apply(scores) + np.log(self.prior), axis=1)
        return ((probs * self.scale if self.scale.ndim == 1 else probs @ self.scale) + self.offset).argmax(1)

    def as_rule(self, train_prior: np.ndarray, undo: torch.Tensor | None = None) -> DecisionRule:
        """The same on probabilities that have the training prior in them."""
        temperature, a = self.calibration.temperature, self.calibration.bias
        shift = a + np.log(self.prior) - temperature * np.log(train_prior)
        if self.bias is not None:
            log_scale = temperature * self.bias - a - np.log(self.prior)
            scale, offset = np.exp(log_scale - log_scale.max()), np.zeros(len(a))
        else:
            assert self.scale is not None
            assert self.offset is not None
            unit = np.abs(self.scale).max()
            scale, offset = self.scale / unit, self.offset / unit
        tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in (scale, offset, shift - shift.mean())]
        return DecisionRule(tensors[0], tensors[1], temperature, tensors[2], undo)


def decide_plainly(scores: np.ndarray, train_prior: np.ndarray, undo: torch.Tensor | None = None) -> np.ndarray:
    """What a model does without a rule: the argmax of its own softmax, in which a network's gain still is.

    Args:
        scores: z = log p - log pi_train, (N, K).
        train_prior: pi_train, (K,).
        undo: what took the softmax to the probabilities p, (K,) or (K, K), see `DecisionRule`; None for no gain.

    Returns:
        Classes, (N,).
    """
    probs = softmax(scores + np.log(train_prior), axis=1)
    if undo is None:
        return probs.argmax(1)
    inverse = undo.double().numpy()
    return (probs / inverse if inverse.ndim == 1 else probs @ np.linalg.pinv(inverse)).argmax(1)


def softness(objective: SmoothObjective, evidence: Evidence) -> float:
    """t, which falls with the square root of the labels once they are many."""
    labels = max(1.0, float(np.median(evidence.counts)))
    first = CONSTRAINED_SOFTNESS if objective.has_constraints else SOFTNESS
    return max(LEAST_SOFTNESS, first * min(1.0, (SOFT_LABELS / labels) ** 0.5))


def sharpness(evidence: Evidence) -> float:
    """beta, which grows with the square root of the labels per class."""
    return float(min(MOST_BETA, BETA * max(1.0, np.median(evidence.counts)) ** 0.5))


def weigh_classes(objective: SmoothObjective, calibration: Calibration) -> np.ndarray:
    """The bias b (K,) that gives every class the weight of its own recall at uniform rates."""
    bias = (calibration.bias + np.log(clip_positive(objective.first_weights[0]))) / calibration.temperature
    return bias - bias.mean()


def fit_closed_form(objective: SmoothObjective, calibration: Calibration, name: str) -> Candidate:
    """The rule of the gain at uniform rates, on scores calibrated like this."""
    prior = objective.prior.numpy()
    if objective.reads_entries:
        uniform = Confusion.uniform(objective.prior)
        weights = objective.gradient(uniform.rates, objective.multipliers(uniform)) / prior[:, None]
        return Candidate(name, calibration, prior, scale=weights, offset=np.zeros(len(prior)))
    weight, price = objective.first_weights
    if np.ptp(price) > 1e-9 * np.abs(weight).max():
        return Candidate(name, calibration, prior, scale=clip_positive(weight / prior), offset=price)
    return Candidate(name, calibration, prior, bias=weigh_classes(objective, calibration))


def fit_pooled(objective: SmoothObjective, evidence: Evidence, begin: Candidate | None = None) -> Candidate:
    """The rule that is best on labels and unlabeled rows together.

    It is drawn a little to the calibrated closed form, from which the search starts unless it begins at another rule.
    """
    calibration, prior = evidence.calibration, objective.prior.numpy()
    anchor = weigh_classes(objective, calibration)
    start = anchor if begin is None or begin.bias is None else begin.bias
    rows = WeightedRows.pool(evidence)
    bias = search_bias(objective, rows, start, anchor, softness(objective, evidence))
    if 0 < len(objective.constraints) < evidence.classes:  # one for every class leaves no room
        bias = keep_distance(objective, evidence, rows, bias, anchor)
    pooled = Candidate("pooled", calibration, prior, bias=bias - bias.mean())
    if not objective.reads_entries:
        return pooled
    # Single wrong predictions count: the rule argmax_j (G^T q)_j of the gain at the fitted multipliers and rates.
    rates = torch.from_numpy(hard_rates(rows, pooled.decide(rows.scores)))
    weights = objective.gradient(rates, objective.multipliers(make_unchecked(rates, objective.prior)))
    return replace(pooled, bias=None, scale=weights / prior[:, None], offset=np.zeros(len(prior)))


def keep_distance(
    objective: SmoothObjective, evidence: Evidence, rows: WeightedRows, bias: np.ndarray, anchor: np.ndarray
) -> np.ndarray:
    """The bias (K,) of a rule that meets the constraints by a margin, where there is one; else this bias.

    A rule that just meets a constraint on the rows it was fitted on misses it on every second set of new ones.
    """

    def measure(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rates = hard_rates(rows, (rows.scores + b).argmax(1))
        with torch.no_grad():
            payoff = objective.objective.payoff(make_unchecked(torch.from_numpy(rates), objective.prior))
        return rates, payoff.numpy()[objective.constraints]

    worth = evidence.counts + np.minimum(UNLABELED_WORTH, evidence.soft_posterior.sum(0))
    errors = objective.measure_errors(measure(bias)[0], worth, objective.constraints)
    prices = objective.prices.copy()
    for fraction in MARGINS:
        objective.margins[:] = fraction * errors
        kept = search_bias(objective, rows, bias, anchor, softness(objective, evidence))
        objective.margins[:] = 0
        if (measure(kept)[1] >= fraction * errors[objective.constraints] / 2).all():
            return kept
        objective.prices[:] = prices
    return bias


def hard_rates(rows: WeightedRows, decisions: np.ndarray) -> np.ndarray:
    """The pooled rates of hard decisions, (K, K); a class without a row at all is taken to be predicted at random."""
    rates = decide_rates(rows.fractions, decisions, rows.scores.shape[1])
    totals = rates.sum(1, keepdims=True)
    return np.where(totals > 0, rates / np.maximum(totals, 1e-300), 1 / len(rates))


def all_candidates(objective: SmoothObjective, evidence: Evidence) -> list[Candidate]:
    """The closed form, the calibrated closed form and the pooled rule, fitted on the evidence."""
    objective.restart()
    return [
        fit_closed_form(objective, Calibration.identity(evidence.classes), "closed form"),
        fit_closed_form(objective, evidence.calibration, "calibrated"),
        fit_pooled(objective, evidence),
    ]


def clip_positive(weights: np.ndarray) -> np.ndarray:
    """Weights of classes, none less than a small part of the largest."""
    return np.maximum(weights, SMALLEST_WEIGHT * max(float(np.max(weights)), 1e-300))
