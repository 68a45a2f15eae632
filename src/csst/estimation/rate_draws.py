"""Class rates as they may truly be, given the labels and what the unlabeled rows expect.

    h_k ~ Binomial(n_k, r_k),    r_k ~ Beta(kappa_k u_k, kappa_k (1 - u_k)),    logit u_k = logit R^U_kk + delta

h_k of the n_k labels of class k are found. R^U is wrong in two ways: delta is the error that all classes share (the
model is surer or less sure of itself than it should be), and kappa_k is the number of labels that R^U is worth for a
single class. Only the second makes the lowest of many recalls lie below what R^U says of it. Neither is known, so both
are weighed by how likely they make the labels,

    P(delta, m | h) ∝ N(delta; 0, s^2) 3^-m prod_k BetaBinomial(h_k; n_k, kappa_k u_k, kappa_k (1 - u_k)),
    kappa_k = 2^-m TRUST n_k / (n_k + half),    at most the number of rows behind R^U_k.

Of a classifier that may abstain, labels and kappa_k count as far as it answers. A draw takes (delta, m) from these
weights, then every r_k from its Beta given the labels; a row of rates comes from a Dirichlet in the same way.

`half` and s are larger for labels that were cross-fitted: they say how good other models are than the one in use, which
has learned from a handful of labels of every class. And h_k and n_k count only in part: R^U repeats what these labels
say, which have calibrated every learner, chosen among learners, and calibrated their mean. Errors of R^L and R^U are
correlated by .5 to .9, and labels that counted in full would count twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaln
from scipy.stats import norm

from csst.estimation.class_rates import RateEstimate
from csst.estimation.unlabeled_prior import draw_balances
from csst.maths.confusion import Confusion

#: how many labels R^U is worth for a class, at most
TRUST = 200.0
#: labels of a class at which it is worth half of that: kept apart from the model, and cross-fitted
HALF_HELD_OUT = 5.0
HALF_CROSS_FITTED = 50.0
#: s, the standard deviation of delta
SHIFT_HELD_OUT = 0.25
SHIFT_CROSS_FITTED = 0.7
#: the part of a cross-fitted label that R^U does not repeat
NEWS_CROSS_FITTED = 0.5
#: how often kappa may be halved, and how much less likely every time is
HALVINGS = 6
HALVING_ODDS = 1 / 3
#: values of delta, in equal parts of its distribution
SHIFTS = 15
#: expected recalls are kept this far from 0 and 1, which no label could contradict
EDGE = 0.01


@dataclass(frozen=True, eq=False)
class AnsweredLabels:
    """Labels that the classifier answers: all, unless it may abstain.

    Args:
        hits: h_k, answered rightly, (K,).
        misses: n_k - h_k, answered wrongly, (K,).
        share: the fraction of a class's unlabeled rows with an answer, (K,).
        recalls: R^U_kk among these, (K,).
    """

    hits: np.ndarray
    misses: np.ndarray
    share: np.ndarray
    recalls: np.ndarray


@dataclass(frozen=True, eq=False)
class RateDoubts:
    """Values of delta and kappa, and how likely labels make them.

    Args:
        shifts: delta, (D,).
        worths: kappa, (M, K).
        weights: P(delta, m | h), (M, D).
    """

    shifts: np.ndarray
    worths: np.ndarray
    weights: np.ndarray

    def draw(self, number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw delta and kappa by their weights.

        Args:
            number: how many are drawn.
            rng: random numbers.

        Returns:
            delta, (number,), and kappa, (number, K).
        """
        places = rng.choice(self.weights.size, number, p=self.weights.ravel())
        halvings, steps = np.unravel_index(places, self.weights.shape)
        return self.shifts[steps], self.worths[halvings]


def count_trust(estimate: RateEstimate) -> np.ndarray:
    """Return kappa_k before any halving, (K,): TRUST n_k / (n_k + half), at most the rows behind R^U_k, at least 1."""
    half_labels = HALF_CROSS_FITTED if estimate.is_cross_fitted else HALF_HELD_OUT
    rows = estimate.unlabeled * estimate.unlabeled_prior if estimate.unlabeled else estimate.worth
    return np.maximum(np.minimum(TRUST * estimate.n / (estimate.n + half_labels), rows), 1.0)


def count_news(estimate: RateEstimate) -> np.ndarray:
    """Return as how many labels of every class the labels count, (K,)."""
    return estimate.n * (NEWS_CROSS_FITTED if estimate.is_cross_fitted else 1.0)


