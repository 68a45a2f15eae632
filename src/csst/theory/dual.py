"""The other player: whether the multipliers settled, and how far classifier and multipliers are from a saddle point.

    max_F min_{lambda in domain} u(C[F]) + lambda . phi(C[F])

The theory of such games promises that the *average* of the iterates approaches a saddle point; the last one may circle
around it. `dual_diagnostics` reads a run's journal only; `duality_gap` needs probabilities and labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, confusion_counts
from csst.maths.gain import gain_matrix
from csst.maths.objectives import Objective, lagrangian

#: over the last half of a run: fraction of the way that was undone, and largest swing, above which a run warns
TURNING, SWING = 0.8, 0.1
#: entropy of the multipliers of a worst case as a fraction of the largest possible, below which a run warns
ENTROPY = 0.25
#: total variation between average and last multipliers, and last move, above which a run warns
APART, MOVING = 0.2, 0.02
FEWEST = 4


def dual_diagnostics(
    journal: Sequence[Mapping[str, Any]],
    labels: Sequence[str] | None = None,
    simplex_mask: Sequence[bool] | None = None,
) -> dict[str, Any]:
    """What the multipliers did, from a run's journal: plain numbers, and `warnings` in words.

        updates           records used
        last, average     multipliers at the end, and their mean weighted by step size (what the theory is about)
        average_to_last   distance between them: half the l1 norm, divided by the larger sum
        payoff_last, payoff_average   the smallest payoff at the end, and of the average payoff (mixture of all models)
        regret            how much lower the multipliers could have kept the mean payoff with the best fixed choice (one
                          worst case only, else None); near 0 means that the multipliers played well
        turning, swing    over the last half: fraction of the multipliers' way that was undone, largest range of any
        shared            how many of the multipliers weigh the entries of a worst case
        entropy, effective    of those at the end: entropy over its maximum, and how many payoffs matter; None without
        last_move         the last change of the multipliers, half the l1 norm
        warnings          sentences

    Args:
        journal: T records (`Record.as_dict()`), each with m multipliers.
        labels: names of the multipliers, m of them.
        simplex_mask: which of them weigh the entries of a worst case rather than price a constraint, m of them
            (`domain.simplex_mask`); None takes them for one worst case if they always sum to 1, else for prices.

    Returns:
        The numbers by the names above.
    """
    lam, phi, size = _history(journal)
    shared = _shared(lam, simplex_mask)
    names = list(labels) if labels is not None and len(labels) == lam.shape[1] else _numbered(lam.shape[1])
    diagnostics: dict[str, Any] = {"updates": len(lam), "warnings": []}
    if not lam.shape[1] or not len(lam):
        return diagnostics  # an objective without worst case or constraint: nobody plays against the classifier
    weight = size / size.sum() if size.sum() > 0 else np.full(len(lam), 1 / len(lam))
    average, last = weight @ lam, lam[-1]
    mean_payoff = weight @ phi
    half = lam[len(lam) // 2 :]
    path = np.abs(np.diff(half, axis=0)).sum()
    undone = 1 - np.abs(half[-1] - half[0]).sum() / path if path > 0 else 0.0
    swing = half.max(0) - half.min(0)
    scale = max(float(last.sum()), float(average.sum()), 1e-12)
    entropy = _entropy(last[shared]) if shared.sum() > 1 else None
    diagnostics |= {
        "last": last.tolist(),
        "average": average.tolist(),
        "average_to_last": float(np.abs(average - last).sum() / 2 / scale),
        "payoff_last": float(phi[-1].min()),
        "payoff_average": float(mean_payoff.min()),
        "regret": _regret(lam, phi) if shared.all() and len(lam) > 1 and _sums_to_1(lam) else None,
        "turning": float(undone),
        "swing": float(swing.max()),
        "entropy": None if entropy is None else entropy / float(np.log(shared.sum())),
        "effective": None if entropy is None else float(np.exp(entropy)),
        "shared": int(shared.sum()),
        "last_move": float(np.abs(lam[-1] - lam[-2]).sum() / 2) if len(lam) > 1 else 0.0,
    }
    diagnostics["warnings"] = _warnings(diagnostics, names, swing / scale, np.where(shared, last, 0), scale)
    return diagnostics


@dataclass(frozen=True)
class DualityGap:
    """How far a classifier and multipliers are from a saddle point.

    Args:
        gap: best_response - worst: at least 0, and 0 at a saddle point.
        best_response: the game's value for the best classifier found against the multipliers (a lower bound of the best
            there is).
        current: the game's value for the two at hand.
        worst: its value for the classifier at hand against the worst multipliers.
        violation: the largest miss of a constraint, 0 without.
    """

    gap: float
    best_response: float
    current: float
    worst: float
    violation: float


def duality_gap(
    objective: Objective,
    multipliers: Any,
    probs: Tensor,
    labels: Tensor,
    predictions: Tensor | None = None,
    largest_multiplier: float | None = None,
) -> DualityGap:
    """How far a classifier and multipliers are from a saddle point, on examples with labels.

        max_F [u(C[F]) + lambda . phi(C[F])] - min_{lambda'} [u(C) + lambda' . phi(C)],     C of the classifier at hand

    The best response is the plug-in rule argmax_j sum_i G_ij p_i(x) for the gain of these multipliers, or the
    classifier itself if that is better. A missed constraint can be priced without limit, so the prices get a limit.

    Args:
        objective: u and phi.
        multipliers: lambda, (m,).
        probs: calibrated P(y | x) under the labels' own class fractions, (n, K); the raw softmax of a
            cost-sensitive model is not.
        labels: class indices, (n,).
        predictions: of the classifier at hand, (n,); None takes argmax probs.
        largest_multiplier: the limit of a price; None takes twice the largest multiplier, at least 1.

    Returns:
        The gap and its parts.
    """
    values = as_float64(multipliers, "the multipliers").detach().cpu()
    posterior = as_float64(probs, "probs").detach().cpu()
    if posterior.ndim != 2 or len(posterior) != len(labels):
        raise InputError(f"probs need one row per label; found {tuple(posterior.shape)} for {len(labels)} labels")
    classes = posterior.shape[1]
    at_hand = _confusion(labels, posterior.argmax(1) if predictions is None else predictions, classes)
    objective = objective.bind_prior(at_hand.prior)
    gain = gain_matrix(objective, values, at_hand, at_hand.prior, "evaluation").matrix
    response = _confusion(labels, (posterior @ gain).argmax(1), classes)
    current = float(lagrangian(objective, values, at_hand))
    best = max(current, float(lagrangian(objective, values, response)))
    limit = (
        max(1.0, 2 * float(values.max())) if largest_multiplier is None and len(values) else largest_multiplier or 0.0
    )
    missed = objective.slack(at_hand).clamp(max=0)
    worst = min(current, float(objective.value(at_hand) + limit * missed.sum()))
    return DualityGap(best - worst, best, current, worst, -float(missed.min()) if len(missed) else 0.0)


def average_multipliers(journal: Sequence[Mapping[str, Any]]) -> Tensor:
    """The mean of the multipliers, weighted by step size: what the theory of such games is about.

    Args:
        journal: T records (`Record.as_dict()`), each with m multipliers.

    Returns:
        The mean, (m,), float64.
    """
    lam, _, size = _history(journal)
    if not len(lam):
        raise InputError("the journal has no records yet")
    weight = size / size.sum() if size.sum() > 0 else np.full(len(lam), 1 / len(lam))
    return torch.from_numpy(weight @ lam)


def _warnings(
    numbers: dict[str, Any], names: list[str], swing: np.ndarray, worst_case: np.ndarray, scale: float
) -> list[str]:
    warnings = []
    if numbers["updates"] >= FEWEST and numbers["turning"] > TURNING and swing.max() > SWING:
        at = int(swing.argmax())
        warnings.append(
            f"the multipliers oscillate: over the last half of the run {numbers['turning']:.0%} of their movement "
            f"was undone, and the one of {names[at]} swung by {swing[at]:.0%} of their sum: lower dual.step_size, or "
            "let it decay (dual.schedule linear)"
        )
    if numbers["entropy"] is not None and numbers["entropy"] < ENTROPY:
        at = int(worst_case.argmax())
        warnings.append(
            f"the multipliers have collapsed on {names[at]}: only {numbers['effective']:.1f} of {numbers['shared']} "
            "payoffs count for the classifier now, and the others need many updates to come back: lower "
            "dual.step_size, or update less often (dual.steps_per_update)"
        )
    if numbers["updates"] >= FEWEST and numbers["average_to_last"] > APART:
        warnings.append(
            f"the last multipliers are {numbers['average_to_last']:.0%} away from their average over the run; theory "
            f"speaks of the average: the mixture of all models has smallest payoff {numbers['payoff_average']:.3f}, "
            f"the last model {numbers['payoff_last']:.3f}"
        )
    if numbers["updates"] >= FEWEST and numbers["last_move"] > MOVING * scale:
        warnings.append(
            f"the multipliers were still moving when the run ended (last move {numbers['last_move'] / scale:.1%} of "
            "their sum): train longer, or let the step size decay"
        )
    return warnings


def _history(journal: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers (T, m), payoffs (T, m) and step sizes (T,) of the records."""
    for record in journal:
        missing = [key for key in ("multipliers", "payoff", "step_size") if key not in record]
        if missing:
            raise InputError(f"a journal record needs {', '.join(missing)}; found only {', '.join(record)}")
    lengths = {len(record["multipliers"]) for record in journal} | {len(record["payoff"]) for record in journal}
    if len(lengths) > 1:
        raise InputError(f"all records need multipliers and payoffs of one length; found lengths {sorted(lengths)}")
    shape = (len(journal), max(lengths, default=0))
    lam = np.array([record["multipliers"] for record in journal], float).reshape(shape)
    phi = np.array([record["payoff"] for record in journal], float).reshape(shape)
    return lam, phi, np.array([record["step_size"] for record in journal], float)


