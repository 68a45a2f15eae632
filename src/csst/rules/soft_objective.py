"""An objective as a smooth function of class rates: soft minima for worst cases, penalties for constraints.

min_k phi_k           ->   -(1/beta) log mean_k exp(-beta phi_k)           the mean for beta -> 0, the min for large
payoff psi >= 0       ->   -(1/2 rho) (max(0, mu - rho psi)^2 - mu^2)      augmented Lagrangian, price mu
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.estimation.unlabeled_prior import draw_balances
from csst.maths.confusion import Confusion, confusion_from_margins, make_unchecked
from csst.maths.domains import NonNegative, Simplex, flatten_domain
from csst.maths.objectives import Objective
from csst.rules.metric_form import SMALLEST_COVERAGE, MetricForm, read_form
from csst.rules.standard_errors import AutogradPayoffs, FormPayoffs, measure_balance_errors, measure_standard_errors

#: a worst case whose entries hardly move between chance and perfection is measured in its own units
SMALLEST_SPAN = 1e-3
#: a class whose recall is paid less than this part of another's does not count at uniform rates
LEAST_SHARE = 1e-3
#: rho of the augmented Lagrangian at first; it grows while a constraint stays missed
FIRST_PENALTY = 20.0
MOST_PENALTY = 2e4
#: balances that stand for doubt about an estimated deployment prior
BALANCE_DRAWS = 64
#: what rounding may do to a sum of bounds
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Value:
    """The smooth value with the slack of constraints.

    Args:
        value: the value.
        slopes: its derivatives by recall and coverage, (K,) each, or by all rates, (K, K).
        slack: slack of every constraint beyond its margin.
    """

    value: float
    slopes: Sequence[np.ndarray]
    slack: np.ndarray


@dataclass(frozen=True, eq=False)
class Prices:
    """State of the augmented Lagrangian.

    Args:
        values: mu, one for every payoff, 0 for those that are no constraint, (m,).
        penalty: rho.
    """

    values: np.ndarray
    penalty: float = FIRST_PENALTY

    def raise_by(self, slack: np.ndarray, places: np.ndarray, is_slow: bool) -> Prices:
        """Return mu <- max(0, mu - rho psi) for the slack psi at these places; rho grows if progress is slow."""
        values = self.values.copy()
        values[places] = np.maximum(0, values[places] - self.penalty * slack)
        return Prices(values, min(MOST_PENALTY, 4 * self.penalty) if is_slow else self.penalty)


@dataclass(frozen=True)
class WorstCase:
    """The soft minimum of some of the payoffs.

    Args:
        place: where these payoffs are among all.
        beta: how closely it follows the minimum.
    """

    place: slice
    beta: float

    def soften(self, payoff: np.ndarray) -> np.ndarray:
        """Return -(1/beta) log mean exp(-beta phi), (...), of payoffs (..., m)."""
        part = payoff[..., self.place]
        minimum = part.min(-1)
        return minimum - np.log(np.exp(-self.beta * (part - minimum[..., None])).mean(-1)) / self.beta

    def weigh(self, payoff: np.ndarray) -> np.ndarray:
        """Return the derivatives of the soft minimum by its payoffs, which sum to 1."""
        part = payoff[self.place]
        powers = np.exp(-self.beta * (part - part.min()))
        return powers / powers.sum()


class SoftObjective:
    """An objective under a deployment prior (K,), ready to be maximized. It never changes: `with_margins` is another.

    Every metric of the language depends on recall and coverage only; a user's own objective is given all rates. Costs
    are divided by their units (`csst.maths.language.units`): values, payoffs and margins here are parts of these.
    beta: how closely soft minima follow the minimum, in units of what lies between chance and perfection.
    prior_covariance: covariance of the prior's error, (K, K); None where the prior is stated.
    """

    def __init__(
        self, objective: Objective, prior: np.ndarray, beta: float, prior_covariance: np.ndarray | None = None
    ) -> None:
        self.beta = beta
        #: balances as they may truly be, where the prior is estimated, (B, K)
        self.balances = None if prior_covariance is None else draw_balances(prior, prior_covariance, BALANCE_DRAWS)
        self.prior = torch.from_numpy(np.asarray(prior, dtype=np.float64))
        #: the objective as it was stated, and with its costs divided by their units
        self.stated = objective
        self.objective = objective = objective.divide_by_units(self.prior)
        #: the unit of the value, and the units of the constraints; () if all are 1
        self.value_unit, self.units = self.stated.measure_units(self.prior)
        payoff = objective.payoff(Confusion.uniform(self.prior))
        perfect = objective.payoff(Confusion(torch.eye(self.classes, dtype=torch.float64), self.prior))
        spans = (perfect - payoff).abs() * self.classes / (self.classes - 1)
        worst_cases = []
        places = [np.zeros(0, dtype=np.int64)]
        for domain, place in flatten_domain(objective.domain, len(payoff)):
            if isinstance(domain, NonNegative):
                places.append(np.arange(place.start, place.stop))
            elif not isinstance(domain, Simplex):
                raise InputError(f"a decision rule needs worst cases (Simplex) and constraints; found {domain}")
            elif place.stop > place.start:
                span = float(spans[place].mean())
                worst_cases.append(WorstCase(place, beta / (span if span > SMALLEST_SPAN else 1.0)))
        self.worst_cases = tuple(worst_cases)
        #: places of the constraints among the payoffs
        self.constraints = np.concatenate(places)
        #: by how much each constraint is to be more than met, (m,)
        self.margins = np.zeros(len(payoff))
        #: precision divides by a coverage of at least this
        self.least_coverage = SMALLEST_COVERAGE

    def with_margins(self, margins: np.ndarray | float, least_coverage: float | None = None) -> SoftObjective:
        """Return the same objective with constraints that are to be met by these margins, (m,) or one number.

        least_coverage: precisions divide by a coverage of at least this; None leaves it as it is.
        """
        _ = self.form  # found once for all copies
        objective = copy.copy(self)
        objective.margins = np.broadcast_to(np.asarray(margins, dtype=np.float64), self.margins.shape)
        if least_coverage is not None:
            objective.least_coverage = least_coverage
        return objective

    @property
    def classes(self) -> int:
        return len(self.prior)

    @property
    def has_constraints(self) -> bool:
        return len(self.constraints) > 0

    @property
    def by_margins(self) -> bool:
        """Whether recall and coverage say all that the objective reads: true of every sentence."""
        return self.objective.reads_margins

    @cached_property
    def form(self) -> MetricForm | None:
        """Utility and payoff as a form of class metrics, if they are one: then no autograd is needed."""
        return read_form(self.objective, self.prior.numpy())

    @cached_property
    def weighs_all(self) -> bool:
        """Whether the gain at uniform rates pays every class's recall, none less than `LEAST_SHARE` of another's."""
        weight = self.first_weights[0]
        return bool(weight.min() > LEAST_SHARE * weight.max())

    @cached_property
    def is_even(self) -> bool:
        """Whether a soft search finds the rule: no constraints, all classes count, neither precision nor coverage does.

        Soft decisions blur what few predictions of a class are worth; recall, F1 and Jaccard they estimate better than
        hard ones.
        """
        if self.form is not None and {"precision", "coverage"} & set(self.form.matrices):
            return False
        return self.weighs_all and not self.has_constraints

    @cached_property
    def reads_entries(self) -> bool:
        """Whether single wrong predictions count, beyond how often each class is predicted."""
        if self.by_margins:
            return False
        # At rates without any symmetry, for any weights of the payoffs.
        generator = torch.Generator().manual_seed(0)
        rates = torch.rand(self.classes, self.classes, generator=generator, dtype=torch.float64) + 0.1
        weights = torch.rand(len(self.margins), generator=generator, dtype=torch.float64) + 0.5
        per_row = self.gradient(rates / rates.sum(1, keepdim=True), weights.numpy()) / self.prior.numpy()[:, None]
        mistakes = per_row + np.where(np.eye(self.classes, dtype=bool), np.nan, 0.0)
        spread = np.nanmax(mistakes, 0) - np.nanmin(mistakes, 0)
        return bool(np.nanmax(spread) > 1e-9 * max(1e-300, float(np.abs(per_row).max())))

    @cached_property
    def first_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The gain before anything was measured: weights g of own recalls and prices h of predictions, both (K,).

        d/dR_ij [u + lambda . phi] = delta_ij g_j + pi_i h_j  at uniform rates and the first multipliers, so that the
        best rule is  argmax_j (g_j / pi_j) q_j + h_j.
        """
        uniform = Confusion.uniform(self.prior)
        prior = self.prior.numpy()
        per_row = self.gradient(uniform.rates, self.multipliers(uniform)) / prior[:, None]
        price = (per_row.sum(0) - np.diag(per_row)) / (self.classes - 1)
        return (np.diag(per_row) - price) * prior, price

    def gradient(self, rates: Tensor, multipliers: np.ndarray) -> np.ndarray:
        """Return d/dR_ij [u + lambda . phi] at smoothed rates, (K, K)."""
        epsilon = self.objective.epsilon
        leaf = ((1 - epsilon) * rates + epsilon / self.classes).detach().requires_grad_()
        with torch.enable_grad():
            utility, payoff = self.evaluate(make_unchecked(leaf, self.prior))
        if not (utility.requires_grad or payoff.requires_grad):
            raise InputError(f"{self.objective} does not depend on the predictions, so there is nothing to adjust")
        (slope,) = _differentiate(utility, payoff, multipliers, leaf)
        if not np.isfinite(slope).all():
            raise InputError(f"{self.objective} has a non-finite gradient: raise epsilon or rewrite the metric")
        return slope

    def evaluate(self, c: Confusion) -> tuple[Tensor, Tensor]:
        """Return utility and payoffs (m,) of a confusion."""
        return self.objective.utility(c), self.objective.payoff(c)

    def _evaluate_margins(
        self, recall: Tensor, coverage: Tensor, abstentions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.evaluate(confusion_from_margins(recall, coverage, self.prior, abstentions))

    def from_margins(self, recall: np.ndarray, coverage: np.ndarray, prices: Prices | None = None) -> Value:
        """Return the value for a recall (K,) and a coverage (K,); prices: None for none."""
        if self.form is not None:
            values = self.form.evaluate(recall, coverage, self.least_coverage)
            value, weights, slack = self._augment(values[0], values[1:], prices)
            slopes = self.form.pull_back(np.append(1.0, weights), recall, coverage, self.least_coverage)
            return Value(value, slopes, slack)
        return self._measure_by_autograd(confusion_from_margins, (recall, coverage), prices)

    def from_rates(self, rates: np.ndarray, prices: Prices | None = None) -> Value:
        """Return the value for all rates (K, K); prices: None for none."""
        return self._measure_by_autograd(make_unchecked, (rates,), prices)

    def _measure_by_autograd(
        self, make_confusion: Callable[..., Confusion], arrays: Sequence[np.ndarray], prices: Prices | None
    ) -> Value:
        """Return the value for the confusion of some arrays and the prior, with slopes by these arrays."""
        leaves = [torch.from_numpy(array).requires_grad_() for array in arrays]
        with torch.enable_grad():
            utility, payoff = self.evaluate(make_confusion(*leaves, self.prior))
        value, weights, slack = self._augment(float(utility.detach()), payoff.detach().numpy(), prices)
        return Value(value, _differentiate(utility, payoff, weights, *leaves), slack)

    def _augment(
        self, utility: float, payoff: np.ndarray, prices: Prices | None
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the augmented Lagrangian, its derivatives by the payoffs (m,), and the constraints' slack."""
        state = self.first_prices if prices is None else prices
        value = utility
        for worst_case in self.worst_cases:
            value += float(worst_case.soften(payoff))
        weights = self._weigh_worst_cases(payoff)
        slack = (payoff - self.margins)[self.constraints]
        if self.has_constraints:
            values = state.values[self.constraints]
            shortfall = np.maximum(0, values - state.penalty * slack)
            value -= float(shortfall @ shortfall - values @ values) / (2 * state.penalty)
            weights[self.constraints] = shortfall
        return float(value), weights, slack

    @property
    def first_prices(self) -> Prices:
        """Prices of 0, from which a search begins."""
        return Prices(np.zeros(len(self.margins)))

    def measure_margins(
        self, recall: np.ndarray, coverage: np.ndarray, abstentions: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the value and the largest miss of a constraint beyond its margin, for many classifiers at once.

        Args:
            recall: of every classifier, (B, K); the rates R_kk of one that may give no answer.
            coverage: of every classifier, (B, K).
            abstentions: how often each class gets no answer, (B, K); None for classifiers that always answer.

        Returns:
            The values (B,), with soft minima, and the misses (B,), 0 if all constraints are met.
        """
        if self.form is not None and abstentions is None:
            values = self.form.evaluate(recall, coverage, self.least_coverage)
            return self.judge_payoffs(values[:, 0], values[:, 1:])
        arrays = [recall, coverage] if abstentions is None else [recall, coverage, abstentions]
        points = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        utility, payoff = torch.func.vmap(self._evaluate_margins)(*points)
        return self.judge_payoffs(utility.numpy(), payoff.numpy())

    def judge_payoffs(self, utility: np.ndarray, payoff: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values with soft minima and largest misses, (B,) each, of utilities (B,) and payoffs (B, m)."""
        value = utility.copy()
        for worst_case in self.worst_cases:
            value += worst_case.soften(payoff)
        shortfall = (self.margins - payoff)[:, self.constraints]
        return value, np.maximum(0.0, shortfall.max(1, initial=0.0))

    def judge(self, c: Confusion) -> tuple[float, float]:
        """Return the value with soft minima, and the smallest slack of a constraint less its margin; 0 without any."""
        with torch.no_grad():
            utility, payoff = (values.numpy() for values in self.evaluate(c))
        value = float(self.judge_payoffs(utility[None], payoff[None])[0][0])
        slack = (payoff - self.margins)[self.constraints]
        return value, float(slack.min()) if self.has_constraints else 0.0

    def judge_slopes(self, c: Confusion) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of both numbers of `judge` by the rates, each (K, K)."""
        leaf = c.rates.detach().clone().requires_grad_()
        with torch.enable_grad():
            utility, payoff = self.evaluate(make_unchecked(leaf, self.prior))
        values = payoff.detach().numpy()
        (by_value,) = _differentiate(utility, payoff, self._weigh_worst_cases(values), leaf)
        nearest_weights = np.zeros(len(values))
        if self.has_constraints:
            nearest_weights[self.constraints[int((values - self.margins)[self.constraints].argmin())]] = 1.0
        (by_slack,) = _differentiate(0 * utility, payoff, nearest_weights, leaf)
        return by_value, by_slack

    def _weigh_worst_cases(self, payoff: np.ndarray) -> np.ndarray:
        weights = np.zeros(len(payoff))
        for worst_case in self.worst_cases:
            weights[worst_case.place] = worst_case.weigh(payoff)
        return weights

    def multipliers(self, c: Confusion, prices: Prices | None = None) -> np.ndarray:
        """Return lambda at these rates: the weights of the soft minima, and the constraints' prices, (m,)."""
        with torch.no_grad():
            weights = self._weigh_worst_cases(self.objective.payoff(c).numpy())
        return weights if prices is None else weights + prices.values

    def can_reach(self, margins: np.ndarray) -> bool:
        """Return whether coverages leave room for margins (m,): bounds on single classes that sum to 1 at most."""
        if self.form is None or "coverage" not in self.form.matrices:
            return True
        lower_bounds, upper_bounds = self.form.bound_coverage(self.constraints, margins)
        return bool(lower_bounds.sum() <= 1 + ROUNDING and upper_bounds.sum() >= 1 - ROUNDING)

    @property
    def with_known_balance(self) -> SoftObjective:
        """The same objective, as if the deployment prior were known."""
        objective = copy.copy(self)
        objective.balances = None
        return objective

    def measure_errors(self, rates: np.ndarray, worth: np.ndarray) -> np.ndarray:
        """Return standard errors of the constraints (`csst.rules.standard_errors`); 0 for other payoffs, (m,).

        Doubt about the deployment prior adds its own variance.

        Args:
            rates: R, (K, K).
            worth: n, how many labels each row of R is worth, (K,).
        """
        errors = self._measure_errors_of_rates(rates, worth)
        if self.balances is None or not self.has_constraints:
            return errors
        errors_of_balance = measure_balance_errors(self.objective, torch.from_numpy(rates), self.balances)
        errors[self.constraints] = np.hypot(errors[self.constraints], errors_of_balance[self.constraints])
        return errors

    def _measure_errors_of_rates(self, rates: np.ndarray, worth: np.ndarray) -> np.ndarray:
        errors = np.zeros(len(self.margins))
        if self.has_constraints and self.form is not None:
            errors[self.constraints] = measure_standard_errors(FormPayoffs(self.form, self.constraints), rates, worth)
        elif self.has_constraints:
            payoffs = AutogradPayoffs(self.objective, self.prior, self.constraints)
            errors[self.constraints] = measure_standard_errors(payoffs, rates, worth)
        return errors


def _differentiate(utility: Tensor, payoff: Tensor, weights: np.ndarray, *leaves: Tensor) -> list[np.ndarray]:
    """Return the derivatives of u + weights . phi by every leaf."""
    with torch.enable_grad():
        total = utility + torch.from_numpy(weights) @ payoff
    if not total.requires_grad:
        return [np.zeros(tuple(leaf.shape)) for leaf in leaves]
    slopes = torch.autograd.grad(total, leaves, retain_graph=True, materialize_grads=True)
    return [slope.numpy() for slope in slopes]
