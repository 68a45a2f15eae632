"""What a classifier does, as a confusion matrix, and the metrics read off it.

    rates      R_ij = P(F(x) = j | y = i)        independent of the class balance
    confusion  C_ij = pi_i R_ij                  the same under a class prior pi       (paper, Sec. 2.1, Table 1)

Every metric is differentiable in the rates, so that a gain matrix can be derived by autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError

METRICS = ("recall", "precision", "f1", "jaccard", "coverage", "accuracy")


@dataclass(frozen=True, eq=False)
class Confusion:
    """What a classifier does: its rates, and the class prior under which it is measured (paper, Sec. 2.1).

        csst.Confusion.from_counts([[90, 10], [4, 6]]).recall      # tensor([0.9, 0.6])

    Args:
        rates: R_ij = P(F(x) = j | y = i), (K, K), rows sum to 1; becomes float64.
        prior: pi, (K,), positive, sums to 1; becomes float64.
    """

    rates: Tensor
    prior: Tensor

    def __post_init__(self) -> None:
        rates, prior = as_float64(self.rates, "rates"), check_prior(self.prior, "the confusion's prior")
        if rates.ndim != 2 or rates.shape[0] != rates.shape[1] or rates.shape[0] != prior.shape[0]:
            raise InputError(
                f"a confusion needs rates of shape (K, K) and a prior of shape (K,); "
                f"found {tuple(rates.shape)} and {tuple(prior.shape)}"
            )
        values = rates.detach()
        if not torch.isfinite(values).all() or (values < 0).any():
            raise InputError("rates must be finite and non-negative: R_ij is a probability; found other values")
        if ((values.sum(1) - 1).abs() > 1e-5).any():
            worst = int((values.sum(1) - 1).abs().argmax())
            raise InputError(
                f"each row of rates must sum to 1 (R_ij = P(F(x) = j | y = i)); row {worst} sums to "
                f"{float(values[worst].sum()):.6g}: use Confusion.from_counts for counts"
            )
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "prior", prior.to(rates.device))

    @classmethod
    def from_counts(cls, counts: Any, class_names: Sequence[str] | None = None) -> Confusion:
        """The confusion of counted predictions, under the class balance of the counts.

        Args:
            counts: (K, K), row = truth, column = prediction; or several of them, one per batch or process, as a stack
                (B, K, K) or a list. They are added up first: ratios are never averaged.
            class_names: for the message about a class without examples, which is refused.

        Returns:
            Rates counts / row sums, and the prior row sums / total.
        """
        if isinstance(counts, (list, tuple)) and len(counts) and isinstance(counts[0], Tensor):
            counts = torch.stack([as_float64(c, "counts") for c in counts])
        counts = as_float64(counts, "counts").detach()
        counts = counts.sum(0) if counts.ndim == 3 else counts
        if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or counts.shape[0] < 2:
            raise InputError(f"counts must have shape (K, K) with K >= 2; found {tuple(counts.shape)}")
        if not torch.isfinite(counts).all() or (counts < 0).any():
            raise InputError("counts must be finite and non-negative; found other values")
        totals = counts.sum(1)
        refuse_empty_classes(totals, class_names, "recall", "these examples")
        return cls(counts / totals[:, None], totals / totals.sum())

    @classmethod
    def from_predictions(cls, labels: Any, predictions: Any, classes: int) -> Confusion:
        """The confusion of predicted classes, under the class balance of the true ones.

        Args:
            labels: true classes, integers in 0 .. classes-1, (N,).
            predictions: predicted classes, likewise, (N,).
            classes: K.

        Returns:
            Rates and prior of the counts, see `from_counts`.
        """
        return cls.from_counts(confusion_counts(labels, predictions, classes))

    @classmethod
    def uniform(cls, prior: Any) -> Confusion:
        """Predictions at random, R_ij = 1/K: all that is known before a classifier is measured.

        Args:
            prior: pi, (K,).

        Returns:
            The confusion of chance under that prior.
        """
        prior = check_prior(prior, "the prior")
        return cls(prior.new_full((len(prior), len(prior)), 1 / len(prior)), prior)

    def with_prior(self, prior: Any) -> Confusion:
        """The same classifier under another class prior, e.g. that of deployment.

        Args:
            prior: pi, (K,).

        Returns:
            The same rates with that prior.
        """
        return Confusion(self.rates, prior)

    def smoothed(self, epsilon: float) -> Confusion:
        """The confusion with rates (1 - epsilon) R + epsilon / K, where gains are derived so that they stay finite.

        Args:
            epsilon: the weight of chance, from 0 to 1.

        Returns:
            The smoothed rates with the same prior.
        """
        return Confusion((1 - epsilon) * self.rates + epsilon / self.classes, self.prior)

    @property
    def classes(self) -> int:
        """K, how many classes there are."""
        return self.rates.shape[0]

    @cached_property
    def matrix(self) -> Tensor:
        """C_ij = P(y = i, F(x) = j), (K, K) (paper, Sec. 2.1)."""
        return self.prior[:, None] * self.rates

    @property
    def recall(self) -> Tensor:
        """rec_i = C_ii / sum_j C_ij, (K,) (paper, Sec. 2.1, Table 1)."""
        return self.rates.diagonal()

    @cached_property
    def coverage(self) -> Tensor:
        """cov_j = sum_i C_ij, the fraction of examples predicted as j, (K,) (paper, Sec. 2.1, Table 1)."""
        return self.matrix.sum(0)

    @property
    def precision(self) -> Tensor:
        """prec_j = C_jj / sum_i C_ij, (K,); 0 for a class that is never predicted (paper, Sec. 2.1, Table 1)."""
        predicted = self.coverage > 0
        return self.matrix.diagonal() / torch.where(predicted, self.coverage, torch.ones_like(self.coverage))

    @property
    def f1(self) -> Tensor:
        """2 C_jj / (pi_j + cov_j), the harmonic mean of precision and recall, (K,)."""
        return 2 * self.matrix.diagonal() / (self.prior + self.coverage)

    @property
    def jaccard(self) -> Tensor:
        """C_jj / (pi_j + cov_j - C_jj), intersection over union, (K,)."""
        hit = self.matrix.diagonal()
        return hit / (self.prior + self.coverage - hit)

    @property
    def accuracy(self) -> Tensor:
        """sum_i C_ii, a scalar (paper, Sec. 2.1, Table 1)."""
        return self.matrix.diagonal().sum()

    def group_mean(self, metric: str, group: Sequence[int]) -> Tensor:
        """The mean of a metric over a group of classes, e.g. `group_mean("recall", [7, 8, 9])`. Paper, Sec. 5, Eq. 10.

        Args:
            metric: the name of a metric with one value per class.
            group: class indices, at least one.

        Returns:
            A scalar, differentiable in `rates`.
        """
        if metric not in METRICS or metric == "accuracy":
            raise InputError(
                f"group_mean takes a metric with one value per class ({', '.join(METRICS[:-1])}); found {metric!r}"
            )
        members = list(group)
        if not members or any(not 0 <= m < self.classes for m in members):
            raise InputError(f"a group must name at least one class in 0 .. {self.classes - 1}; found {members}")
        return getattr(self, metric)[members].mean()


def make_unchecked(rates: Tensor, prior: Tensor) -> Confusion:
    """A confusion of rates known to be right: the checks look at every value and take their time."""
    c = Confusion.__new__(Confusion)
    vars(c).update(rates=rates, prior=prior)
    return c


def confusion_from_margins(recall: Tensor, coverage: Tensor, prior: Tensor) -> Confusion:
    """A confusion with this recall and coverage, through which alone each metric of the language reads it.

    The matrices are views of one row, right on the diagonal only, so that many classes cost K numbers and not K^2.
    """
    square = (len(prior), len(prior))
    c = make_unchecked(recall.expand(square), prior)
    vars(c).update(matrix=(prior * recall).expand(square), coverage=coverage)
    return c


def confusion_counts(labels: Any, predictions: Any, classes: int) -> Tensor:
    """Confusion counts, row = truth, column = prediction; those of batches and processes may be added.

    Args:
        labels: true classes, integers in 0 .. classes-1, (N,).
        predictions: predicted classes, likewise, (N,).
        classes: K.

    Returns:
        int64 counts, (K, K).
    """
    pair = []
    for name, raw in (("labels", labels), ("predictions", predictions)):
        try:
            values = torch.as_tensor(raw)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{name} must be integers 0 .. {classes - 1}; they cannot be read as numbers ({error})"
            ) from None
        if values.ndim != 1 or (values.numel() and (values.is_floating_point() or values.is_complex())):
            raise InputError(
                f"{name} must be a vector of integers; found shape {tuple(values.shape)} of {values.dtype}"
            )
        values = values.long()
        if values.numel() and (int(values.min()) < 0 or int(values.max()) >= classes):
            raise InputError(
                f"{name} must lie in 0 .. {classes - 1}; found values from {int(values.min())} to {int(values.max())}"
            )
        pair.append(values)
    if pair[0].shape != pair[1].shape:
        raise InputError(f"labels and predictions must have the same length; found {len(pair[0])} and {len(pair[1])}")
    flat = pair[0] * classes + pair[1].to(pair[0].device)
    return torch.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def head_tail(prior: Any) -> dict[str, list[int]]:
    """The paper's two groups of classes by frequency (paper, Sec. 5): the rarest tenth is the tail, the rest the head.

    Classes are ordered from frequent to rare, ties by index; the last max(1, round(K/10)) are the tail.

    Args:
        prior: class fractions of the training data, (K,).

    Returns:
        {"head": class indices, "tail": class indices}, both sorted.
    """
    prior = check_prior(prior, "the prior")
    order = torch.argsort(prior, descending=True, stable=True).tolist()
    cut = len(order) - max(1, round(len(order) / 10))
    return {"head": sorted(order[:cut]), "tail": sorted(order[cut:])}


def refuse_empty_classes(totals: Tensor, class_names: Sequence[str] | None, why: str, where: str) -> None:
    """Raise if a class has no examples, naming it."""
    empty = (totals <= 0).nonzero().flatten().tolist()
    if empty:
        shown = [class_names[i] for i in empty] if class_names is not None else empty
        raise InputError(
            f"{why} needs an example of every class; classes {shown} have none in {where}: "
            "add examples or merge the classes"
        )


def check_prior(prior: Any, what: str) -> Tensor:
    """A class prior as float64: positive, finite, sums to 1, at least two classes."""
    values = as_float64(prior, what).detach()
    if values.ndim != 1 or len(values) < 2:
        raise InputError(
            f"{what} must be a vector with one fraction per class, K >= 2; found shape {tuple(values.shape)}"
        )
    if not torch.isfinite(values).all() or (values <= 0).any():
        bad = (~(torch.isfinite(values) & (values > 0))).nonzero().flatten().tolist()
        raise InputError(
            f"{what} must be positive and finite, G_ij = w_ij / pi_i divides by it; classes {bad} are not: "
            "a class without examples must be dropped or merged"
        )
    if abs(float(values.sum()) - 1) > 1e-5:
        raise InputError(f"{what} must sum to 1; found {float(values.sum()):.6g}: divide the counts by their sum")
    return values


def as_float64(values: Any, what: str) -> Tensor:
    """Numbers as a float64 tensor; `what` names them in the error about anything else."""
    try:
        if isinstance(values, Tensor) and values.is_complex():
            raise TypeError("complex numbers")
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be numbers; they cannot be read as a tensor ({error})") from None
