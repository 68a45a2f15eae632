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

#: metrics with one value per class
CLASS_METRICS = ("recall", "precision", "f1", "jaccard", "specificity", "coverage")
#: metrics that are one number
NUMBER_METRICS = ("accuracy", "mcc", "abstain")


@dataclass(frozen=True, eq=False)
class Confusion:
    """What a classifier does: its rates, and the class prior under which it is measured (paper, Sec. 2.1).

        csst.Confusion.from_counts([[90, 10], [4, 6]]).recall      # tensor([0.9, 0.6])

    A classifier may abstain: then rates have one more column, A_i = P(no answer | y = i). Recall, precision and all
    that follow from them are of what is answered; a class of which nothing is answered has recall 0. Coverage counts
    answers among all examples.

    Args:
        rates: R_ij = P(F(x) = j | y = i), (K, K), or (K, K + 1) with abstention; rows sum to 1; becomes float64.
        prior: pi, (K,), positive, sums to 1; becomes float64.
    """

    rates: Tensor
    prior: Tensor

    def __post_init__(self) -> None:
        rates = as_float64(self.rates, "rates")
        prior = check_prior(self.prior, "the confusion's prior")
        if rates.ndim != 2 or rates.shape[1] - rates.shape[0] not in (0, 1) or rates.shape[0] != prior.shape[0]:
            raise InputError(
                f"a confusion needs rates of shape (K, K), or (K, K + 1) with abstention, and a prior of shape (K,); "
                f"found {tuple(rates.shape)} and {tuple(prior.shape)}"
            )
        values = rates.detach()
        low, high = (float(end) for end in values.aminmax())  # both are nan if a value is
        if not (low >= 0 and high < float("inf")):
            raise InputError("rates must be finite and non-negative: R_ij is a probability; found other values")
        errors = (values.sum(1) - 1).abs()
        if float(errors.max()) > 1e-5:
            row = int(errors.argmax())
            raise InputError(
                f"each row of rates must sum to 1 (R_ij = P(F(x) = j | y = i)); row {row} sums to "
                f"{float(values[row].sum()):.6g}: use Confusion.from_counts for counts"
            )
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "prior", prior.to(rates.device))

    @classmethod
    def from_counts(cls, counts: Any, class_names: Sequence[str] | None = None) -> Confusion:
        """Return the confusion of counted predictions, under the class prior of the counts.

        Args:
            counts: (K, K), row = truth, column = prediction, (K, K + 1) with abstention; or several of them, one per
                batch or process, as a stack (B, K, K) or a list. They are added up first: ratios are never averaged.
            class_names: names for the error about a class without examples.

        Returns:
            Rates counts / row sums, and the prior row sums / total.
        """
        if isinstance(counts, (list, tuple)) and len(counts) and isinstance(counts[0], Tensor):
            counts = torch.stack([as_float64(c, "counts") for c in counts])
        counts = as_float64(counts, "counts").detach()
        counts = counts.sum(0) if counts.ndim == 3 else counts
        if counts.ndim != 2 or counts.shape[1] - counts.shape[0] not in (0, 1) or counts.shape[0] < 2:
            raise InputError(
                f"counts must have shape (K, K), K >= 2, or (K, K + 1) with abstention; found {tuple(counts.shape)}"
            )
        low, high = (float(end) for end in counts.aminmax())
        if not (low >= 0 and high < float("inf")):
            raise InputError("counts must be finite and non-negative; found other values")
        totals = counts.sum(1)
        refuse_empty_classes(totals, class_names, "recall", "these examples")
        return cls(counts / totals[:, None], totals / totals.sum())

    @classmethod
    def from_predictions(cls, labels: Any, predictions: Any, classes: int) -> Confusion:
        """Return the confusion of predicted classes, under the class prior of the true classes.

        Args:
            labels: true classes, integers in 0 .. classes-1, (N,).
            predictions: predicted classes, integers in 0 .. classes-1, (N,).
            classes: K.

        Returns:
            Rates and prior of the counts, see `from_counts`.
        """
        return cls.from_counts(confusion_counts(labels, predictions, classes))

    @classmethod
    def uniform(cls, prior: Any) -> Confusion:
        """Return the confusion of random predictions, R_ij = 1/K, for use before a classifier is measured.

        Args:
            prior: pi, (K,).

        Returns:
            The confusion of chance under that prior.
        """
        prior = check_prior(prior, "the prior")
        return cls(prior.new_full((len(prior), len(prior)), 1 / len(prior)), prior)

    def with_prior(self, prior: Any) -> Confusion:
        """Return the same classifier under another class prior, e.g. the deployment prior.

        Args:
            prior: pi, (K,).

        Returns:
            The same rates with that prior.
        """
        return Confusion(self.rates, prior)

    def smoothed(self, epsilon: float) -> Confusion:
        """Return the confusion with rates (1 - epsilon) R + epsilon / K, at which derived gains are finite.

        Args:
            epsilon: the weight of chance, from 0 to 1.

        Returns:
            The smoothed rates with the same prior.
        """
        return Confusion((1 - epsilon) * self.rates + epsilon / self.classes, self.prior)

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self.rates.shape[0]

    @cached_property
    def matrix(self) -> Tensor:
        """C_ij = P(y = i, F(x) = j), (K, K) (paper, Sec. 2.1)."""
        return self.prior[:, None] * self.rates

    @cached_property
    def abstained(self) -> Tensor | None:
        """A_i, the fraction of a class's examples that get no answer, (K,); None if the classifier always answers."""
        return self.rates[:, -1] if self.rates.shape[1] > self.rates.shape[0] else None

    @property
    def abstain(self) -> Tensor:
        """sum_i pi_i A_i, the fraction of all examples that get no answer, a scalar."""
        return self.prior.new_zeros(()) if self.abstained is None else self.prior @ self.abstained

    @cached_property
    def answered(self) -> Tensor:
        """pi_i (1 - A_i), the fraction of all examples that are of class i and get an answer, (K,)."""
        return self.prior if self.abstained is None else self.prior * (1 - self.abstained)

    @property
    def recall(self) -> Tensor:
        """rec_i = C_ii / sum_j C_ij, (K,) (paper, Sec. 2.1, Table 1)."""
        if self.abstained is None:
            return self.rates.diagonal()
        return divide(self.matrix.diagonal(), self.answered)

    @cached_property
    def coverage(self) -> Tensor:
        """cov_j = sum_i C_ij, the fraction of examples predicted as j, (K,) (paper, Sec. 2.1, Table 1)."""
        return self.matrix[:, : self.classes].sum(0)

    @property
    def precision(self) -> Tensor:
        """prec_j = C_jj / sum_i C_ij, (K,); 0 for a class that is never predicted (paper, Sec. 2.1, Table 1)."""
        return divide(self.matrix.diagonal(), self.coverage)

    @property
    def f1(self) -> Tensor:
        """2 C_jj / (pi_j + cov_j), the harmonic mean of precision and recall, (K,)."""
        return divide(2 * self.matrix.diagonal(), self.answered + self.coverage)

    @property
    def jaccard(self) -> Tensor:
        """C_jj / (pi_j + cov_j - C_jj), intersection over union, (K,)."""
        hits = self.matrix.diagonal()
        return divide(hits, self.answered + self.coverage - hits)

    def fbeta(self, beta: float) -> Tensor:
        """Return (1 + beta^2) C_jj / (beta^2 pi_j + cov_j), recall weighing beta times as much as precision, (K,).

        Args:
            beta: positive; 1 is `f1`.

        Returns:
            One value per class, (K,), differentiable in `rates`.
        """
        weight = beta**2
        return divide((1 + weight) * self.matrix.diagonal(), weight * self.answered + self.coverage)

    @property
    def specificity(self) -> Tensor:
        """1 - (cov_j - C_jj) / (1 - pi_j), the fraction of other examples that are not predicted as j, (K,)."""
        return 1 - divide(self.coverage - self.matrix.diagonal(), self.answered.sum() - self.answered)

    @property
    def accuracy(self) -> Tensor:
        """sum_i C_ii, a scalar (paper, Sec. 2.1, Table 1); of what is answered, where the classifier may abstain."""
        hits = self.matrix.diagonal().sum()
        return hits if self.abstained is None else divide(hits, self.answered.sum())

    @property
    def mcc(self) -> Tensor:
        """Matthews correlation of truth and prediction, a scalar; 0 if a single class is predicted.

        (sum_i C_ii - sum_j pi_j cov_j) / sqrt((1 - sum_j cov_j^2) (1 - sum_j pi_j^2))
        """
        total = self.answered.sum()
        truth = divide(self.answered, total)
        prediction = divide(self.coverage, total)
        agreement = self.accuracy - truth @ prediction
        spread = (1 - prediction.square().sum()) * (1 - truth.square().sum())
        # Of a single class that is predicted or true, the agreement is 0.
        return agreement / torch.where(spread > 1e-12, spread, torch.ones_like(spread)).sqrt()


