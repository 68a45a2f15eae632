"""The class balance of new rows, with an interval.

Calibrated posteriors h(x) under a balance pi have a mean m_k on the labeled rows of class k and a mean u on new rows:

    u = sum_k pi_k m_k + noise,    cov(noise) = C = S_u / N + sum_k pi_k^2 S_k / n_k

EM begins (`csst.estimation.shift`); then pi and h follow each other. How far pi may be from the labels' balance is what
makes u most likely (`csst.estimation.unlabeled_prior`): where chance explains the difference, nothing changes. The
interval does not lean on that: it is the interval of M^-T u, with covariance M^-T C M^-1. Few labels of a class are
helped out by what the model itself expects of new rows of this class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from scipy.stats import norm

from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.shift import estimate_prior
from csst.estimation.unlabeled_prior import SMALLEST, draw_balances, measure_posteriors, solve_balance

#: the part of C that draws the balance to the labels' balance: C is rather too large, and 5 labels would change nothing
CAUTION = 0.2
#: rounds in which the balance and the posteriors follow each other
ROUNDS = 4
#: of the intervals of all classes jointly
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class NewBalance:
    """The class balance of new rows as estimated.

    Args:
        prior: pi, (K,), positive.
        covariance: covariance of its error, (K, K).
        rows: N.
    """

    prior: np.ndarray
    covariance: np.ndarray
    rows: int

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the low and high ends of 95 % intervals, (K,) each, which are simultaneous (Bonferroni)."""
        reach = norm.ppf(1 - (1 - LEVEL) / 2 / len(self.prior)) * np.sqrt(np.diag(self.covariance).clip(min=0))
        return (self.prior - reach).clip(min=0), (self.prior + reach).clip(max=1)

    def draw(self, number: int) -> np.ndarray:
        """Draw balances as they may truly be.

        Args:
            number: how many.

        Returns:
            Class fractions, (number, K).
        """
        return draw_balances(self.prior, self.covariance, number)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        low, high = self.interval()
        return {"prior": self.prior.tolist(), "low": low.tolist(), "high": high.tolist(), "rows": self.rows}


def estimate_new_balance(evidence: HeldOutScores, scores: np.ndarray) -> NewBalance:
    """Estimate the class balance of new rows.

    Args:
        evidence: scores of the labeled rows.
        scores: z of new rows by the model that is used, (N, K).
    """
    calibration = evidence.calibration
    labeled_scores = calibration.apply(evidence.scores)
    new_scores = calibration.apply(scores)
    prior = estimate_prior(new_scores, evidence.labeled_prior)
    for _ in range(ROUNDS):
        labeled_posteriors, new_posteriors = (
            softmax(scores_of_rows + np.log(prior), axis=1) for scores_of_rows in (labeled_scores, new_scores)
        )
        means, noise = measure_posteriors(evidence, labeled_posteriors, new_posteriors, prior)
        prior = solve_balance(means, new_posteriors.mean(0), CAUTION * noise, evidence.labeled_prior).prior.clip(
            min=SMALLEST
        )
        prior = prior / prior.sum()
    inverse = np.linalg.pinv(means.T, rcond=1e-6)
    return NewBalance(prior, inverse @ noise @ inverse.T, len(scores))
