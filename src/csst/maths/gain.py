"""The gain matrix: what one prediction is worth now, and how a loss sees it.

    G_ij = (1/pi_i) d/dR_ij [u + lambda . phi]        the gradient of the objective, at the smoothed rates R~
    G    = M D,  D = diag(G_11, ..., G_KK)            the split of the hybrid loss (paper, Sec. 2.2, Eq. 5 [loss:hyb])

Canonical form of a *derived* gain: a constant added to a row of G changes no Bayes rule, so row i gets the
smallest c_i >= 0 that makes every entry >= 0 and G_ii >= .05 max_j G_ij, so that M, which divides by D, stays small.
The paper's gains already satisfy this unless a multiplier is many times its objective's gain. A row of zeros (a class
the objective is indifferent to) becomes 1e-6 of the largest entry of G.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, check_prior
from csst.maths.objectives import METRIC_PRIORS, MetricPrior, Objective, check_objective, lagrangian

#: smallest diagonal entry, as a part of the largest entry of its row
SMALLEST_DIAGONAL = 0.05
#: entries of a row of zeros, as a part of the largest entry of G
SMALLEST_ROW = 1e-6


class Gain:
    """A gain matrix: G_ij is the reward for predicting j when the truth is i (paper, Sec. 2.1, Eq. 2 [eq:csl-obj]).

    `entries` holds the vector (K,) of a diagonal G, else the matrix (K, K).

    Args:
        values: (K, K), non-negative with a positive diagonal, or (K,) for the diagonal of a matrix that is 0 elsewhere;
            a tensor keeps its dtype.
    """

    entries: Tensor

    def __init__(self, values: Any) -> None:
        if isinstance(values, Tensor) and values.is_floating_point():
            entries = values.detach()
        else:
            entries = as_float64(values, "a gain matrix").detach()
        shape = tuple(entries.shape)
        if len(shape) not in (1, 2) or len(set(shape)) != 1 or shape[0] < 2:
            raise InputError(
                f"a gain matrix has shape (K, K) with K >= 2, or (K,) for its diagonal if the rest is 0; found {shape}"
            )
        if not torch.isfinite(entries).all():
            raise InputError("a gain matrix must be finite; found NaN or infinite entries")
        diagonal = entries if entries.ndim == 1 else entries.diagonal()
        if entries.ndim == 2 and (entries < 0).any():
            row, column = (entries < 0).nonzero()[0].tolist()
            raise InputError(
                f"a gain matrix must be non-negative; G[{row},{column}] = {float(entries[row, column]):.4g}: adding a "
                "constant to that row changes no Bayes rule"
            )
        classes = (diagonal <= 0).nonzero().flatten().tolist()
        if classes:
            raise InputError(
                f"the diagonal of a gain matrix must be positive, the loss divides by D = diag(G) (G = M D); "
                f"G_ii <= 0 for classes {classes}: add a constant to those rows, which changes no Bayes rule"
            )
        is_zero_elsewhere = entries.ndim == 2 and int(torch.count_nonzero(entries)) == len(entries)
        self.entries = diagonal.clone() if is_zero_elsewhere else entries

    def __repr__(self) -> str:
        return f"Gain({self.entries!r})"

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self.entries.shape[0]

    @property
    def is_diagonal(self) -> bool:
        """Whether G is 0 off its diagonal, so that only the diagonal is stored."""
        return self.entries.ndim == 1

    @property
    def matrix(self) -> Tensor:
        """G, (K, K); built at every call if G is diagonal."""
        return torch.diag(self.entries) if self.is_diagonal else self.entries

    @property
    def diagonal(self) -> Tensor:
        """D_ii = G_ii, (K,) (paper, Sec. 2.2)."""
        return self.entries if self.is_diagonal else self.entries.diagonal()

    def describe_reversed(self, class_names: Sequence[str]) -> str:
        """Describe the row in which a mistake pays most compared with a hit; "" if no mistake pays more than a hit.

        Args:
            class_names: class names in order, K of them.

        Returns:
            A clause such as "row of class 'a': 0.05 for a hit, 1 for the answer 'b'; 1 of 3 rows in all".
        """
        if self.is_diagonal:
            return ""
        matrix = self.scaled.cpu()
        ratio = matrix.amax(1) / matrix.diagonal()
        count = int((ratio > 1).sum())
        if not count:
            return ""
        row = int(ratio.argmax())
        answer = int(matrix[row].argmax())
        pays = f"{float(matrix[row, row]):.2g} for a hit, {float(matrix[row, answer]):.2g} for the answer"
        return (
            f"row of class {class_names[row]!r}: {pays} {class_names[answer]!r}; {count} of {len(matrix)} rows in all"
        )

    @cached_property
    def mixing(self) -> Tensor:
        """M = G D^-1, (K, K), with ones on its diagonal (paper, Sec. 2.2)."""
        return self.matrix / self.diagonal

    def optimal_prediction(self, target: Tensor) -> Tensor:
        """Return norm(G^T p), the softmax that is optimal for a target (paper, Sec. 4 [prop:prop2-narashimhan]).

        For a diagonal G and a hard label it is the one-hot label itself.

        Args:
            target: class indices (B,) or distributions (B, K).

        Returns:
            Distributions (B, K).
        """
        target = check_target(target, self.classes)
        return self.optimal(target.to(self.entries.device), self.scaled).to(self.entries.dtype)

    def optimal(self, target: Tensor, like: Tensor) -> Tensor:
        """Return `optimal_prediction` of a checked target, from numbers cached by dtype and device.

        Args:
            target: class indices (B,) or distributions (B, K).
            like: a tensor with the wanted dtype and device, of any shape.

        Returns:
            Distributions (B, K).
        """
        if not target.is_floating_point():
            if self.is_diagonal:
                return torch.nn.functional.one_hot(target.to(like.device), self.classes).to(like.dtype)
            return self.rows_of("optimal_rows", target, like)
        weights = self.transpose_apply(target, self.cached_as("scaled", like))
        return weights / weights.sum(-1, keepdim=True)

    def transpose_apply(self, target: Tensor, entries: Tensor) -> Tensor:
        """Return G^T p from the entries of G or of a multiple of G.

        Args:
            target: distributions p, (..., K).
            entries: (K,) if G is diagonal, else (K, K).

        Returns:
            G^T p, (..., K).
        """
        target = target.to(entries.dtype)
        return target * entries if entries.ndim == 1 else target @ entries

    def posterior(self, softmax: Tensor) -> Tensor:
        """Return the class probabilities p of a model trained under G, from norm(G^T p) = softmax.

        If no distribution has such a softmax (only for a non-diagonal G), negative entries of the solution become 0.

        Args:
            softmax: distributions, (..., K).

        Returns:
            Class probabilities, (..., K).
        """
        if self.is_diagonal:
            weights = softmax / self.cached_as("scaled", softmax)
        else:
            products = self.transpose_apply(softmax, self.cached_as("inverse", softmax))
            weights = products.clamp(min=torch.finfo(softmax.dtype).tiny)
        return weights / weights.sum(-1, keepdim=True)

    @cached_property
    def inverse(self) -> Tensor:
        """The inverse of a non-diagonal G / max G (the pseudo-inverse if G is singular), float64."""
        return torch.linalg.pinv(self.scaled)

    @property
    def softmax_inverse(self) -> Tensor | None:
        """Factor from a network's softmax back to class probabilities, (K,) or (K, K) on the CPU; None for G = c I."""
        if not self.is_diagonal:
            return self.inverse.cpu()
        if bool((self.entries == self.entries[0]).all()):
            return None
        return 1 / self.scaled.cpu()

    @cached_property
    def optimal_rows(self) -> Tensor:
        """norm(G^T e_y) for every label y, float64."""
        rows = torch.diag(torch.ones_like(self.scaled)) if self.is_diagonal else self.scaled
        return rows / rows.sum(1, keepdim=True)

    @cached_property
    def log_diagonal(self) -> Tensor:
        """log D up to a constant, float64; a constant cancels in softmax(s - log D)."""
        return (self.scaled if self.is_diagonal else self.scaled.diagonal()).log()

    @cached_property
    def scaled(self) -> Tensor:
        """The entries of G / max G in float64, so that a common factor can neither overflow nor underflow."""
        entries = self.entries.to(torch.float64)
        return entries / entries.max()

    def cached_as(self, name: str, like: Tensor) -> Tensor:
        """Return a property of the gain in another dtype and on another device, cached.

        Args:
            name: name of the property: `mixing`, `log_diagonal`, ...
            like: a tensor with the wanted dtype and device, of any shape.

        Returns:
            The values of the property, in its own shape.
        """
        key = f"_{name}_{like.dtype}_{like.device}"
        if key not in self.__dict__:
            # dtype first: not every device has float64
            self.__dict__[key] = getattr(self, name).to(like.dtype).to(like.device)
        return self.__dict__[key]

    def rows_of(self, name: str, target: Tensor, like: Tensor) -> Tensor:
        """Return the rows of a property of the gain for labels y.

        Args:
            name: name of the property, (K,) or (K, K): `mixing`, `entries`, ...
            target: class indices, (B,).
            like: a tensor with the wanted dtype and device, of any shape.

        Returns:
            The entries (B,) or rows (B, K).
        """
        return self.cached_as(name, like).index_select(0, target)

    def weigh_classes(self, weights: Tensor) -> Gain:
        """Return diag(weights) G.

        Args:
            weights: positive, (K,).

        Returns:
            The gain whose rows are weighed.
        """
        factors = weights.to(self.entries)
        return Gain(self.entries * (factors if self.is_diagonal else factors[:, None]))

    @cached_property
    def entropy(self) -> Tensor:
        """The entropy of norm(G^T e_y) for every label y, float64; 0 if G is diagonal."""
        if self.is_diagonal:
            return torch.zeros_like(self.scaled)
        return -torch.special.xlogy(self.optimal_rows, self.optimal_rows).sum(1)


