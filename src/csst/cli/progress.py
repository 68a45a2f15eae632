"""How training looks while it runs: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from csst.cli.tables import plain_console
from csst.training.records import Record
from csst.training.trainer import Trainer

LINES = 10


class Progress:
    """How far a long command is: of `total` steps, or of something else.

    Args:
        total: how many there are.
        what: is counted.
        done: how many were done before.
    """

    def __init__(self, total: int, what: str = "step", done: int = 0) -> None:
        self.total, self.what, self.live = total, what, None
        self.first: tuple[int, float] | None = None
        self.next_line = done
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.live = Bar(
                TextColumn(what),
                MofNCompleteColumn(),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[line]}", markup=False),
                TimeRemainingColumn(),
                console=plain_console(stderr=True),
            )
            self.task = self.live.add_task(what, total=total, completed=done, line="")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def update(self, done: int, line: str = "", is_last: bool = False) -> None:
        """Show how many are done, and a line about the newest of them."""
        if self.live is not None:
            self.live.start()  # only now: embedding, before the first record, has a bar of its own
            self.live.update(self.task, completed=done, line=line)
        elif done >= self.next_line or is_last:
            place = f"{self.what} {done:>{len(str(self.total))}}/{self.total}"
            print("  ".join(filter(None, (place, line, self._left(done)))), file=sys.stderr, flush=True)
            self.next_line = done + max(1, self.total // LINES)

    def show(self, trainer: Trainer, record: Record) -> None:
        """Step, worst-class recall, objective, used fraction, the largest multiplier, speed and time left."""
        self.update(record.step, describe(trainer, record), trainer.is_complete)

    def _left(self, done: int) -> str:
        if self.first is None:
            self.first = (done, time.perf_counter())
            return ""
        begun, at = self.first
        left = (time.perf_counter() - at) / max(1, done - begun) * (self.total - done)
        return f"{left:.0f} s left"


def describe(trainer: Trainer, record: Record) -> str:
    """One line: worst recall 0.71 · objective 0.71 · used 0.83 · λ recall['8'] 0.31 · 12,000/s"""
    worst = min(range(len(record.recall)), key=record.recall.__getitem__)
    parts = [
        f"worst recall {record.recall[worst]:.3f} ({trainer.task.class_names[worst]})",
        f"objective {record.value:.3f}",
    ]
    if record.slack and min(record.slack) < 0:
        parts.append(f"constraints missed by {-min(record.slack):.3f}")
    if record.used is not None:
        parts.append(f"used {record.used:.2f}")
    if record.multipliers:
        top = max(range(len(record.multipliers)), key=record.multipliers.__getitem__)
        parts.append(f"λ {trainer.multipliers.labels[top]} {record.multipliers[top]:.2f}")
    if record.examples_per_second is not None:
        parts.append(f"{record.examples_per_second:,.0f}/s")
    return " · ".join(parts)