def _shared(lam: np.ndarray, simplex_mask: Sequence[bool] | None) -> np.ndarray:
    if simplex_mask is not None:
        mask = np.asarray(simplex_mask, bool)
        if mask.shape != lam.shape[1:]:
            raise InputError(f"simplex_mask needs one entry per multiplier; found {len(mask)} for {lam.shape[1]}")
        return mask
    return np.full(lam.shape[1], bool(lam.size) and _sums_to_1(lam))


def _sums_to_1(lam: np.ndarray) -> bool:
    return bool((np.abs(lam.sum(1) - 1) < 1e-6).all())


def _regret(lam: np.ndarray, phi: np.ndarray) -> float:
    """mean_t lambda_{t-1} . phi_t - min_k mean_t phi_tk: a record's multipliers are those after its payoff was seen."""
    paid = (lam[:-1] * phi[1:]).sum(1).mean()
    return float(paid - phi[1:].mean(0).min())


def _entropy(values: np.ndarray) -> float:
    fractions = values / values.sum()
    positive = fractions[fractions > 0]
    return float(-(positive * np.log(positive)).sum())


def _numbered(count: int) -> list[str]:
    return [f"payoff {k}" for k in range(count)]


def _confusion(labels: Tensor, predictions: Tensor, classes: int) -> Confusion:
    return Confusion.from_counts(confusion_counts(labels.cpu(), predictions.cpu(), classes))
