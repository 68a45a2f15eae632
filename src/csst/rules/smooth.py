"""An objective as a smooth function of class rates: soft minima for worst cases, penalties for constraints.

min_k phi_k           ->   -(1/beta) log mean_k exp(-beta phi_k)           the mean for beta -> 0, the min for large
payoff psi >= 0       ->   -(1/2 rho) (max(0, mu - rho psi)^2 - mu^2)      augmented Lagrangian, price mu
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, confusion_from_margins, make_unchecked
from csst.maths.domains import NonNegative, Simplex, flatten_domain
from csst.maths.objectives import Objective
from csst.rules.metric_form import SMALLEST_COVERAGE, MetricForm, read_form
from csst.rules.standard_errors import AutogradPayoffs, FormPayoffs, Payoffs, measure_standard_errors

#: a worst case whose entries hardly move between chance and perfection is measured in its own units
SMALLEST_SPAN = 1e-3
#: a class whose recall is paid less than this part of another's does not count at uniform rates
LEAST_SHARE = 1e-3
#: rho of the augmented Lagrangian at first; it grows while a constraint stays missed
FIRST_PENALTY, MOST_PENALTY = 20.0, 2e4


@dataclass(frozen=True, eq=False)
class Value:
    """The smooth value, and its derivatives by recall (K,) and coverage (K,), or by all rates (K, K)."""

    value: float
    by_recall: np.ndarray
    by_coverage: np.ndarray
    by_rates: np.ndarray | None
    slack: np.ndarray


class SmoothObjective:
    """An objective under a deployment prior (K,), ready to be maximized.

    Every metric of the language depends on recall and coverage only; a user's own objective is given all rates.
    beta: how closely soft minima follow the minimum. prices, penalty: mu and rho of the constraints.
    """

    def __init__(self, objective: Objective, prior: np.ndarray, beta: float) -> None:
        self.objective, self.beta = objective, beta
        self.prior = torch.from_numpy(np.asarray(prior, dtype=np.float64))
        self.penalty = FIRST_PENALTY
        payoff = objective.payoff(Confusion.uniform(self.prior))
        self.blocks = flatten_domain(objective.domain, len(payoff))
        for domain, _ in self.blocks:
            if not isinstance(domain, (Simplex, NonNegative)):
                raise InputError(f"a decision rule needs worst cases (Simplex) and constraints; found {domain}")
        perfect = objective.payoff(Confusion(torch.eye(self.classes, dtype=torch.float64), self.prior))
        span = (perfect - payoff).abs() * self.classes / (self.classes - 1)
        means = [float(span[at].mean()) if at.stop > at.start else 1.0 for _, at in self.blocks]
        #: by how much the entries of each block move between chance and perfection
        self.spans = [mean if mean > SMALLEST_SPAN else 1.0 for mean in means]
        self.prices = np.zeros(len(payoff))
        #: by how much each constraint is to be more than met
        self.margins = np.zeros(len(payoff))
        #: precision divides by a coverage of at least this
        self.least_coverage = SMALLEST_COVERAGE

    @property
    def classes(self) -> int:
        return len(self.prior)

    @cached_property
    def by_margins(self) -> bool:
        """Whether recall and coverage say all that the objective reads: true of every sentence."""
        return self.objective.reads_margins

    @cached_property
    def form(self) -> MetricForm | None:
        """Utility and payoff as a linear form of class metrics, where they are: then no autograd is needed."""
        return read_form(self.objective, self.prior.numpy())

    @cached_property
    def has_constraints(self) -> bool:
        return any(isinstance(domain, NonNegative) and at.stop > at.start for domain, at in self.blocks)

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
        per_row = self._gradient_at_random() / self.prior.numpy()[:, None]
        off = per_row + np.where(np.eye(self.classes, dtype=bool), np.nan, 0.0)
        spread = np.nanmax(off, 0) - np.nanmin(off, 0)
        return bool(np.nanmax(spread) > 1e-9 * max(1e-300, float(np.abs(per_row).max())))

    def _gradient_at_random(self) -> np.ndarray:
        """d/dR of utility plus the sum of all payoffs, at rates without any symmetry, (K, K)."""
        generator = torch.Generator().manual_seed(0)
        rates = torch.rand(self.classes, self.classes, generator=generator, dtype=torch.float64) + 0.1
        weights = torch.rand(len(self.prices), generator=generator, dtype=torch.float64) + 0.5
        return self.gradient(rates / rates.sum(1, keepdim=True), weights)

    def gradient(self, rates: Tensor, multipliers: Tensor) -> np.ndarray:
        """d/dR_ij [u + lambda . phi] at smoothed rates, (K, K)."""
        epsilon = self.objective.epsilon
        with torch.enable_grad():
            leaf = ((1 - epsilon) * rates + epsilon / self.classes).detach().requires_grad_()
            c = make_unchecked(leaf, self.prior)
            game = self.objective.utility(c) + multipliers @ self.objective.payoff(c)
            if not game.requires_grad:
                raise InputError(f"{self.objective} does not depend on the predictions, so there is nothing to adjust")
            (slope,) = torch.autograd.grad(game, leaf)
        if not torch.isfinite(slope).all():
            raise InputError(f"{self.objective} has a non-finite gradient: raise epsilon or rewrite the metric")
        return slope.numpy()

    @cached_property
    def first_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The gain before anything was measured: weights g of own recalls and prices h of predictions, both (K,).

        d/dR_ij [u + lambda . phi] = delta_ij g_j + pi_i h_j  at uniform rates and the first multipliers, so that the
        best rule is  argmax_j (g_j / pi_j) q_j + h_j.
        """
        uniform, prior = Confusion.uniform(self.prior), self.prior.numpy()
        per_row = self.gradient(uniform.rates, self.multipliers(uniform)) / prior[:, None]
        price = (per_row.sum(0) - np.diag(per_row)) / (self.classes - 1)
        return (np.diag(per_row) - price) * prior, price

    def from_margins(self, recall: np.ndarray, coverage: np.ndarray) -> Value:
        """The value for a recall (K,) and a coverage (K,)."""
        if self.form is not None:
            return self._from_form(self.form, recall, coverage)
        r = torch.from_numpy(recall).requires_grad_()
        q = torch.from_numpy(coverage).requires_grad_()
        with torch.enable_grad():
            value, slack = self._value(confusion_from_margins(r, q, self.prior))
            by_recall, by_coverage = torch.autograd.grad(value, (r, q), allow_unused=True)
        zero = np.zeros(self.classes)
        return Value(
            float(value.detach()),
            zero if by_recall is None else by_recall.numpy(),
            zero if by_coverage is None else by_coverage.numpy(),
            None,
            slack,
        )

    def _from_form(self, form: MetricForm, recall: np.ndarray, coverage: np.ndarray) -> Value:
        both = form.evaluate(recall, coverage, self.least_coverage)
        total, payoff, weights = both[0], both[1:], np.zeros(len(both) - 1)
        slack = []
        for (domain, at), span in zip(self.blocks, self.spans, strict=True):
            part = payoff[at]
            if not len(part):
                continue
            if isinstance(domain, Simplex):
                beta = self.beta / span
                low = part.min()
                raised = np.exp(-beta * (part - low))
                total += low - np.log(raised.mean()) / beta
                weights[at] = raised / raised.sum()
            else:
                part = part - self.margins[at]
                short = np.maximum(0, self.prices[at] - self.penalty * part)
                total -= (short @ short - self.prices[at] @ self.prices[at]) / (2 * self.penalty)
                weights[at] = short
                slack.append(part)
        by_recall, by_coverage = form.pull_back(np.append(1.0, weights), recall, coverage, self.least_coverage)
        joined = np.concatenate(slack) if slack else np.zeros(0)
        return Value(float(total), by_recall, by_coverage, None, joined)

    def from_rates(self, rates: np.ndarray) -> Value:
        """The value for all rates (K, K)."""
        leaf = torch.from_numpy(rates).requires_grad_()
        with torch.enable_grad():
            value, slack = self._value(make_unchecked(leaf, self.prior))
            (slope,) = torch.autograd.grad(value, leaf)
        return Value(float(value.detach()), np.diag(slope.numpy()), np.zeros(self.classes), slope.numpy(), slack)

    def _value(self, c: Confusion) -> tuple[Tensor, np.ndarray]:
        total, payoff = self.objective.utility(c), self.objective.payoff(c)
        slack = []
        for (domain, at), span in zip(self.blocks, self.spans, strict=True):
            part = payoff[at]
            if not len(part):
                continue
            if isinstance(domain, Simplex):
                total = total + soft_minimum(part, self.beta / span)
            else:
                prices, part = torch.from_numpy(self.prices[at]), part - torch.from_numpy(self.margins[at])
                total = total - ((prices - self.penalty * part).clamp(min=0).square() - prices.square()).sum() / (
                    2 * self.penalty
                )
                slack.append(part.detach().numpy())
        return total, np.concatenate(slack) if slack else np.zeros(0)

    def with_margins(self, margins: np.ndarray | float = 0.0) -> SmoothObjective:
        """The same objective with constraints that are to be met by these margins, and without prices.

        Args:
            margins: one for every payoff, (m,), or one number.

        Returns:
            A new objective, which a search may change.
        """
        _ = self.form  # found once for all copies
        other = copy.copy(self)
        other.penalty = FIRST_PENALTY
        other.prices = np.zeros(len(self.prices))
        other.margins = np.broadcast_to(np.asarray(margins, dtype=np.float64), self.prices.shape).copy()
        return other

    def measure_margins(self, recall: np.ndarray, coverage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value and the largest miss of a constraint beyond its margin, for many classifiers at once.

        Args:
            recall: of every classifier, (B, K).
            coverage: likewise, (B, K).

        Returns:
            The values (B,), with soft minima, and the misses (B,), 0 where all constraints are met.
        """
        if self.form is not None:
            both = self.form.evaluate(recall, coverage, self.least_coverage)
            value, payoff = both[:, 0].copy(), both[:, 1:]
        else:
            points = torch.from_numpy(np.ascontiguousarray(recall)), torch.from_numpy(np.ascontiguousarray(coverage))
            utility, payoffs = torch.func.vmap(self._utility_and_payoff)(*points)
            value, payoff = utility.numpy().copy(), payoffs.numpy()
        miss = np.zeros(len(value))
        for (domain, at), span in zip(self.blocks, self.spans, strict=True):
            part = payoff[:, at]
            if not part.shape[1]:
                continue
            if isinstance(domain, Simplex):
                beta = self.beta / span
                low = part.min(1)
                value += low - np.log(np.exp(-beta * (part - low[:, None])).mean(1)) / beta
            else:
                miss = np.maximum(miss, (self.margins[at] - part).max(1))
        return value, miss

    def _utility_and_payoff(self, recall: Tensor, coverage: Tensor) -> tuple[Tensor, Tensor]:
        c = confusion_from_margins(recall, coverage, self.prior)
        return self.objective.utility(c), self.objective.payoff(c)

    @property
    def constraints(self) -> np.ndarray:
        """The places of the constraints among the payoffs."""
        places = [np.arange(at.start, at.stop) for domain, at in self.blocks if isinstance(domain, NonNegative)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *places])

    def measure_errors(self, rates: np.ndarray, worth: np.ndarray, places: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return standard errors of the payoffs at these places (`csst.rules.standard_errors`); 0 elsewhere, (m,).

        Args:
            rates: R, (K, K).
            worth: n, how many labels each row of R is worth, (K,).
            places: of constraints among the payoffs.
        """
        errors = np.zeros(len(self.prices))
        if not len(places):
            return errors
        payoffs: Payoffs = AutogradPayoffs(self.objective, self.prior, places)
        if self.form is not None:
            payoffs = FormPayoffs(self.form, places)
        errors[places] = measure_standard_errors(payoffs, rates, worth, len(places))
        return errors

    def raise_prices(self, slack: np.ndarray, before: float) -> float:
        """mu <- max(0, mu - rho psi), and rho grows unless the violation fell by half; the largest violation."""
        places = self.constraints
        self.prices[places] = np.maximum(0, self.prices[places] - self.penalty * slack)
        violation = float(np.maximum(0, -slack).max(initial=0))
        if violation > before / 2:
            self.penalty = min(MOST_PENALTY, 4 * self.penalty)
        return violation

    def judge(self, c: Confusion) -> tuple[Tensor, Tensor]:
        """The value with soft minima, and the smallest slack of a constraint less its margin; 0 without constraints."""
        total, payoff = self.objective.utility(c), self.objective.payoff(c)
        slack = [payoff.new_zeros(0)]
        for (domain, at), span in zip(self.blocks, self.spans, strict=True):
            if isinstance(domain, Simplex) and at.stop > at.start:
                total = total + soft_minimum(payoff[at], self.beta / span)
            elif isinstance(domain, NonNegative):
                slack.append(payoff[at] - torch.from_numpy(self.margins[at]))
        joined = torch.cat(slack)
        return total, joined.min() if len(joined) else payoff.new_zeros(())

    def judge_slopes(self, c: Confusion) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives of both numbers of `judge` by the rates, each (K, K)."""
        leaf = c.rates.detach().clone().requires_grad_()
        with torch.enable_grad():
            numbers = self.judge(make_unchecked(leaf, self.prior))
            slopes = [
                torch.autograd.grad(number, leaf, retain_graph=True)[0].numpy() if number.requires_grad else None
                for number in numbers
            ]
        zero = np.zeros(tuple(leaf.shape))
        return zero if slopes[0] is None else slopes[0], zero if slopes[1] is None else slopes[1]

    def multipliers(self, c: Confusion) -> Tensor:
        """lambda at these rates: the weights of the soft minima, and the constraints' prices."""
        payoff, prices = self.objective.payoff(c).detach(), torch.from_numpy(self.prices.copy())
        for (domain, at), span in zip(self.blocks, self.spans, strict=True):
            if isinstance(domain, Simplex):
                prices[at] = torch.softmax(-self.beta / span * payoff[at], 0)
        return prices


def soft_minimum(values: Tensor, beta: float) -> Tensor:
    """-(1/beta) log mean exp(-beta v)."""
    return -(torch.logsumexp(-beta * values, 0) - float(np.log(len(values)))) / beta
