"""What the multipliers look at: the averaged model on validation rows and, pooled with them, on unlabeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from csst.data.sampling import stream
from csst.estimation.class_rates import RateEstimate, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.unlabeled_prior import estimate_balance
from csst.maths.confusion import Confusion
from csst.maths.gain import Gain
from csst.rules.rule import undo_gain

#: unlabeled rows that are kept for measuring where rates are pooled: at most so many, and at most this part of all
WATCHED_ROWS, WATCHED_PART = 2000, 0.2
#: unlabeled rows whose class balance is estimated, learned from or not: at most so many
BALANCE_ROWS = 2000
#: the streams of random numbers that choose them
WATCHED_STREAM, BALANCE_STREAM = 7, 8


@dataclass(frozen=True)
class Measurement:
    """Confusion counts (K, K) on validation and, where more is estimated from them, the logits behind them.

    logits, labels: of the validation rows, (n, K) and (n,). unlabeled: logits of the watched unlabeled rows, (m, K).
    balance: logits of the unlabeled rows whose class balance is estimated.
    """

    counts: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None
    unlabeled: Tensor | None = None
    balance: Tensor | None = None


def choose_watched(unlabeled: int, seed: int) -> Tensor:
    """The unlabeled rows that are measured and not learned from, in row order; the same on every process."""
    size = min(WATCHED_ROWS, int(WATCHED_PART * unlabeled))
    return torch.randperm(unlabeled, generator=stream(seed, WATCHED_STREAM))[:size].sort().values


def choose_rows(unlabeled: int, seed: int) -> Tensor:
    """The unlabeled rows whose class balance is estimated, in row order; the same on every process."""
    return torch.randperm(unlabeled, generator=stream(seed, BALANCE_STREAM))[:BALANCE_ROWS].sort().values


def join(parts: Sequence[Measurement], unlabeled: Tensor | None, balance: Tensor | None = None) -> Measurement:
    """Measurements of disjoint validation rows as one."""
    counts = torch.stack([part.counts for part in parts]).sum(0)
    if parts[0].logits is None:
        return Measurement(counts)
    logits = torch.cat([part.logits for part in parts if part.logits is not None])
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    return Measurement(counts, logits, labels, unlabeled, balance)


def estimate_from_logits(
    logits: Tensor,
    labels: Tensor,
    unlabeled: Tensor | None,
    gain: Gain,
    train_prior: Tensor,
    class_names: Sequence[str] | None = None,
) -> RateEstimate:
    """The rates of the plain argmax of a network trained under a gain, under the class balance of the labels."""
    evidence = evidence_from_logits(logits, labels, unlabeled, gain, train_prior, class_names)
    rows = logits if unlabeled is None or not len(unlabeled) else unlabeled
    return estimate_rates(evidence, logits.argmax(1).numpy(), rows.argmax(1).numpy(), evidence.fractions)


def evidence_from_logits(
    logits: Tensor,
    labels: Tensor,
    unlabeled: Tensor | None,
    gain: Gain,
    train_prior: Tensor,
    class_names: Sequence[str] | None = None,
) -> HeldOutScores:
    """A network's scores with the gain and the class prior taken out that it was trained under."""
    inverse = gain.softmax_inverse

    def posterior(scores: Tensor) -> Tensor:
        probs = undo_gain(torch.softmax(scores.double(), 1), inverse)
        return probs / probs.sum(1, keepdim=True)

    more = None if unlabeled is None or not len(unlabeled) else posterior(unlabeled)
    prior = train_prior.double().cpu()
    return HeldOutScores.from_probs(posterior(logits), labels, more, train_prior=prior, class_names=class_names)


def measured_balance(
    measurement: Measurement, gain: Gain, train_prior: Tensor, class_names: Sequence[str] | None
) -> Tensor:
    """The class balance of the unlabeled rows as far as it is believed, (K,), float64."""
    on_balance_rows = replace(measurement, unlabeled=measurement.balance)
    evidence = measured_evidence(on_balance_rows, gain, train_prior, class_names)
    return torch.from_numpy(estimate_balance(evidence).prior)


def measured_evidence(
    measurement: Measurement, gain: Gain, train_prior: Tensor, class_names: Sequence[str] | None
) -> HeldOutScores:
    """The measured scores with the gain and the class prior taken out that the network was trained under."""
    assert measurement.logits is not None
    assert measurement.labels is not None
    return evidence_from_logits(
        measurement.logits, measurement.labels, measurement.unlabeled, gain, train_prior, class_names
    )


def measured_confusion(
    measurement: Measurement, gain: Gain, train_prior: Tensor, class_names: Sequence[str] | None
) -> Confusion:
    """The confusion that drives the multipliers: the counts, or the pooled estimate where there are logits."""
    if measurement.logits is None or measurement.labels is None:
        return Confusion.from_counts(measurement.counts, class_names)
    return estimate_from_logits(
        measurement.logits, measurement.labels, measurement.unlabeled, gain, train_prior, class_names
    ).confusion
