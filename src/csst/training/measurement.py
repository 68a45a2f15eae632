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
    """The logits of a model on validation and on unlabeled rows.

    Args:
        logits: logits of the validation rows, (n, K).
        labels: classes of the validation rows, (n,).
        groups: groups of the validation rows, (n,); None without groups.
        unlabeled: logits of the watched unlabeled rows, (m, K).
        balance: logits of the rows that estimate the unlabeled class prior.
    """

    logits: Tensor
    labels: Tensor
    groups: Tensor | None = None
    unlabeled: Tensor | None = None
    balance: Tensor | None = None

    @property
    def counts(self) -> Tensor:
        """Confusion counts of the argmax on validation, (K, K)."""
        return confusion_counts(self.labels, self.logits.argmax(1), self.logits.shape[1])


class Measurer:
    """Measures a model on a task, over all processes.

    Args:
        task: the examples.
        model: the averaged model.
        engine: devices and processes.
        batches: the shards of the processes.
        batch_size: examples per forward pass.
    """

    def __init__(self, task: Task, model: nn.Module, engine: Engine, batches: Batches, batch_size: int) -> None:
        self.task = task
        self.model = model
        self.engine = engine
        self.batches = batches
        self.batch_size = batch_size

    def measure(self, watched: Tensor | None, balance_rows: Tensor | None) -> Measurement:
        """Measure the model on validation and on unlabeled rows; None measures no such rows."""
        return replace(
            self.measure_validation(),
            unlabeled=self.score_unlabeled(watched),
            balance=self.score_unlabeled(balance_rows),
        )

    def measure_validation(self) -> Measurement:
        """Measure the model on validation rows alone."""
        validation = self.task.require("validation")
        logits = self.score(validation.inputs, torch.arange(len(validation)))
        return Measurement(logits, validation.labels, validation.groups)

    def score_unlabeled(self, index: Tensor | None) -> Tensor | None:
        """Return the logits of unlabeled rows, (m, K); None if no index is given."""
        return None if index is None else self.score(self.task.unlabeled, index)

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
            shard, rounds = self.batches.shard_and_rounds(len(index), self.batch_size)
            device = self.engine.device
            logits[shard] = compute_logits(self.model, inputs, self.batch_size, device, index[shard], rounds)
        return self.engine.total(logits)


def choose_watched(unlabeled: int, seed: int) -> Tensor:
    """Return the unlabeled rows that are measured and not learned from, sorted; the same on every process."""
    size = min(WATCHED_ROWS, int(WATCHED_PART * unlabeled))
    return torch.randperm(unlabeled, generator=stream(seed, WATCHED_STREAM))[:size].sort().values


def choose_rows(unlabeled: int, seed: int) -> Tensor:
    """Return the rows that estimate the unlabeled class prior, sorted; the same on every process."""
    return torch.randperm(unlabeled, generator=stream(seed, BALANCE_STREAM))[:BALANCE_ROWS].sort().values


def join(parts: Sequence[Measurement], unlabeled: Tensor | None, balance: Tensor | None = None) -> Measurement:
    """Merge measurements of disjoint validation rows into one."""
    logits = torch.cat([part.logits for part in parts])
    labels = torch.cat([part.labels for part in parts])
    groups = None if parts[0].groups is None else torch.cat([part.groups for part in parts if part.groups is not None])
    return Measurement(logits, labels, groups, unlabeled, balance)


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
    parts = (measurement.logits, measurement.labels, measurement.unlabeled)
    return evidence_from_logits(*parts, gain, task.train_prior, task.class_names)


def pooled_confusion(measurement: Measurement, gain: Gain, task: Task) -> Confusion:
    """Estimate the confusion of the argmax from counts and unlabeled rows together."""
    evidence = measured_evidence(measurement, gain, task)
    return estimate_argmax(evidence, measurement.logits, measurement.unlabeled).confusion
