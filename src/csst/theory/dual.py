"""The second player: whether the multipliers settled, and how far classifier and multipliers are from a saddle point.

    max_F min_{lambda in domain} u(C[F]) + lambda . phi(C[F])

The theory of such games promises that the *average* of the iterates approaches a saddle point; the last one may circle
around it. `dual_diagnostics` needs only a run's journal; `duality_gap` needs probabilities and labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64
from csst.maths.gain import gain_matrix
from csst.maths.multipliers import find_collapse
from csst.maths.objectives import Objective, lagrangian

#: A run warns if its multipliers have collapsed (`find_collapse`); if, over its last half, more than this fraction of
#: their movement was undone, and one of them ranged over more than SWING of their sum;
TURNING = 0.8
SWING = 0.1
#: if average and last multipliers differ by more than this in total variation;
AVERAGE_TO_LAST = 0.2
#: if the last update moved more than this fraction of the multipliers' sum.
LAST_MOVE = 0.02
#: Fewer updates than this show neither oscillation nor convergence.
FEWEST_UPDATES = 4


def dual_diagnostics(
    journal: Sequence[Mapping[str, Any]],
    labels: Sequence[str] | None = None,
    simplex_mask: Sequence[bool] | None = None,
) -> dict[str, Any]:
    """Summarize the multipliers' path from a run's journal: numbers, and `warnings` as sentences.

        updates           records used
        last              multipliers at the end
        average_to_last   their distance from `average_multipliers`: half the l1 norm, divided by the larger sum
        payoff_last, payoff_average   the smallest payoff at the end, and of the average payoff (mixture of all models)
        turning           fraction of the multipliers' movement over the last half that was undone
        entropy, effective    entropy of the multipliers of worst cases at the end over its maximum, and the number of
                          payoffs that matter; None without a worst case
        last_move         the last change of the multipliers, half the l1 norm
        warnings          sentences

    Args:
        journal: T records (`Record.as_dict()`), each with m multipliers.
        labels: names of the m multipliers.
        simplex_mask: whether each of the m multipliers weighs an entry of a worst case (`domain.simplex_mask`) rather
            than pricing a constraint; None means one worst case if they always sum to 1, else prices.

    Returns:
        The numbers by the names above.
    """
    lam, phi, step_sizes = _read_history(journal)
    mask = _find_simplex_mask(lam, simplex_mask)
    diagnostics: dict[str, Any] = {"updates": len(lam), "warnings": []}
    if not lam.shape[1] or not len(lam):
        return diagnostics  # an objective without worst case or constraint: nobody plays against the classifier
    weights = _average_weights(step_sizes)
    average = weights @ lam
    last_multipliers = lam[-1]
    scale = max(float(last_multipliers.sum()), float(average.sum()), 1e-12)
    last_half = lam[len(lam) // 2 :]
    amplitude = last_half.max(0) - last_half.min(0)
    diagnostics |= {
        "last": last_multipliers.tolist(),
        "average_to_last": float(np.abs(average - last_multipliers).sum() / 2 / scale),
        "payoff_last": float(phi[-1].min()),
        "payoff_average": float((weights @ phi).min()),
        "turning": _measure_turning(last_half),
        "entropy": None,
        "effective": None,
        "last_move": float(np.abs(lam[-1] - lam[-2]).sum() / 2) if len(lam) > 1 else 0.0,
    }
    if mask.sum() > 1:
        entropy = _compute_entropy(last_multipliers[mask])
        diagnostics["entropy"] = entropy / float(np.log(mask.sum()))
        diagnostics["effective"] = float(np.exp(entropy))
    if labels is None or len(labels) != lam.shape[1]:
        labels = [f"payoff {k}" for k in range(lam.shape[1])]
    collapse = find_collapse(lam.tolist(), mask.tolist(), labels)
    diagnostics["warnings"] = _list_warnings(diagnostics, labels, amplitude / scale, collapse, scale)
    return diagnostics


@dataclass(frozen=True)
class DualityGap:
    """The distance of a classifier and multipliers from a saddle point.

    Args:
        gap: best_response - worst: at least 0, and 0 at a saddle point.
        best_response: value of the game for the best classifier found against the multipliers (a lower bound of the
            best possible).
        worst: value of the game for the classifier against the worst multipliers.
    """

    gap: float
    best_response: float
    worst: float


def duality_gap(
    objective: Objective, multipliers: Any, probs: Tensor, labels: Tensor, predictions: Tensor
) -> DualityGap:
    """Measure how far a classifier and multipliers are from a saddle point, on labeled examples.

        max_F [u(C[F]) + lambda . phi(C[F])] - min_{lambda'} [u(C) + lambda' . phi(C)],     C of the given classifier

    The best response is the plug-in rule argmax_j sum_i G_ij p_i(x) for the gain of these multipliers, or the
    classifier itself if that is better. The price of a violated constraint has no maximum, so it is given one: twice
    the largest multiplier, and at least 1.

    Args:
        objective: u and phi.
        multipliers: lambda, (m,).
        probs: calibrated P(y | x) under the class fractions of the labels, (n, K); the raw softmax of a
            cost-sensitive model is not calibrated.
        labels: class indices, (n,).
        predictions: classes predicted by the classifier, (n,).

    Returns:
        The gap and its parts.
    """
    lam = as_float64(multipliers, "the multipliers").detach().cpu()
    posterior = as_float64(probs, "probs").detach().cpu()
    truth = labels.cpu()
    if posterior.ndim != 2 or len(posterior) != len(labels):
        raise InputError(f"probs need one row per label; found {tuple(posterior.shape)} for {len(labels)} labels")
    classes = posterior.shape[1]
    confusion = Confusion.from_predictions(truth, predictions.cpu(), classes)
    objective = objective.bind_prior(confusion.prior)
    gain = gain_matrix(objective, lam, confusion, confusion.prior, "evaluation").matrix
    response = Confusion.from_predictions(truth, (posterior @ gain).argmax(1), classes)
    current = float(lagrangian(objective, lam, confusion))
    best_response = max(current, float(lagrangian(objective, lam, response)))
    largest_price = max(1.0, 2 * float(lam.max())) if len(lam) else 0.0
    shortfall = objective.slack(confusion).clamp(max=0).sum()
    lowest_value = min(current, float(objective.value(confusion) + largest_price * shortfall))
    return DualityGap(best_response - lowest_value, best_response, lowest_value)


def average_multipliers(journal: Sequence[Mapping[str, Any]]) -> Tensor:
    """Return the mean of the multipliers, weighted by step size, which the theory of such games is about.

    Args:
        journal: T records (`Record.as_dict()`), each with m multipliers.

    Returns:
        The mean, (m,), float64.
    """
    lam, _, step_sizes = _read_history(journal)
    if not len(lam):
        raise InputError("the journal has no records yet")
    return torch.from_numpy(_average_weights(step_sizes) @ lam)


def _average_weights(step_sizes: np.ndarray) -> np.ndarray:
    """Return the weight of each record in the average, (T,): its step size, or 1/T if all of them are 0."""
    if step_sizes.sum() > 0:
        return step_sizes / step_sizes.sum()
    return np.full(len(step_sizes), 1 / len(step_sizes))


def _list_warnings(
    numbers: dict[str, Any], names: Sequence[str], ranges: np.ndarray, collapse: str, scale: float
) -> list[str]:
    has_history = numbers["updates"] >= FEWEST_UPDATES
    warnings = []
    if has_history and numbers["turning"] > TURNING and ranges.max() > SWING:
        index = int(ranges.argmax())
        warnings.append(
            f"the multipliers oscillate: over the last half of the run {numbers['turning']:.0%} of their movement "
            f"was undone, and the one of {names[index]} swung by {ranges[index]:.0%} of their sum: "
            "lower dual.step_size, or let it decay (dual.schedule linear)"
        )
    if collapse:
        warnings.append(collapse)
    if has_history and numbers["average_to_last"] > AVERAGE_TO_LAST:
        warnings.append(
            f"the last multipliers are {numbers['average_to_last']:.0%} away from their average over the run; theory "
            f"speaks of the average: the mixture of all models has smallest payoff {numbers['payoff_average']:.3f}, "
            f"the last model {numbers['payoff_last']:.3f}"
        )
    if has_history and numbers["last_move"] > LAST_MOVE * scale:
        warnings.append(
            f"the multipliers were still moving when the run ended (last move {numbers['last_move'] / scale:.1%} of "
            "their sum): train longer, or let the step size decay"
        )
    return warnings


def _read_history(journal: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the multipliers (T, m), payoffs (T, m) and step sizes (T,) of T records."""
    for record in journal:
        missing_keys = [key for key in ("multipliers", "payoff", "step_size") if key not in record]
        if missing_keys:
            raise InputError(f"a journal record needs {', '.join(missing_keys)}; found only {', '.join(record)}")
    lengths = {len(record["multipliers"]) for record in journal} | {len(record["payoff"]) for record in journal}
    if len(lengths) > 1:
        raise InputError(f"all records need multipliers and payoffs of one length; found lengths {sorted(lengths)}")
    shape = (len(journal), max(lengths, default=0))
    lam = np.array([record["multipliers"] for record in journal], float).reshape(shape)
    phi = np.array([record["payoff"] for record in journal], float).reshape(shape)
    return lam, phi, np.array([record["step_size"] for record in journal], float)


def _find_simplex_mask(lam: np.ndarray, simplex_mask: Sequence[bool] | None) -> np.ndarray:
    """Return which multipliers weigh the entries of a worst case, (m,); guess it from their sums if not told."""
    if simplex_mask is None:
        return np.full(lam.shape[1], bool(lam.size) and _sums_to_1(lam))
    mask = np.asarray(simplex_mask, bool)
    if mask.shape != lam.shape[1:]:
        raise InputError(f"simplex_mask needs one entry per multiplier; found {len(mask)} for {lam.shape[1]}")
    return mask


def _sums_to_1(lam: np.ndarray) -> bool:
    return bool((np.abs(lam.sum(1) - 1) < 1e-6).all())


def _measure_turning(lam: np.ndarray) -> float:
    """Return the fraction of the multipliers' movement that was undone: 1 - net movement / path length."""
    path = np.abs(np.diff(lam, axis=0)).sum()
    return float(1 - np.abs(lam[-1] - lam[0]).sum() / path) if path > 0 else 0.0


def _compute_entropy(values: np.ndarray) -> float:
    fractions = values / values.sum()
    positive = fractions[fractions > 0]
    return float(-(positive * np.log(positive)).sum())
