"""The examples a rule is fitted on, and how rules stand on them for an objective, many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from csst.confusion import Confusion, check_prior, confusion_counts, refuse_empty_classes
from csst.errors import InputError
from csst.language import Sentence
from csst.language import objective as read_objective
from csst.objectives import Objective, payoff_of, played
from csst.posthoc.rule import check_probs, scored

#: differences of value or violation below this are rounding
ROUNDING = 1e-10


class Measured(NamedTuple):
    """How B confusions stand: utility (B,), payoff (B, P), and keys (B, 3) whose lexicographic order is the ranking.

    A key is (-violation, value, tie). The first two are the order of `csst.selection`. The tie looks at all entries
    of a worst case instead of the worst alone, and at all misses instead of the largest, so that a search can move
    where the first two are flat.
    """

    utility: Tensor
    payoff: Tensor
    keys: Tensor

    def best(self) -> int:
        """The first of the highest keys."""
        among = torch.arange(len(self.keys))
        for column in self.keys.T:
            among = among[column[among] == column[among].max()]
        return int(among[0])


@dataclass(frozen=True, eq=False)
class Problem:
    """Validation probabilities (N, K) and labels, and the objective bound to the classes."""

    probs: Tensor
    labels: Tensor
    objective: Objective
    tolerance: float

    @classmethod
    def of(cls, probs: Any, labels: Any, objective: Objective | str, train_prior: Any, tolerance: float) -> Problem:
        """Everything checked; without a training prior the shares of the labels take its place."""
        values = check_probs(probs)
        classes = values.shape[1]
        totals = confusion_counts(labels, labels, classes).sum(1)
        if int(totals.sum()) != len(values):
            raise InputError(f"there must be one label per row of probs; found {int(totals.sum())} for {len(values)}")
        refuse_empty_classes(totals, None, "a post-hoc rule", "the validation examples")
        if not 0 <= tolerance < float("inf"):
            raise InputError(f"tolerance is the miss of a constraint that is forgiven, >= 0; found {tolerance!r}")
        prior = totals / totals.sum() if train_prior is None else check_prior(train_prior, "the training prior")
        if len(prior) != classes:
            raise InputError(f"the training prior has {len(prior)} classes and probs {classes}")
        bound = read_objective(objective).bound_to(prior.double().cpu())
        if bound.constant_gain is not None and len(bound.constant_gain) != classes:
            raise InputError(f"the gain matrix has {len(bound.constant_gain)} classes and probs {classes}")
        return cls(values, torch.as_tensor(labels).long().cpu(), bound, tolerance)

    @property
    def classes(self) -> int:
        return self.probs.shape[1]

    @cached_property
    def totals(self) -> Tensor:
        """The number of examples of each class."""
        return torch.bincount(self.labels, minlength=self.classes).double()

    @cached_property
    def prior(self) -> Tensor:
        """The class shares under which the objective is measured: those of these examples."""
        return self.totals / self.totals.sum()

    @cached_property
    def behind(self) -> Tensor:
        """The class prior behind the probabilities: under which they are right on average for each class.

        The weights w that make norm(w p) fit these labels best solve   mean_x norm(w p)_j = share of label j,   and
        the prior is share / w. It is the training prior for a model of plain cross-entropy, and something else for
        one that was trained to favour some classes.
        """
        weights = torch.ones(self.classes, dtype=torch.float64)
        for _ in range(100):
            posterior = self.probs * weights
            mean = (posterior / posterior.sum(1, keepdim=True).clamp(min=1e-300)).mean(0)
            step = self.prior / mean.clamp(min=1e-12)
            weights = weights * step
            if float(step.log().abs().max()) < 1e-3:
                break
        shares = self.prior / weights.clamp(1e-8, 1e8)
        return shares / shares.sum()

    @property
    def odds(self) -> Tensor:
        """r = prior here / prior behind the probabilities: norm(r p) fits these examples."""
        return self.prior / self.behind

    @cached_property
    def by_margins(self) -> bool:
        """Whether recall and coverage say all that the objective reads: true of every metric of the language."""
        return isinstance(self.objective, Sentence)

    @cached_property
    def has_offsets(self) -> bool:
        """Whether the objective looks at wrong predictions too, so that its best rule adds an offset to a column."""
        uniform = Confusion.uniform(self.prior)
        multipliers = torch.ones(len(payoff_of(self.objective, uniform)), dtype=torch.float64)
        weights = self.derivative(multipliers, uniform)
        return not torch.equal(weights, torch.diag(weights.diagonal()))

    def part(self, index: Tensor) -> Problem:
        """The same problem on some of the examples."""
        return Problem(self.probs[index], self.labels[index], self.objective, self.tolerance)

    def counts(self, matrix: Tensor) -> Tensor:
        """Confusion counts of argmax_j (G^T p)_j, float64."""
        flat = self.labels * self.classes + scored(self.probs, matrix).argmax(1)
        return torch.bincount(flat, minlength=self.classes**2).reshape(self.classes, -1).double()

    def confusion(self, counts: Tensor) -> Confusion:
        return unchecked(counts / self.totals[:, None], self.prior)

    def derivative(self, multipliers: Tensor, confusion: Confusion) -> Tensor:
        """G_ij = (1/pi_i) d/dR_ij [u + lambda . phi] at the smoothed rates: the best response is argmax_j (G^T p)_j.

        Unlike a training gain it is taken under the prior of these examples, pi is the prior behind the
        probabilities, and no row is shifted.
        """
        epsilon = self.objective.epsilon
        with torch.enable_grad():
            rates = ((1 - epsilon) * confusion.rates + epsilon / self.classes).detach().requires_grad_()
            game = played(self.objective, multipliers, unchecked(rates, confusion.prior))
            if not game.requires_grad:
                raise InputError(f"{self.objective} does not depend on the predictions, so there is nothing to adjust")
            (weights,) = torch.autograd.grad(game, rates)
        if not torch.isfinite(weights).all():
            raise InputError(f"{self.objective} has a non-finite gradient: raise epsilon or rewrite the metric")
        return weights / self.behind[:, None]

    def measure(self, counts: Tensor) -> Measured:
        """How confusion counts (B, K, K) stand."""
        if self.by_margins:
            return self.measure_margins(counts.diagonal(dim1=1, dim2=2), counts.sum(1))
        return self._measured(lambda rates: unchecked(rates, self.prior), counts / self.totals[:, None])

    def key(self, counts: Tensor) -> tuple[float, ...]:
        """The key of one confusion's counts (K, K)."""
        return tuple(self.measure(counts[None]).keys[0].tolist())

    def measure_margins(self, hits: Tensor, predicted: Tensor) -> Measured:
        """How confusions with these diagonals (B, K) and column sums (B, K) stand; only where `by_margins`."""
        shares = predicted / self.totals.sum()
        return self._measured(lambda r, c: from_margins(r, c, self.prior), hits / self.totals, shares)

    @torch.no_grad()
    def _measured(self, build: Any, *parts: Tensor) -> Measured:
        def one(*parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            c, domain = build(*parts), self.objective.domain
            utility, payoff = self.objective.utility(c), self.objective.payoff(c)
            missed = (-domain.slack(payoff)).clamp(min=0)
            missed = torch.cat([missed, missed.new_zeros(1)])
            missed = torch.where(missed > self.tolerance, missed, 0.0)
            shared = domain.worst_cases(len(payoff)).to(payoff)
            tie = utility + (shared * payoff).sum() / shared.sum().clamp(min=1) - missed.sum()
            return utility, payoff, torch.stack([-missed.max(), utility + domain.worst(payoff), tie])

        def each() -> tuple[Tensor, ...]:
            rows = [one(*row) for row in zip(*parts, strict=True)]
            return tuple(torch.stack(column) for column in zip(*rows, strict=True))

        try:
            utility, payoff, keys = torch.vmap(one)(*parts) if len(parts[0]) > 1 else each()
        except (RuntimeError, TypeError):
            # An objective of the user's may do what cannot be batched, such as a decision by a value.
            utility, payoff, keys = each()
        keys = (keys / ROUNDING).round() * ROUNDING
        # Where the objective is undefined for a rule, such as the precision of a class it never names, it ranks last.
        return Measured(utility, payoff, torch.nan_to_num(keys, nan=-float("inf"), neginf=-float("inf")))


def unchecked(rates: Tensor, prior: Tensor) -> Confusion:
    """A confusion of rates known to be right: checks take time, and they look at values, which batching cannot do."""
    c = Confusion.__new__(Confusion)
    vars(c).update(rates=rates, prior=prior)
    return c


def from_margins(recall: Tensor, coverage: Tensor, prior: Tensor) -> Confusion:
    """A stand-in with this recall and coverage: each metric reads a confusion through these and the prior only.

    The matrices are views of one row, right on the diagonal alone, so that many classes cost K numbers and not K^2.
    """
    square = (len(prior), len(prior))
    c = unchecked(recall.expand(square), prior)
    vars(c).update(matrix=(prior * recall).expand(square), coverage=coverage)
    return c
