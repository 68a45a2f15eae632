"""Calibration of scores on few labels: one temperature and one bias per class, kept small.

    P(y = k | x) proportional to  pi_k exp(T z_k(x) + a_k),     z = log p - log pi_train

z is what a model says with the class prior taken out that it was trained under, so that one calibration serves under
every class balance (Alexandari, Kundaje and Shrikumar, 2020). Classes weigh the same however few labels they have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

#: the ridge on bias and log-temperature: weaker suits badly calibrated models, stronger logit-adjusted ones
RIDGE = 5.0
#: the temperature stays within exp(-3) .. exp(3): scores that say nothing would send it to 0
WIDEST_LOG_TEMPERATURE = 3.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """A temperature and one bias per class that make scores z log-probabilities: T z + a.

    Args:
        temperature: T > 0, which multiplies.
        bias: a, (K,), which sums to 0.
    """

    temperature: float
    bias: np.ndarray

    @classmethod
    def identity(cls, classes: int) -> Calibration:
        """Return the calibration that changes nothing.

        Args:
            classes: K.

        Returns:
            T = 1 and a = 0.
        """
        return cls(1.0, np.zeros(classes))

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Return T z + a.

        Args:
            scores: z, (N, K).

        Returns:
            Calibrated scores, (N, K).
        """
        return self.temperature * scores + self.bias


def weigh_classes(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return n / (K n_k), what a label of each class weighs if all K classes that have one weigh the same, (K,)."""
    totals = np.bincount(labels, minlength=classes)
    class_count = max(1, (totals > 0).sum())
    return totals.sum() / (class_count * np.where(totals > 0, totals, 1.0))


def balanced_weights(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return w_i = n / (K n_{y_i}): every class weighs the same, and all rows together weigh n."""
    return weigh_classes(labels, classes)[labels]


def calibration_loss(
    parameters: np.ndarray, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, ridge: float | np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the loss of a calibration and its gradient in (a, log T).

        sum_i w_i CE(softmax(T z_i + a), y_i) + ridge/2 (|a - mean a|^2 + (log T)^2)

    A constant added to all biases changes no probability, so only what a bias differs from their mean by is drawn to 0:
    of two classes, a strong ridge on the rare one would else be evaded through the bias of the frequent one.

    ridge: one number, or one for each parameter, (K + 1,).
    """
    temperature = np.exp(parameters[-1])
    rows = np.arange(len(labels))
    logits = temperature * scores
    logits += parameters[:-1]
    logits -= logits.max(1, keepdims=True)
    label_logits = logits[rows, labels]
    error = np.exp(logits, out=logits)
    totals = error.sum(1)
    deviations = parameters - np.append(np.full(len(parameters) - 1, parameters[:-1].mean()), 0.0)
    pull = ridge * deviations
    value = weights @ (np.log(totals) - label_logits) + pull @ deviations / 2
    pull[:-1] -= pull[:-1].mean()
    error *= (weights / totals)[:, None]
    error[rows, labels] -= weights
    temperature_slope = temperature * np.einsum("ij,ij->", error, scores)
    return value, np.append(error.sum(0), temperature_slope) + pull


def fit_calibration(
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    ridge: float = RIDGE,
    start: Calibration | None = None,
) -> Calibration:
    """Return the calibration that fits labeled scores z (n, K) best, classes weighted alike.

    Args:
        scores: z, scores with the training prior taken out, (n, K).
        labels: class indices, (n,).
        ridge: how strongly bias and log-temperature are drawn to 0; the bias of a rare class is by max(1, w) times as
            much, w the weight of one of its labels.
        start: where to begin.
    """
    classes = scores.shape[1]
    begin = start or Calibration.identity(classes)
    weights = balanced_weights(labels, classes)
    # Five labels of a rare class pull at its bias as if there were a hundred, but tell no more than five do.
    bias_ridges = ridge * np.maximum(1.0, weigh_classes(labels, classes))
    bounds = [(None, None)] * classes + [(-WIDEST_LOG_TEMPERATURE, WIDEST_LOG_TEMPERATURE)]
    result = minimize(
        calibration_loss,
        np.append(begin.bias, np.log(begin.temperature)),
        args=(scores, labels, weights, np.append(bias_ridges, ridge)),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 200, "ftol": 1e-7, "gtol": 1e-4 * max(1.0, len(labels) / 100)},
    )
    bias = result.x[:-1]
    return Calibration(float(np.exp(result.x[-1])), bias - bias.mean())