def divide(top: Tensor, bottom: Tensor) -> Tensor:
    """Return top / bottom, and top itself, which is 0 for all ratios here, where the bottom is 0."""
    # Dividing by 1 instead of 0 keeps the value at 0 and its gradient finite.
    return top / torch.where(bottom > 0, bottom, torch.ones_like(bottom))


def make_unchecked(rates: Tensor, prior: Tensor) -> Confusion:
    """Return a confusion of valid rates without checking them, which would look at every value."""
    c = Confusion.__new__(Confusion)
    vars(c).update(rates=rates, prior=prior)
    return c


def confusion_from_margins(hits: Tensor, coverage: Tensor, prior: Tensor, abstained: Tensor | None = None) -> Confusion:
    """Return a confusion with these diagonal rates, coverages and abstentions, which is all that metrics read.

    Its matrices are views of one row and correct on the diagonal only: K numbers instead of K^2 for many classes.

    Args:
        hits: R_ii, (K,): the recall, unless the classifier abstains.
        coverage: (K,).
        prior: pi, (K,).
        abstained: A_i, (K,); None if the classifier always answers.
    """
    square = (len(prior), len(prior))
    c = make_unchecked(hits.expand(square), prior)
    vars(c).update(matrix=(prior * hits).expand(square), coverage=coverage, abstained=abstained)
    return c


