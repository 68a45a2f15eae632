"""The weighted error, its weights and the weighted consistency regularizer.

err_w(F) = sum_ij w_ij P_i(F(x) != j),      P_i = the examples of class i          (paper, Sec. 3.1)
w_ij     = G_ij pi_i                        the weights of a gain matrix
sum_ij G_ij C_ij = sum_ij w_ij - err_w      so a larger gain is a smaller weighted error
P_w      = sum_ij w_ij P_i / |w|_1          examples drawn with the rows' weights  (paper, Assumption 2)

R_{B,w}(F) = sum_ij w_ij P_i(F is not constant on B(x)),   B(x) = points within r of a view of x   (paper, Sec. 3.2)

Whether F is constant on B(x) cannot be decided by trying: only a few views are drawn, and an attack may miss. The
measured value is therefore a lower bound of R_{B,w}, closer the more views are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.examples import Examples
from csst.data.task import View
from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, check_prior, read_class_indices, refuse_empty_classes
from csst.maths.gain import Gain
from csst.theory.networks import BATCH, as_floats, attack, evaluating, find_device, predict


def weighted_error(confusion: Confusion, weights: Any) -> float:
    """Return the weighted error of a classifier; for w = I / K it is the balanced error.

        err_w(F) = sum_ij w_ij (1 - R_ij)

    Paper, Sec. 3.1.

    Args:
        confusion: the confusion matrix of the classifier F, K classes.
        weights: w, (K, K), finite.

    Returns:
        err_w(F), at most |w|_1 for non-negative weights.
    """
    matrix = check_weights(weights, confusion.classes, is_signed=True)
    return float((matrix * (1 - confusion.rates.detach().cpu())).sum())


def weights_of_gain(gain: Gain | Any, prior: Any) -> Tensor:
    """Return the weights of a gain matrix: w_ij = G_ij pi_i. Paper, Sec. 3.1.

    Args:
        gain: G, a `Gain` or numbers of shape (K, K).
        prior: pi, (K,): the class fractions under which the gain is counted.

    Returns:
        w, (K, K), float64.
    """
    fractions = check_prior(prior, "the prior")
    matrix = as_float64(gain.matrix if isinstance(gain, Gain) else gain, "a gain matrix").cpu()
    return check_weights(matrix, len(fractions), is_signed=True) * fractions[:, None]


def shifted(weights: Any) -> Tensor:
    """Return the non-negative weights of smallest |w|_1 that rank all classifiers alike: each row less its minimum.

    A constant c_i added to row i adds (K - 1) c_i to the error of every classifier. This is not the canonical form
    of `Gain`, which only ever adds: the bounds are tightest when |w|_1 is smallest. Paper, Sec. 3.1.

    Args:
        weights: w, (K, K), finite, of any sign.

    Returns:
        The shifted weights, (K, K), with a 0 in every row.
    """
    matrix = check_weights(weights, is_signed=True)
    return check_weights(matrix - matrix.amin(1, keepdim=True))


def total_weight(weights: Any) -> float:
    """Return |w|_1, the largest possible weighted error of non-negative weights. Paper, Sec. 3.1.

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        sum_ij w_ij.
    """
    return float(check_weights(weights).sum())


def least_error(weights: Any) -> float:
    """Return the smallest err_w that any classifier can have; 0 for diagonal weights.

        sum_i (sum_j w_ij - max_j w_ij)

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        The smallest err_w.
    """
    matrix = check_weights(weights)
    return float((matrix.sum(1) - matrix.amax(1)).sum())


def class_fractions(weights: Any) -> Tensor:
    """Return the fraction of each class in P_w: alpha_i = sum_j w_ij / |w|_1. Paper, Sec. 3.3, Assumption 2 [c-exp].

    Args:
        weights: w, (K, K), non-negative.

    Returns:
        alpha, (K,), which sums to 1.
    """
    matrix = check_weights(weights)
    return matrix.sum(1) / matrix.sum()


def sampling_weights(weights: Any, labels: Tensor) -> Tensor:
    """Return the probability of each example under the empirical P_w: alpha_y / n_y.

    Paper, Sec. 3.3, Assumption 2 [c-exp].

    Args:
        weights: w, (K, K), non-negative.
        labels: class indices, (n,); every class needs an example.

    Returns:
        Probabilities, (n,), which sum to 1.
    """
    fractions = class_fractions(weights)
    return (fractions / _count_classes(labels, len(fractions)))[labels]


@dataclass(frozen=True)
class Consistency:
    """A measured lower bound of R_{B,w}.

    Args:
        value: the bound, between 0 and |w|_1.
        standard_error: the error from sampling examples; it does not cover views that were not drawn.
        draws: the number of views drawn of each example.
    """

    value: float
    standard_error: float
    draws: int


@dataclass(frozen=True)
class Neighborhood:
    """B(x), the points within a radius of a view of x, and how thoroughly it is searched.

    Args:
        views: the augmentation, a `View` as in a `Task`.
        draws: the number of views drawn of each example.
        radius: the radius of the l2 ball around each view, in units of the model's input (pixels count from 0 to 1).
    """

    views: View
    draws: int = 8
    radius: float = 0.0

    def __post_init__(self) -> None:
        if self.draws < 1 or not 0 <= self.radius < float("inf"):
            raise InputError(f"needed: draws >= 1 and radius >= 0; found draws = {self.draws}, radius = {self.radius}")


def weighted_consistency_error(
    model: nn.Module, x: Examples, y: Tensor, weights: Any, neighborhood: Neighborhood, seed: int = 0
) -> Consistency:
    """Return a lower bound of R_{B,w}(F) = sum_ij w_ij P_i(F is not constant on B(x)). Paper, Sec. 3.2.

    Args:
        model: F.
        x: n examples.
        y: classes of the examples, (n,).
        weights: w, (K, K), non-negative.
        neighborhood: B(x): drawn views, each attacked if the radius is above 0.
        seed: the seed of the views.

    Returns:
        The bound and its parts.
    """
    check_weights(weights)  # before the search, which may take long
    generator = torch.Generator().manual_seed(seed)
    with evaluating(model):
        batches = [
            _find_changes(model, x[indices], neighborhood, generator) for indices in torch.arange(len(y)).split(BATCH)
        ]
    value, standard_error = weighted_rate(torch.cat(batches), y, weights)
    return Consistency(value, standard_error, neighborhood.draws)


def _find_changes(model: nn.Module, x: Any, neighborhood: Neighborhood, generator: torch.Generator) -> Tensor:
    """Return which examples of a batch are seen to change their class within B(x), (B,), bool."""
    labels = predict(model, x)
    changes = torch.zeros(len(labels), dtype=torch.bool)
    for _ in range(neighborhood.draws):
        view = neighborhood.views(x, generator)
        changes |= predict(model, view) != labels
        if neighborhood.radius > 0:
            device = find_device(model)
            points = as_floats(view).to(device)
            classes, _ = attack(model, points, labels.to(device), neighborhood.radius)
            changes |= classes.cpu() != labels
    return changes


def weighted_rate(events: Tensor, labels: Tensor, weights: Any) -> tuple[float, float]:
    """Return sum_ij w_ij P_i(event) and its standard error; `events` (n,) tells whether each example has the event.

    The event "F is not constant on B(x)" gives R_{B,w}(F), the event "F(x) != F'(x)" gives L_w(F, F').
    """
    matrix = check_weights(weights)
    return sum_classes(events.double() * matrix.sum(1)[labels], labels, len(matrix))


def measured_error(predictions: Tensor, labels: Tensor, weights: Any) -> tuple[float, float]:
    """Return err_w and its standard error: the sum over classes of the mean cost sum_j w_yj - w_yF."""
    matrix = check_weights(weights)
    return sum_classes(matrix.sum(1)[labels] - matrix[labels, predictions], labels, len(matrix))


def sum_classes(values: Tensor, labels: Tensor, classes: int) -> tuple[float, float]:
    """Return sum_i (mean of the values in class i) and its standard error; each class is a separate sample."""
    counts = _count_classes(labels, classes)
    zeros = torch.zeros(classes, dtype=torch.float64)
    means = zeros.index_add(0, labels, values.double()) / counts
    variances = zeros.index_add(0, labels, (values.double() - means[labels]).square()) / counts
    return float(means.sum()), float((variances / counts).sum().sqrt())


def check_weights(weights: Any, classes: int | None = None, is_signed: bool = False) -> Tensor:
    """Return weights (K, K) in float64 on the CPU; refuse negative weights (unless `is_signed`) and all zeros."""
    matrix = as_float64(weights, "weights").detach().cpu()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InputError(f"weights w have shape (K, K) with K >= 2; found {tuple(matrix.shape)}")
    if classes is not None and len(matrix) != classes:
        raise InputError(f"the weights are for {len(matrix)} classes; {classes} are needed")
    if not torch.isfinite(matrix).all():
        raise InputError("weights w must be finite; found NaN or infinite entries")
    if not is_signed and (matrix < 0).any():
        raise InputError(
            f"weights w must be non-negative, P_w is a probability; the smallest is {float(matrix.min()):.4g}: "
            "use csst.theory.shifted, which ranks all classifiers alike"
        )
    if not is_signed and not matrix.any():
        raise InputError("the weights are all zero (|w|_1 = 0): every classifier has the same error, nothing to learn")
    return matrix


def _count_classes(labels: Tensor, classes: int) -> Tensor:
    counts = torch.bincount(read_class_indices(labels, "labels", classes), minlength=classes).double()
    refuse_empty_classes(counts, None, "a weighted error", "these examples")
    return counts
