"""Constraints that look out of reach, said early in training and not only at its end."""

from __future__ import annotations

import warnings

import torch

from csst.maths.confusion import Confusion
from csst.rules import fit_evidence
from csst.rules.candidates import sharpness
from csst.rules.feasibility import describe_missed
from csst.rules.smooth import SmoothObjective
from csst.training.crossfit import CrossFit
from csst.training.generations import Generations
from csst.training.measuring import choose_rows, evidence_from_logits

#: the fraction of the steps after which it is asked
EARLY = 0.25
#: unlabeled rows that it looks at, at most
ROWS = 500


class ReachCheck:
    """Asks once, after a quarter of the steps, whether a decision rule on the network so far meets the constraints.

    runner: the training. All processes must call `warn_once` with every record, for they measure together.
    """

    def __init__(self, runner: Generations | CrossFit) -> None:
        self.runner, self.first_step = runner, EARLY * runner.settings.training.steps
        constraints = runner.objective.slack(Confusion.uniform(runner.trainer.task.train_prior))
        self.is_pending = len(constraints) > 0 and runner.step < self.first_step

    def warn_once(self, step: int) -> None:
        """Warn at the first record from that step on, if the constraints are missed by more than a standard error."""
        if not self.is_pending or step < self.first_step:
            return
        self.is_pending = False
        note = self.describe(step)
        if note and self.runner.engine.is_main:
            warnings.warn(note, stacklevel=3)

    def describe(self, step: int) -> str:
        """What to say of the network so far: the constraints missed, each with the nearest; "" if none is."""
        runner, kept = self.runner, self.runner.trainer
        parts = runner.folds if isinstance(runner, CrossFit) else [kept]
        task, gain = kept.task, runner.measured_gain
        held = [part.task.validation for part in parts]
        logits = [
            part.all_logits(labeled.inputs, torch.arange(len(labeled)))
            for part, labeled in zip(parts, held, strict=True)
        ]
        unlabeled = kept.all_logits(task.unlabeled, choose_rows(len(task.unlabeled), kept.seed)[:ROWS])
        labels = torch.cat([labeled.labels for labeled in held])
        evidence = evidence_from_logits(torch.cat(logits), labels, unlabeled, gain, task.train_prior, task.class_names)
        prior = task.validation_prior.numpy()
        fitted = fit_evidence(evidence, runner.objective, prior, gain.softmax_inverse, kept.seed)
        smooth = SmoothObjective(runner.objective, prior, sharpness(evidence))
        missed = describe_missed(smooth, fitted.estimate)
        if not missed:
            return ""
        return (
            f"at step {step} no decision rule on the network so far meets all constraints, {fitted.estimate.basis}: "
            f"{missed}: if this stays so, loosen the bound, or label more rows"
        )
