"""What is to be maximized: a utility and a payoff, played against multipliers.

    max_F min_{lambda in domain}  u(C[F]) + lambda . phi(C[F])

The author of a metric writes u and phi; the gain matrix is their gradient (see `csst.maths.gain`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion
from csst.maths.domains import Domain, Product

MetricPrior = Literal["train", "evaluation"]
METRIC_PRIORS = ("train", "evaluation")


class Objective(ABC):
    """A goal to maximize. Subclasses define `utility`, and `payoff` with its `domain` for worst cases and constraints.

    class TailRecall(Objective):
        def utility(self, c):
            return c.recall[-3:].mean()
    """

    #: where lambda lives; the default is no multipliers at all
    domain: Domain = Product()
    #: the gain is derived at R~ = (1 - epsilon) R + epsilon / K, so that it is finite for a class at recall 0
    epsilon: float = 1e-3
    #: the class prior under which the gain is derived: the training data's (the paper) or the evaluation data's
    metric_prior: MetricPrior = "train"
    #: whether the objective reads only recall and coverage of a confusion, as every sentence does
    reads_margins: bool = False
    #: whether the classifier may abstain: give no answer, and leave an example to a human
    abstains: bool = False
    #: the confidence with which the constraints must hold; None asks for an estimate only
    confidence: float | None = None
    #: the column of the groups of rows that the objective is about; None if it is about all rows
    column: str | None = None
    #: a gain matrix to use instead of deriving one
    constant_gain: Tensor | None = None

    @property
    def ungrouped(self) -> Objective:
        """The objective about all rows instead of their groups."""
        return self

    @property
    def unpromised(self) -> Objective:
        """The objective without a confidence."""
        return self

    @abstractmethod
    def utility(self, c: Confusion) -> Tensor:
        """Return u(C), the part of the objective that is not under a min (paper, Sec. 2.1, Eqs. 3 and 4).

        Args:
            c: the classifier's confusion, K classes.

        Returns:
            A scalar, differentiable in `c.rates`.
        """

    def payoff(self, c: Confusion) -> Tensor:
        """Return phi(C), the entries of worst cases, then the constraints (paper, Sec. 2.1, Eqs. 3 and 4).

        Args:
            c: the classifier's confusion, K classes.

        Returns:
            One payoff for each multiplier, (m,), differentiable in `c.rates`; a constraint is met at >= 0.
        """
        return c.rates.new_zeros(0)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each multiplier; may be left empty."""
        return ()

    def value(self, c: Confusion) -> Tensor:
        """Return the utility with every min evaluated: the number to report, without the constraints.

        Args:
            c: the classifier's confusion, K classes.

        Returns:
            A scalar.
        """
        return (self.utility(c) + self.domain.worst(self.payoff(c))).detach()

    def as_stated(self, value: float) -> float:
        """Return a value as the user states it: a goal that is minimized is kept as the maximum of its negative.

        Args:
            value: see `value`.

        Returns:
            The number for reports.
        """
        return value

    def describe_value(self, value: float) -> str:
        """Return a value as the user states it, with its unit if it has one.

        Args:
            value: see `value`.

        Returns:
            The number to three digits after the point.
        """
        return f"{self.as_stated(value):.3f}"

    def measure_units(self, prior: Tensor) -> tuple[float, tuple[float, ...]]:
        """Return the units of the value and of every constraint's slack: 1 and () if all are 1, as without costs.

        Args:
            prior: pi, (K,).

        Returns:
            What counts as 1 of the value, and of each slack.
        """
        return 1.0, ()

    def divide_by_units(self, prior: Tensor) -> Objective:
        """Return the objective with its value and its constraints divided by their units.

        Args:
            prior: pi, (K,).

        Returns:
            The objective itself if all units are 1.
        """
        return self

    def slack(self, c: Confusion) -> Tensor:
        """Return by how much each constraint is met; negative if it is missed.

        Args:
            c: the classifier's confusion, K classes.

        Returns:
            One number per constraint, (m',) with m' <= m; empty without constraints.
        """
        return self.domain.slack(self.payoff(c)).detach()

    def bind(
        self, classes: int, class_names: Sequence[str] | None = None, groups: Mapping[str, Sequence[Any]] | None = None
    ) -> Objective:
        """Return the objective for a set of classes; itself if it names no classes or groups.

        Args:
            classes: K.
            class_names: names that the objective may use, K of them.
            groups: the classes of each group, by index or name.

        Returns:
            The bound objective.
        """
        return self

    def bind_prior(self, train_prior: Tensor) -> Objective:
        """Return the objective for the classes of a training prior; by default its rarest classes are the tail.

        Args:
            train_prior: pi, (K,).

        Returns:
            The bound objective.
        """
        return self.bind(len(train_prior))

    def __str__(self) -> str:
        return type(self).__name__


def lagrangian(objective: Objective, multipliers: Tensor, c: Confusion) -> Tensor:
    """Return u(C) + lambda . phi(C), the value of the game (paper, Sec. 2.1, Eqs. 3 and 4).

    Args:
        objective: defines u and phi.
        multipliers: lambda, (m,).
        c: the classifier's confusion.

    Returns:
        A scalar, differentiable in `c.rates`.
    """
    utility = objective.utility(c)
    payoff = payoff_of(objective, c)
    if not isinstance(utility, Tensor) or utility.ndim != 0:
        raise InputError(f"the utility of {objective} must be a scalar tensor; found {_describe(utility)}")
    if payoff.shape != multipliers.shape:
        raise InputError(
            f"{objective} has {len(payoff)} payoffs and needs a multiplier for each; "
            f"found multipliers of shape {tuple(multipliers.shape)}"
        )
    return utility + multipliers @ payoff


def check_objective(objective: Any) -> Objective:
    """Return the objective, or raise an error; text is refused, since only `csst.objective` reads sentences."""
    if isinstance(objective, Objective):
        return objective
    kind = f"the text {objective!r}" if isinstance(objective, str) else type(objective).__name__
    raise InputError(f'an Objective is needed, as csst.objective("max min(recall)") makes it; found {kind}')


def payoff_of(objective: Objective, c: Confusion) -> Tensor:
    """Return phi(C), (m,); raise an error unless it is a vector of finite numbers."""
    payoff = objective.payoff(c)
    if not isinstance(payoff, Tensor) or payoff.ndim != 1:
        raise InputError(f"the payoff of {objective} must be a vector tensor; found {_describe(payoff)}")
    if not torch.isfinite(payoff).all():
        raise InputError(f"the payoff of {objective} is not finite: {payoff.tolist()}; check for a division by zero")
    return payoff


def _describe(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
