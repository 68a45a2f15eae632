"""What the multipliers follow: the averaged model on validation rows and, pooled with them, on unlabeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from csst.data.examples import Examples
from csst.data.sampling import stream
from csst.data.task import Task
from csst.estimation.class_rates import RateEstimate, estimate_rates
from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.unlabeled_prior import estimate_balance
from csst.maths.confusion import Confusion, confusion_counts
from csst.maths.gain import Gain
from csst.training.batches import Batches
from csst.training.engine import Engine
from csst.training.evaluation import compute_logits

#: unlabeled rows that are only measured if rates are pooled: at most this many, and at most this fraction of all
WATCHED_ROWS = 2000
WATCHED_PART = 0.2
#: unlabeled rows that estimate the unlabeled class prior, whether they are learned from or not: at most this many
BALANCE_ROWS = 2000
#: the random streams that choose the rows
WATCHED_STREAM = 7
BALANCE_STREAM = 8


@dataclass(frozen=True)
class Measurement:
    """Confusion counts on validation and, if an estimate needs them, the logits behind them.

    Args:
        counts: confusion counts, (K, K).
        logits: logits of the validation rows, (n, K).
        labels: classes of the validation rows, (n,).
        unlabeled: logits of the watched unlabeled rows, (m, K).
        balance: logits of the rows that estimate the unlabeled class prior.
        groups: groups of the validation rows, (n,); None without groups.
    """

    counts: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None
    unlabeled: Tensor | None = None
    balance: Tensor | None = None
    groups: Tensor | None = None


class Measurer:
    """Measures a model on a task, over all processes.

    Args:
        task: the examples.
        model: the averaged model.
        engine: devices and processes.
        batches: the shards of the processes.
        batch_size: examples per forward pass.
        needs_logits: whether an estimate needs the logits of validation rows beside their counts.
    """

    def __init__(
        self, task: Task, model: nn.Module, engine: Engine, batches: Batches, batch_size: int, needs_logits: bool
    ) -> None:
        self.task = task
        self.model = model
        self.engine = engine
        self.batches = batches
        self.batch_size = batch_size
        self.needs_logits = needs_logits

    def measure(self, watched: Tensor | None, balance_rows: Tensor | None) -> Measurement:
        """Measure the model on validation and on unlabeled rows; None measures no such rows."""
        return replace(
            self.measure_validation(),
            unlabeled=self.score_unlabeled(watched),
            balance=self.score_unlabeled(balance_rows),
        )

    def measure_validation(self) -> Measurement:
        """Count the confusion on validation, and return the logits as well if an estimate needs them."""
        validation = self.task.require("validation")
        if self.needs_logits:
            logits = self.score_validation()
            counts = confusion_counts(validation.labels, logits.argmax(1), self.task.classes)
            return Measurement(counts, logits, validation.labels, groups=validation.groups)
        shard, logits = self._score_shard(validation.inputs, torch.arange(len(validation)))
        counts = confusion_counts(validation.labels[shard], logits.argmax(1), self.task.classes)
        return Measurement(self.engine.total(counts))

    def score_unlabeled(self, index: Tensor | None) -> Tensor | None:
        """Return the logits of unlabeled rows, (m, K); None if no index is given."""
        return None if index is None else self.score(self.task.unlabeled, index)

    def score_validation(self) -> Tensor:
        """Return the logits of all validation rows, (n, K)."""
        validation = self.task.require("validation")
        return self.score(validation.inputs, torch.arange(len(validation)))

    def score(self, inputs: Examples, index: Tensor) -> Tensor:
        """Return the logits of examples, the same on all processes.

        Args:
            inputs: examples.
            index: positions of the examples to score, (n,).

        Returns:
            Logits in the order of the index, (n, K).
        """
        logits = torch.zeros(len(index), self.task.classes)
        if len(index):
            shard, shard_logits = self._score_shard(inputs, index)
            logits[shard] = shard_logits
        return self.engine.total(logits)

    def _score_shard(self, inputs: Examples, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return this process's positions within the index, and the logits of their examples."""
        shard, rounds = self.batches.shard_and_rounds(len(index), self.batch_size)
        return shard, compute_logits(self.model, inputs, self.batch_size, self.engine.device, index[shard], rounds)


