"""Standard errors of constraints at estimated rates, by the delta method.

    sum_k Var_k / n_k,      Var_k = sum_j B_kj g_kj^2 - (sum_j B_kj g_kj)^2,      g = d phi / d R

B = (1 - p) R + p / K are the rates on the way from R to chance at which the constraint would just be met: three hits of
three show no spread, but a recall at the bound would. g is the mean of the slopes at R and at B.

A deployment prior that is estimated adds the variance of phi over priors as they may truly be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csst.maths.confusion import make_unchecked
from csst.maths.objectives import Objective
from csst.rules.metric_form import MetricForm

#: halvings of the way to chance
BISECTIONS = 12

Places = Sequence[int] | np.ndarray
Moments = tuple[np.ndarray, np.ndarray]


def measure_standard_errors(payoffs: FormPayoffs | AutogradPayoffs, rates: np.ndarray, worth: np.ndarray) -> np.ndarray:
    """Return the standard errors of payoffs, (P,).

    One row more of every class is spread over all predictions: what was never seen is not impossible.

    Args:
        payoffs: P of them.
        rates: R, (K, K).
        worth: n, how many labels each row of R is worth, (K,).
    """
    rows = np.asarray(worth, dtype=np.float64)[:, None]
    rates = (rows * rates + 1 / len(rates)) / (rows + 1)
    means, squares = payoffs.measure_moments(rates, find_bounds(payoffs, rates))
    return (np.maximum(squares - means**2, 0) / worth).sum(1) ** 0.5


def measure_balance_errors(objective: Objective, rates: Tensor, balances: np.ndarray) -> np.ndarray:
    """Return the standard deviations of payoffs, (P,), over balances as they may truly be.

    Args:
        objective: bound to the classes.
        rates: R, (K, K).
        balances: class fractions, (B, K).
    """

    def measure(prior: Tensor) -> Tensor:
        return objective.payoff(make_unchecked(rates, prior))

    priors = torch.from_numpy(balances)
    with torch.no_grad():
        if objective.reads_margins:
            return torch.func.vmap(measure)(priors).numpy().std(0)
        # A user's own objective may do what only works on one confusion at a time.
        return np.stack([measure(prior).numpy() for prior in priors]).std(0)


def find_bounds(payoffs: FormPayoffs | AutogradPayoffs, rates: np.ndarray) -> np.ndarray:
    """Return the part of chance p at which each payoff is 0, (P,), by bisection.

    0 where a payoff is negative already or is higher at chance; 1 where it is positive even there.
    """
    low = np.zeros(len(payoffs.places))
    high = np.ones(len(payoffs.places))
    start = payoffs.evaluate(rates, low)
    moves = (start > 0) & (payoffs.evaluate(rates, high) < start)
    for _ in range(BISECTIONS):
        midpoint = (low + high) / 2
        is_positive = payoffs.evaluate(rates, midpoint) > 0
        low = np.where(is_positive, midpoint, low)
        high = np.where(is_positive, high, midpoint)
    return np.where(moves, high, 0.0)


@dataclass(frozen=True, eq=False)
class FormPayoffs:
    """Payoffs that are linear forms of class metrics, a function of rates that are mixed with chance.

        g_kj = delta_kj a_k + pi_k c_j

    Every payoff has its own part p of chance, (P,): its rates are (1 - p) R + p / K.
    No slope is written out: with 1,000 classes and a bound on each, they would be 1,000 matrices (K, K).

    Args:
        form: the sentence.
        places: places of the P payoffs.
    """

    form: MetricForm
    places: Places

    def mix_margins(self, rates: np.ndarray, parts: np.ndarray) -> Moments:
        """Return recalls and coverages at mixtures with chance, both (P, K)."""
        share = parts[:, None]
        recall = (1 - share) * np.diag(rates) + share / len(rates)
        coverage = (1 - share) * (self.form.prior @ rates) + share / len(rates)
        return recall, coverage

    def evaluate(self, rates: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return every payoff at its own mixture, (P,)."""
        return self.form.evaluate_payoffs(np.asarray(self.places), *self.mix_margins(rates, parts))

    def measure_moments(self, rates: np.ndarray, parts: np.ndarray) -> Moments:
        """Return sum_j B_kj g_kj and sum_j B_kj g_kj^2, both (P, K)."""
        places = np.asarray(self.places)
        recall, coverage = self.mix_margins(rates, parts)
        slopes = self.form.slopes_of_payoffs(places, *self.mix_margins(rates, np.zeros(len(parts))))
        slopes_at_bound = self.form.slopes_of_payoffs(places, recall, coverage)
        by_recall = (slopes[0] + slopes_at_bound[0]) / 2
        by_coverage = (slopes[1] + slopes_at_bound[1]) / 2
        prior = self.form.prior
        share = parts[:, None]

        def expect(values: np.ndarray) -> np.ndarray:
            """Return sum_j B_kj v_j for every payoff, (P, K)."""
            return (1 - share) * (values @ rates.T) + share * values.mean(1, keepdims=True)

        means = recall * by_recall + prior * expect(by_coverage)
        own_squares = recall * by_recall * (by_recall + 2 * prior * by_coverage)
        return means, own_squares + prior**2 * expect(by_coverage**2)


@dataclass(frozen=True, eq=False)
class AutogradPayoffs:
    """Any payoffs of an objective, as `FormPayoffs`, by autograd.

    Args:
        objective: bound to the classes.
        prior: pi, (K,).
        places: places of the P payoffs.
    """

    objective: Objective
    prior: Tensor
    places: Places

    def evaluate(self, rates: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return every payoff at its own mixture, (P,)."""
        with torch.no_grad():
            values = [
                float(self.objective.payoff(make_unchecked(torch.from_numpy(mix(rates, part)), self.prior))[int(place)])
                for place, part in zip(self.places, parts, strict=True)
            ]
        return np.array(values)

    def measure_moments(self, rates: np.ndarray, parts: np.ndarray) -> Moments:
        """Return sum_j B_kj g_kj and sum_j B_kj g_kj^2, both (P, K)."""
        means = np.zeros((len(parts), len(rates)))
        squares = np.zeros((len(parts), len(rates)))
        for row, place in enumerate(self.places):
            at_bound = mix(rates, parts[row])
            slope = (self.measure_slope(rates, int(place)) + self.measure_slope(at_bound, int(place))) / 2
            means[row] = (at_bound * slope).sum(1)
            squares[row] = (at_bound * slope**2).sum(1)
        return means, squares

    def measure_slope(self, rates: np.ndarray, place: int) -> np.ndarray:
        """Return d phi / d R of one payoff, (K, K)."""
        leaf = torch.from_numpy(rates).requires_grad_()
        with torch.enable_grad():
            payoff = self.objective.payoff(make_unchecked(leaf, self.prior))[place]
            return torch.autograd.grad(payoff, leaf)[0].numpy()


def mix(rates: np.ndarray, part: float) -> np.ndarray:
    """Return (1 - p) R + p / K, (K, K)."""
    return (1 - part) * rates + part / len(rates)