class ConstantGain(Objective):
    """max sum_ij G_ij C_ij for a given gain matrix, used unchanged (paper, Sec. 2.1, Eq. 2 [eq:csl-obj]).

    Args:
        matrix: G, (K, K), or (K,) for its diagonal.
    """

    def __init__(self, matrix: Any) -> None:
        self.constant_gain = Gain(matrix).matrix

    def utility(self, c: Confusion) -> Tensor:
        """Return sum_ij G_ij C_ij (paper, Sec. 2.1, Eq. 2 [eq:csl-obj]).

        Args:
            c: the classifier's confusion, K classes.

        Returns:
            A scalar, differentiable in `c.rates`.
        """
        assert self.constant_gain is not None
        return (self.constant_gain.to(c.rates) * c.matrix).sum()

    def __str__(self) -> str:
        return "max sum(G * C) for a constant gain matrix G"


def gain_matrix(
    objective: Objective,
    multipliers: Any,
    confusion: Confusion,
    train_prior: Any,
    metric_prior: MetricPrior | None = None,
) -> Gain:
    """Return the gain of an objective at these multipliers: G_ij = (1/pi_i) d/dR_ij [u + lambda . phi].

    For the paper's objectives it is the gain of Sec. 2.1, Eqs. 3 and 4 [eq:cov-const-obj], and Sec. 5, Eqs. 10 and 11.

    Args:
        objective: an `Objective`; `csst.objective` reads one from a sentence.
        multipliers: lambda, (m,), one for each payoff.
        confusion: the confusion at which the objective is differentiated.
        train_prior: pi, class fractions of the training data, (K,).
        metric_prior: the class prior under which the objective is differentiated: "train" (the paper) or "evaluation"
            (the prior of the confusion); None takes the objective's setting.

    Returns:
        The gain in canonical form (see the top of this file).
    """
    prior = check_prior(train_prior, "the training prior")
    if confusion.classes != len(prior):
        raise InputError(f"the confusion has {confusion.classes} classes and the training prior {len(prior)}")
    check_objective(objective)
    where = metric_prior or objective.metric_prior
    if where not in METRIC_PRIORS:
        raise InputError(f"metric_prior must be one of {METRIC_PRIORS}; found {where!r}")
    objective = objective.bind_prior(prior)
    if objective.constant_gain is not None:
        if len(objective.constant_gain) != len(prior):
            raise InputError(f"the gain matrix has {len(objective.constant_gain)} classes, the prior {len(prior)}")
        return Gain(objective.constant_gain)
    values = as_float64(multipliers, "the multipliers").detach()
    if not torch.isfinite(values).all() or (values < 0).any():
        raise InputError(f"multipliers must be finite and non-negative; found {values.tolist()}")
    with torch.enable_grad():
        rates = confusion.smoothed(objective.epsilon).rates.detach().requires_grad_()
        game = lagrangian(objective, values, Confusion(rates, prior if where == "train" else confusion.prior))
        if not game.requires_grad:
            raise InputError(f"{objective} does not depend on the predictions, so there is nothing to learn")
        (weights,) = torch.autograd.grad(game, rates)
    if not torch.isfinite(weights).all():
        raise InputError(f"{objective} has a non-finite gradient at these rates: raise epsilon or rewrite the metric")
    return Gain(canonical(weights / prior[:, None]))