def choose_watched(unlabeled: int, seed: int) -> Tensor:
    """Return the unlabeled rows that are measured and not learned from, sorted; the same on every process."""
    size = min(WATCHED_ROWS, int(WATCHED_PART * unlabeled))
    return torch.randperm(unlabeled, generator=stream(seed, WATCHED_STREAM))[:size].sort().values


def choose_rows(unlabeled: int, seed: int) -> Tensor:
    """Return the rows that estimate the unlabeled class prior, sorted; the same on every process."""
    return torch.randperm(unlabeled, generator=stream(seed, BALANCE_STREAM))[:BALANCE_ROWS].sort().values


def join(parts: Sequence[Measurement], unlabeled: Tensor | None, balance: Tensor | None = None) -> Measurement:
    """Merge measurements of disjoint validation rows into one."""
    counts = torch.stack([part.counts for part in parts]).sum(0)
    if parts[0].logits is None:
        return Measurement(counts)
    logits = torch.cat([part.logits for part in parts if part.logits is not None])
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    groups = None if parts[0].groups is None else torch.cat([part.groups for part in parts if part.groups is not None])
    return Measurement(counts, logits, labels, unlabeled, balance, groups)


def estimate_argmax(evidence: HeldOutScores, logits: Tensor, unlabeled: Tensor | None) -> RateEstimate:
    """Estimate the rates of a network's argmax, with the class prior of the labels, from its logits and evidence."""
    rows = logits if unlabeled is None or not len(unlabeled) else unlabeled
    return estimate_rates(evidence, logits.argmax(1).numpy(), rows.argmax(1).numpy(), evidence.fractions)


def evidence_from_logits(
    logits: Tensor,
    labels: Tensor,
    unlabeled: Tensor | None,
    gain: Gain,
    train_prior: Tensor,
    class_names: Sequence[str] | None = None,
    is_cross_fitted: bool = False,
) -> HeldOutScores:
    """Return a network's scores without the gain and the class prior that it was trained under."""
    return HeldOutScores.from_probs(
        torch.softmax(logits.double(), 1),
        labels,
        None if unlabeled is None else torch.softmax(unlabeled.double(), 1),
        train_prior=train_prior.double().cpu(),
        gain=gain,
        class_names=class_names,
        is_cross_fitted=is_cross_fitted,
    )


def measured_balance(measurement: Measurement, gain: Gain, task: Task) -> Tensor:
    """Estimate the class prior of the unlabeled rows, (K,), float64."""
    on_balance_rows = replace(measurement, unlabeled=measurement.balance)
    evidence = measured_evidence(on_balance_rows, gain, task)
    return torch.from_numpy(estimate_balance(evidence).prior)


def measured_evidence(measurement: Measurement, gain: Gain, task: Task) -> HeldOutScores:
    """Return the measured scores without the gain and the class prior that the network was trained under."""
    assert measurement.logits is not None
    assert measurement.labels is not None
    parts = (measurement.logits, measurement.labels, measurement.unlabeled)
    return evidence_from_logits(*parts, gain, task.train_prior, task.class_names)


def measured_confusion(measurement: Measurement, gain: Gain, task: Task) -> Confusion:
    """Return the confusion that drives the multipliers: the counts, or the pooled estimate if there are logits."""
    if measurement.logits is None:
        return Confusion.from_counts(measurement.counts, task.class_names)
    evidence = measured_evidence(measurement, gain, task)
    return estimate_argmax(evidence, measurement.logits, measurement.unlabeled).confusion