def limit_rates(estimate: RateEstimate) -> np.ndarray:
    """Return R^U without recalls that cross-fitted labels could not show, R^U_kk <= (n_k + 1) / (n_k + 2) of answers.

    What is taken from a recall goes to the errors of the class, in proportion.
    """
    classes = estimate.classes
    rates = estimate.unlabeled_rates.copy()
    if not estimate.is_cross_fitted:
        return rates
    diagonal = np.diag_indices(classes)
    errors = rates[:, :classes].copy()
    errors[diagonal] = 0.0
    answers = rates[:, :classes].sum(1)
    # Cells of group and class may have no label at all; they are hardly known as it is.
    limits = np.where(estimate.n > 0, (estimate.n + 1) / (estimate.n + 2), 1.0) * answers
    excess = np.maximum(rates[diagonal] - limits, 0.0)
    is_flawless = errors.sum(1) == 0
    errors[is_flawless] = 1.0
    errors[diagonal] = 0.0
    rates[:, :classes] += errors * (excess / errors.sum(1))[:, None]
    rates[diagonal] -= excess
    return rates


def count_answers(estimate: RateEstimate) -> AnsweredLabels:
    """Return the labels that are answered, and the recalls that unlabeled rows expect of answers."""
    classes = estimate.classes
    labels = count_news(estimate)
    hits = np.diag(estimate.labeled_rates) * labels
    rates = limit_rates(estimate)
    recalls = np.diag(rates)
    if rates.shape[1] == classes:
        return AnsweredLabels(hits, labels - hits, np.ones(classes), recalls)
    answers = estimate.labeled_rates[:, :classes].sum(1) * labels
    share = np.maximum(rates[:, :classes].sum(1), EDGE)
    return AnsweredLabels(hits, np.maximum(answers - hits, 0.0), share, recalls / share)


def shift_recalls(recalls: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Return u with logit u = logit(recall) + delta, (D, K), for recalls (K,) and shifts (D,)."""
    centers = recalls.clip(EDGE, 1 - EDGE)
    odds = centers / (1 - centers) * np.exp(shifts)[:, None]
    return odds / (1 + odds)


def weigh_doubts(estimate: RateEstimate) -> RateDoubts:
    """Return how likely the labels make each delta and kappa."""
    deviation = SHIFT_CROSS_FITTED if estimate.is_cross_fitted else SHIFT_HELD_OUT
    shifts = deviation * norm.ppf((np.arange(SHIFTS) + 0.5) / SHIFTS)
    halvings = np.arange(HALVINGS + 1)
    worths = count_trust(estimate) * 0.5 ** halvings[:, None]
    labels = count_answers(estimate)
    recalls = shift_recalls(labels.recalls, shifts)
    sizes = (worths * labels.share)[:, None]
    a = sizes * recalls
    b = sizes * (1 - recalls)
    logs = (betaln(a + labels.hits, b + labels.misses) - betaln(a, b)).sum(2)
    logs += halvings[:, None] * np.log(HALVING_ODDS)
    weights = np.exp(logs - logs.max())
    return RateDoubts(shifts, worths, weights / weights.sum())


def draw_recalls(estimate: RateEstimate, number: int = 1000, seed: int = 0) -> np.ndarray:
    """Return recalls of all classes as they may truly be, among what is answered, (number, K)."""
    rng = np.random.default_rng(seed)
    shifts, worths = weigh_doubts(estimate).draw(number, rng)
    labels = count_answers(estimate)
    recalls = shift_recalls(labels.recalls, shifts)
    sizes = worths * labels.share
    return rng.beta(labels.hits + sizes * recalls, labels.misses + sizes * (1 - recalls))


def draw_confusions(estimate: RateEstimate, number: int, seed: int = 0) -> Iterator[Confusion]:
    """Yield confusions as they may truly be under the deployment prior, one at a time; an estimated one is drawn, too.

    Row k comes from a Dirichlet with parameters n_k R^L_k + kappa_k U_k, where n_k are labels as far as they count and
    U_k is R^U_k with the odds of its diagonal entry multiplied by exp(delta).
    """
    rng = np.random.default_rng(seed)
    shifts, worths = weigh_doubts(estimate).draw(number, rng)
    counts = estimate.labeled_rates * count_news(estimate)[:, None]
    rates = limit_rates(estimate)
    diagonal = np.diag_indices(estimate.classes)
    prior = estimate.confusion.prior
    priors = [prior] * number
    if estimate.prior_covariance is not None:
        priors = list(torch.from_numpy(draw_balances(prior.numpy(), estimate.prior_covariance, number, seed)))
    for shift, worth, true_prior in zip(shifts, worths, priors, strict=True):
        soft_counts = rates.copy()
        soft_counts[diagonal] *= np.exp(shift)
        soft_counts *= (worth / soft_counts.sum(1))[:, None]
        sizes = rng.standard_gamma(np.maximum(counts + soft_counts, 1e-6)) + 1e-300
        yield Confusion(torch.from_numpy(sizes / sizes.sum(1, keepdims=True)), true_prior)