def canonical(matrix: Tensor) -> Tensor:
    """Return the canonical form of a derived gain (see the top of this file): non-negative, same Bayes rule.

    A constant added to a row changes no maximizer (paper, Sec. 3.1).

    Args:
        matrix: G, (K, K), of any sign.

    Returns:
        G with a constant added to each row, (K, K), with a positive diagonal.
    """
    need = (SMALLEST_DIAGONAL * matrix.amax(1) - matrix.diagonal()) / (1 - SMALLEST_DIAGONAL)
    gains = matrix + torch.maximum(-matrix.amin(1), need).clamp(min=0)[:, None]
    scale = float(gains.max()) or 1.0
    return torch.where(gains.amax(1, keepdim=True) > 0, gains, SMALLEST_ROW * scale)


def check_target(target: Tensor, classes: int) -> Tensor:
    """Return class indices (B,) or distributions (B, K), detached; values are checked on the CPU only."""
    if not isinstance(target, Tensor):
        raise InputError(
            f"the target must be a tensor of class indices (B,) or distributions (B, K); found {type(target).__name__}"
        )
    target = target.detach()
    is_soft = target.is_floating_point()
    if target.ndim != (2 if is_soft else 1) or (is_soft and target.shape[1] != classes) or target.dtype == torch.bool:
        raise InputError(
            f"the target must be integer class indices (B,) or distributions (B, {classes}); "
            f"found shape {tuple(target.shape)} of {target.dtype}"
        )
    if target.device.type == "cpu" and target.numel():
        low, high = (x.item() for x in torch.aminmax(target))
        if is_soft and not (low >= 0 and high < float("inf")):
            raise InputError(
                f"a target distribution must be finite and non-negative; found values from {low:.4g} to {high:.4g}"
            )
        if is_soft and float((target.sum(1) - 1).abs().max()) > 0.02:  # loose enough for sixteen-bit distributions
            raise InputError(
                f"each target distribution must sum to 1; found sums such as {float(target.sum(1)[0]):.4g}"
            )
        if not is_soft and not (low >= 0 and high < classes):
            raise InputError(f"class indices must lie in 0 .. {classes - 1}; found values from {low} to {high}")
    return target if is_soft else target.long()
