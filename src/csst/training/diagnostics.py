"""Training that goes wrong without failing: said once, as soon as it shows, with what to do about it.

Five ways: wrong pseudo-labels pass a threshold that is too loose, no pseudo-label passes one that is too strict, both
in turn because the gain moves faster than the network learns, the multipliers of a worst case end up on a single class,
and the pseudo-labels of a class are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_USED, FALL = 0.9, 0.1
LEAST_USED, ONCE_USED = 0.01, 0.05
MOST_WEIGHT = 0.99
IN_A_ROW = 5
#: weight of a class's pseudo-labels below which unlabeled data is said to hurt
LEAST_TEACHING = 0.5


class CollapseDetector:
    """Looks at one record after another.

    labels: of the multipliers. shared: which of them weigh the entries of a worst case. steps: of the whole training.
    class_names: of the K classes, for messages.
    """

    def __init__(
        self, labels: tuple[str, ...], shared: list[bool], steps: int, class_names: Sequence[str] = ()
    ) -> None:
        self.labels, self.shared, self.steps, self.class_names = labels, shared, steps, class_names
        self.notes: dict[str, str] = {}
        self.best, self.most_used = -float("inf"), 0.0
        self.unused, self.alone = 0, 0
        self.wrong = 0

    def update(self, record: dict[str, Any]) -> list[str]:
        """What this record is the first to show."""
        notes = {"loose": self._loose(record), "strict": self._strict(record), "alone": self._alone(record)}
        notes["wrong"] = self._wrong(record)
        new = {kind: note for kind, note in notes.items() if note and kind not in self.notes}
        for kind, other in (("strict", "loose"), ("loose", "strict")):
            if kind in new and other in self.notes:  # no threshold is both too loose and too strict
                new[kind] = self._swings(record)
        self.notes |= new
        return list(new.values())

    def _swings(self, record: dict[str, Any]) -> str:
        return (
            f"at step {record['step']} {record['used']:.0%} of the pseudo-labels were used, after the opposite before: "
            "not the threshold but the gain is the cause, which changes faster than the network learns; raise "
            "dual.steps_per_update and leave tau as it is"
        )

    def _loose(self, record: dict[str, Any]) -> str:
        best, self.best = self.best, max(self.best, record["score"])
        if record["used"] is None or record["used"] <= MOST_USED or record["score"] >= best - FALL:
            return ""
        return (
            f"at step {record['step']} {record['used']:.0%} of the pseudo-labels were used while the score fell "
            f"from {best:.3f} to {record['score']:.3f}: wrong pseudo-labels pass the threshold; lower tau"
        )

    def _strict(self, record: dict[str, Any]) -> str:
        used = record["used"]
        if used is None:
            return ""
        self.most_used = max(self.most_used, used)
        self.unused = self.unused + 1 if used < LEAST_USED else 0
        once = self.most_used >= ONCE_USED
        needed = IN_A_ROW if once else 2 * IN_A_ROW
        if self.unused < needed or not (once or record["step"] >= self.steps / 2):
            return ""
        return (
            f"at step {record['step']} less than {LEAST_USED:.0%} of the pseudo-labels were used for {needed} "
            f"updates, after at most {self.most_used:.0%}: the unlabeled data has no effect; raise tau (csst methods) "
            "or lower confidence (others)"
        )

    def _alone(self, record: dict[str, Any]) -> str:
        values = zip(record["multipliers"], self.labels, self.shared, strict=True)
        worst = [(value, label) for value, label, shared in values if shared]
        top = max(worst) if len(worst) > 1 else (0.0, "")
        self.alone = self.alone + 1 if top[0] > MOST_WEIGHT else 0
        if self.alone < IN_A_ROW:
            return ""
        return (
            f"at step {record['step']} the multiplier of {top[1]} has held {top[0]:.1%} of the weight for {IN_A_ROW} "
            "updates, so the other classes are hardly trained for: lower dual.step_size, or let it decay with "
            "dual.schedule linear"
        )

    def _wrong(self, record: dict[str, Any]) -> str:
        teaching = record.get("teacher_weights")
        if not teaching:
            return ""
        lowest = min(teaching)
        self.wrong = self.wrong + 1 if lowest < LEAST_TEACHING else 0
        if self.wrong < IN_A_ROW:
            return ""
        worst = teaching.index(lowest)
        name = repr(self.class_names[worst]) if self.class_names else worst
        return (
            f"at step {record['step']} pseudo-labels of class {name} count {lowest:.0%}: they are wrong on validation "
            f"rows (about {record['teacher_accuracy'][worst]:.0%} are right) or many more than the class has examples; "
            "the unlabeled data may hurt: compare with csl or la, which learn without it"
        )