def confusion_counts(labels: Any, predictions: Any, classes: int, abstains: bool = False) -> Tensor:
    """Return confusion counts, row = truth, column = prediction; counts of batches and processes may be added.

    Args:
        labels: true classes, integers in 0 .. classes-1, (N,).
        predictions: predicted classes, integers in 0 .. classes-1, (N,).
        classes: K.
        abstains: whether predictions may be K, for no answer.

    Returns:
        int64 counts, (K, K), or (K, K + 1) with no answers in the last column.
    """
    columns = classes + abstains
    truth = read_class_indices(labels, "labels", classes)
    answers = read_class_indices(predictions, "predictions", columns)
    if truth.shape != answers.shape:
        raise InputError(f"labels and predictions must have the same length; found {len(truth)} and {len(answers)}")
    cells = truth * columns + answers.to(truth.device)
    return torch.bincount(cells, minlength=classes * columns).reshape(classes, columns)


def read_class_indices(values: Any, name: str, classes: int) -> Tensor:
    """Return class indices 0 .. classes-1 as int64, (N,); `name` is their name in errors."""
    try:
        indices = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be integers 0 .. {classes - 1}, the places of classes counted from 0; they cannot be read as "
            f"numbers ({error})"
        ) from None
    if indices.ndim != 1 or (indices.numel() and (indices.is_floating_point() or indices.is_complex())):
        raise InputError(f"{name} must be a vector of integers; found shape {tuple(indices.shape)} of {indices.dtype}")
    indices = indices.long()
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= classes):
        raise InputError(
            f"{name} must lie in 0 .. {classes - 1}; found values from {int(indices.min())} to {int(indices.max())}"
        )
    return indices


def head_tail(prior: Any) -> dict[str, list[int]]:
    """Return the paper's two groups of classes (paper, Sec. 5): the rarest tenth is the tail, the rest the head.

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
    """Raise an error that names the classes without examples, if there are any."""
    classes = [k for k, total in enumerate(totals.tolist()) if total <= 0]
    if classes:
        names = classes if class_names is None else [class_names[k] for k in classes]
        raise InputError(
            f"{why} needs an example of every class; classes {names} have none in {where}: "
            "add examples or merge the classes"
        )


def check_prior(prior: Any, what: str) -> Tensor:
    """Return a class prior as float64, (K,), K >= 2; raise an error unless it is positive and sums to 1."""
    values = as_float64(prior, what).detach()
    if values.ndim != 1 or len(values) < 2:
        raise InputError(
            f"{what} must be a vector with one fraction per class, K >= 2; found shape {tuple(values.shape)}"
        )
    classes = [k for k, value in enumerate(values.tolist()) if not 0 < value < float("inf")]
    if classes:
        raise InputError(
            f"{what} must be positive and finite, G_ij = w_ij / pi_i divides by it; classes {classes} are not: "
            "a class without examples must be dropped or merged"
        )
    if abs(float(values.sum()) - 1) > 1e-5:
        raise InputError(f"{what} must sum to 1; found {float(values.sum()):.6g}: divide the counts by their sum")
    return values


def as_float64(values: Any, what: str) -> Tensor:
    """Return numbers as a float64 tensor; `what` is their name in the error."""
    try:
        if isinstance(values, Tensor) and values.is_complex():
            raise TypeError("complex numbers")
        if hasattr(values, "to_numpy"):  # a data frame; it is copied, as torch warns of what is not writable
            return torch.tensor(values.to_numpy(), dtype=torch.float64)
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be numbers; they cannot be read as a tensor ({error})") from None
