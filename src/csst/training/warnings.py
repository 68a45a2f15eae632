"""Training that goes wrong without failing: one warning as soon as it shows, with what to do about it.

`CollapseDetector` reads the records: wrong pseudo-labels pass a threshold that is too loose, no pseudo-label passes one
that is too strict, both in turn because the gain moves faster than the network learns, the multipliers of a worst case
end up on a single class, and the pseudo-labels of a class are wrong. `ReachCheck` asks early in training whether the
constraints can be met at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from csst.maths.confusion import Confusion
from csst.maths.multipliers import COLLAPSE_UPDATES, find_collapse
from csst.rules import fit_evidence
from csst.rules.candidates import soften
from csst.rules.feasibility import describe_missed
from csst.training.measurement import choose_rows, join, measured_evidence
from csst.training.training_run import TrainingRun

#: fraction of used pseudo-labels above which a falling score is blamed on them, and the fall
MOST_USED = 0.9
SCORE_DROP = 0.1
#: fraction of used pseudo-labels below which they have no effect, and the fraction that shows that they once had one
LEAST_USED = 0.01
ONCE_USED = 0.05
#: weight of a class's pseudo-labels below which unlabeled data is said to hurt
LEAST_TEACHING = 0.5
#: updates in a row that must show the same
IN_A_ROW = 5

#: fraction of the steps after which `ReachCheck` measures the constraints
EARLY = 0.25
#: unlabeled rows that `ReachCheck` measures, at most
ROWS = 500


class CollapseDetector:
    """Looks at one record after another and returns each warning once.

    Args:
        labels: names of the multipliers.
        shared: whether each multiplier weighs an entry of a worst case (`domain.simplex_mask`).
        steps: steps of the whole training.
        class_names: names of the K classes, for messages.
    """

    def __init__(
        self, labels: tuple[str, ...], shared: list[bool], steps: int, class_names: Sequence[str] = ()
    ) -> None:
        self.labels = labels
        self.shared = shared
        self.steps = steps
        self.class_names = class_names
        self.notes: dict[str, str] = {}
        self.highest_score = -float("inf")
        self.most_used = 0.0
        self.unused_updates = 0
        self.wrong_updates = 0
        self.multipliers: list[list[float]] = []

    @classmethod
    def of(cls, runner: TrainingRun) -> CollapseDetector:
        """Return the detector of a training."""
        game = runner.multipliers
        is_shared = game.objective.domain.simplex_mask(len(game.value)).tolist()
        return cls(game.labels, is_shared, runner.settings.training.steps, runner.trainer.task.class_names)

    def update(self, record: dict[str, Any]) -> list[str]:
        """Return the warnings that this record is the first to trigger."""
        notes = {
            "loose": self._note_loose_threshold(record),
            "strict": self._note_strict_threshold(record),
            "collapse": self._note_collapse(record),
            "wrong": self._note_wrong_teacher(record),
        }
        first_notes = {kind: note for kind, note in notes.items() if note and kind not in self.notes}
        for kind, opposite in (("strict", "loose"), ("loose", "strict")):
            if kind in first_notes and opposite in self.notes:  # no threshold is both too loose and too strict
                first_notes[kind] = self._note_swings(record)
        self.notes |= first_notes
        return list(first_notes.values())

    def _note_swings(self, record: dict[str, Any]) -> str:
        return (
            f"at step {record['step']} {record['used']:.0%} of the pseudo-labels were used, after the opposite before: "
            "not the threshold but the gain is the cause, which changes faster than the network learns; raise "
            "dual.steps_per_update and leave tau as it is"
        )

    def _note_loose_threshold(self, record: dict[str, Any]) -> str:
        score = record["score"]
        highest_score = self.highest_score
        self.highest_score = max(highest_score, score)
        if record["used"] is None or record["used"] <= MOST_USED or score >= highest_score - SCORE_DROP:
            return ""
        return (
            f"at step {record['step']} {record['used']:.0%} of the pseudo-labels were used while the score fell "
            f"from {highest_score:.3f} to {score:.3f}: wrong pseudo-labels pass the threshold; lower tau"
        )

    def _note_strict_threshold(self, record: dict[str, Any]) -> str:
        share = record["used"]
        if share is None:
            return ""
        self.most_used = max(self.most_used, share)
        self.unused_updates = self.unused_updates + 1 if share < LEAST_USED else 0
        had_effect = self.most_used >= ONCE_USED
        # At the start of a training nothing is trusted yet: wait longer, and for half of the steps.
        limit = IN_A_ROW if had_effect else 2 * IN_A_ROW
        if self.unused_updates < limit or not (had_effect or record["step"] >= self.steps / 2):
            return ""
        return (
            f"at step {record['step']} less than {LEAST_USED:.0%} of the pseudo-labels were used for {limit} "
            f"updates, after at most {self.most_used:.0%}: the unlabeled data has no effect; raise tau (csst methods) "
            "or lower confidence (others)"
        )

    def _note_collapse(self, record: dict[str, Any]) -> str:
        self.multipliers = [*self.multipliers[1 - COLLAPSE_UPDATES :], record["multipliers"]]
        collapse = find_collapse(self.multipliers, self.shared, self.labels)
        return f"at step {record['step']} {collapse}" if collapse else ""

    def _note_wrong_teacher(self, record: dict[str, Any]) -> str:
        weights = record.get("teacher_weights")
        if not weights:
            return ""
        lowest_weight = min(weights)
        self.wrong_updates = self.wrong_updates + 1 if lowest_weight < LEAST_TEACHING else 0
        if self.wrong_updates < IN_A_ROW:
            return ""
        index = weights.index(lowest_weight)
        name = repr(self.class_names[index]) if self.class_names else index
        return (
            f"at step {record['step']} pseudo-labels of class {name} count {lowest_weight:.0%}: they are wrong on "
            f"validation rows (about {record['teacher_accuracy'][index]:.0%} are right) or many more than the class "
            "has examples; the unlabeled data may hurt: compare with csl or la, which learn without it"
        )


class ReachCheck:
    """Checks once, after a quarter of the steps, whether a decision rule on the network so far meets the constraints.

    All processes must call `warn_once` with every record, because they measure together.

    Args:
        runner: the training.
    """

    def __init__(self, runner: TrainingRun) -> None:
        self.runner = runner
        self.first_step = EARLY * runner.settings.training.steps
        constraints = runner.objective.slack(Confusion.uniform(runner.trainer.task.train_prior))
        self.is_pending = len(constraints) > 0 and runner.step < self.first_step

    def warn_once(self, step: int) -> None:
        """Warn at the first record from `first_step` on if the constraints are missed by more than a standard error."""
        if not self.is_pending or step < self.first_step:
            return
        self.is_pending = False
        note = self.describe(step)
        if note and self.runner.engine.is_main:
            warnings.warn(note, stacklevel=3)

    def describe(self, step: int) -> str:
        """Return a sentence about the missed constraints, each with the nearest reachable bound; "" if all are met."""
        runner = self.runner
        trainer = runner.trainer
        task = trainer.task
        index = choose_rows(len(task.unlabeled), trainer.seed)[:ROWS]
        parts = [judge.measurer.measure_validation() for judge in runner.judges]
        measurement = join(parts, trainer.measurer.score_unlabeled(index))
        evidence = measured_evidence(measurement, runner.measured_gain, task)
        prior = task.validation_prior.numpy()
        fitted_rule = fit_evidence(evidence, runner.objective, prior, trainer.seed)
        soft_objective = soften(runner.objective, prior, evidence)
        misses = describe_missed(soft_objective, fitted_rule.estimate)
        if not misses:
            return ""
        return (
            f"at step {step} no decision rule on the network so far meets all constraints, "
            f"{fitted_rule.estimate.basis}: {misses}: if this stays so, loosen the bound, or label more rows"
        )
