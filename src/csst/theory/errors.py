"""The weighted error and its weights.

err_w(F) = sum_ij w_ij P_i(F(x) != j),      P_i = the examples of class i          (paper, Sec. 3.1)
w_ij     = G_ij pi_i                        the weights of a gain matrix
sum_ij G_ij C_ij = sum_ij w_ij - err_w      so a larger gain is a smaller weighted error
P_w      = sum_ij w_ij P_i / |w|_1          examples drawn with the rows' weights  (paper, Assumption 2)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, check_prior, refuse_empty_classes
from csst.maths.gain import Gain


def weighted_error(confusion: Confusion, weights: Any) -> float:
    """The weighted error of a classifier; the balanced error for w = I / K.

        err_w(F) = sum_ij w_ij (1 - R_ij)

    Paper, Sec. 3.1.

    Args:
        confusion: of the classifier F, K classes.
        weights: w, (K, K), finite.

    Returns:
        err_w(F), at most |w|_1 for non-negative weights.
    """
    matrix = check_weights(weights, confusion.classes, signed=True)
    return float((matrix * (1 - confusion.rates.detach().cpu())).sum())


def weights_of_gain(gain: Gain | Any, prior: Any) -> Tensor:
    """The weights of a gain matrix: w_ij = G_ij pi_i. Paper, Sec. 3.1.

    Args:
        gain: G, a `Gain` or numbers of shape (K, K).
        prior: pi, (K,): the class fractions under which the gain is counted.

    Returns:
        w, (K, K), float64.
    """
    fractions = check_prior(prior, "the prior")
    matrix = as_float64(gain.matrix if isinstance(gain, Gain) else gain, "a gain matrix").cpu()
    return check_weights(matrix, len(fractions), signed=True) * fractions[:, None]


def shifted(weights: Any) -> Tensor:
    """Non-negative weights with the smallest |w|_1 that rank all classifiers alike: each row less its minimum.

    A constant c_i added to row i adds (K - 1) c_i to the error of every classifier. This is not the canonical form
    of `Gain`, which only ever adds: the bounds are tightest where |w|_1 is smallest. Paper, Sec. 3.1.

    Args:
        weights: w, (K, K), finite, of any sign.

    Returns:
        The shifted weights, (K, K), with a 0 in every row.
    """
    matrix = check_weights(weights, signed=True)
    return check_weights(matrix - matrix.amin(1, keepdim=True))


def total_weight(weights: Any) -> float:
    """|w|_1, the largest possible weighted error of non-negative weights. Paper, Sec. 3.1.

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        sum_ij w_ij.
    """
    return float(check_weights(weights).sum())


def least_error(weights: Any) -> float:
    """The smallest err_w that any classifier whatsoever can have; 0 for diagonal weights.

        sum_i (sum_j w_ij - max_j w_ij)

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        That error.
    """
    matrix = check_weights(weights)
    return float((matrix.sum(1) - matrix.amax(1)).sum())


def class_fractions(weights: Any) -> Tensor:
    """The fraction of each class in P_w: alpha_i = sum_j w_ij / |w|_1. Paper, Sec. 3.3, Assumption 2 [c-exp].

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        alpha, (K,), which sums to 1.
    """
    matrix = check_weights(weights)
    return matrix.sum(1) / matrix.sum()


def sampling_weights(weights: Any, labels: Tensor) -> Tensor:
    """The probability of each example under the empirical P_w: alpha_y / n_y. Paper, Sec. 3.3, Assumption 2 [c-exp].

    Args:
        weights: w, (K, K), non-negative.
        labels: class indices, (n,); every class needs an example.

    Returns:
        Probabilities, (n,), which sum to 1.
    """
    fractions = class_fractions(weights)
    counts = _counts(labels, len(fractions))
    return (fractions / counts)[labels]


def weighted_rate(happens: Tensor, labels: Tensor, weights: Any) -> tuple[float, float]:
    """sum_ij w_ij P_i(event) and its standard error, for an event that happens (1) or not (0) at each example.

    With "F is not constant on B(x)" this is R_{B,w}(F), with "F(x) != F'(x)" it is L_w(F, F').
    """
    matrix = check_weights(weights)
    return class_sum(happens.double() * matrix.sum(1)[labels], labels, len(matrix))


def measured_error(predictions: Tensor, labels: Tensor, weights: Any) -> tuple[float, float]:
    """err_w and its standard error from predictions: the sum over classes of the mean cost sum_j w_yj - w_yF."""
    matrix = check_weights(weights)
    return class_sum(matrix.sum(1)[labels] - matrix[labels, predictions], labels, len(matrix))


def class_sum(values: Tensor, labels: Tensor, classes: int) -> tuple[float, float]:
    """sum_i (mean of the values in class i) and its standard error; classes are samples of their own."""
    counts = _counts(labels, classes)
    zeros = torch.zeros(classes, dtype=torch.float64)
    means = zeros.index_add(0, labels, values.double()) / counts
    spread = zeros.index_add(0, labels, (values.double() - means[labels]).square()) / counts
    return float(means.sum()), float((spread / counts).sum().sqrt())


def check_weights(weights: Any, classes: int | None = None, signed: bool = False) -> Tensor:
    """Weights (K, K) in float64 on the CPU; finite and, unless `signed`, non-negative and not all zero."""
    matrix = as_float64(weights, "weights").detach().cpu()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InputError(f"weights w have shape (K, K) with K >= 2; found {tuple(matrix.shape)}")
    if classes is not None and len(matrix) != classes:
        raise InputError(f"the weights are for {len(matrix)} classes; {classes} are needed")
    if not torch.isfinite(matrix).all():
        raise InputError("weights w must be finite; found NaN or infinite entries")
    if not signed and (matrix < 0).any():
        raise InputError(
            f"weights w must be non-negative, P_w is a probability; the smallest is {float(matrix.min()):.4g}: "
            "use csst.theory.shifted, which ranks all classifiers alike"
        )
    if not signed and not matrix.any():
        raise InputError("the weights are all zero (|w|_1 = 0): every classifier has the same error, nothing to learn")
    return matrix


def _counts(labels: Tensor, classes: int) -> Tensor:
    if labels.ndim != 1 or labels.is_floating_point():
        raise InputError(f"labels must be a vector of integers; found shape {tuple(labels.shape)} of {labels.dtype}")
    if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        raise InputError(f"labels must lie in 0 .. {classes - 1}; found {int(labels.min())} to {int(labels.max())}")
    counts = torch.bincount(labels, minlength=classes).double()
    refuse_empty_classes(counts, None, "a weighted error", "these examples")
    return counts
