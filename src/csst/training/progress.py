"""Progress of a long command: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console

from csst.training.records import Record
from csst.training.trainer import Trainer

#: lines printed over a whole command, without a terminal
LINES = 10


class Progress:
    """The progress of a command through `total` steps or other items.

    Args:
        total: the number of items.
        unit: the name of an item.
        start: the number of items done before.
    """

    def __init__(self, total: int, unit: str = "step", start: int = 0) -> None:
        self.total = total
        self.unit = unit
        self.live = None
        self.first_update: tuple[int, float] | None = None
        self.next_line = start
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.live = Bar(
                TextColumn(unit),
                MofNCompleteColumn(),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[line]}", markup=False),
                TimeRemainingColumn(),
                console=plain_console(stderr=True),
            )
            self.task = self.live.add_task(unit, total=total, completed=start, line="")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def update(self, count: int, line: str = "", is_last: bool = False) -> None:
        """Show the number of finished items, and a line about the latest one."""
        if self.live is not None:
            self.live.start()  # only now: embedding, before the first record, has its own bar
            self.live.update(self.task, completed=count, line=line)
        elif count >= self.next_line or is_last:
            place = f"{self.unit} {count:>{len(str(self.total))}}/{self.total}"
            print("  ".join(filter(None, (place, line, self._describe_time(count)))), file=sys.stderr, flush=True)
            self.next_line = count + max(1, self.total // LINES)

    def show(self, trainer: Trainer, record: Record) -> None:
        """Show step, worst recall, objective, used fraction, largest multiplier, speed and time left."""
        self.update(record.step, describe(trainer, record), trainer.is_complete)

    def _describe_time(self, count: int) -> str:
        """Return the estimated time left; nothing at the first update."""
        if self.first_update is None:
            self.first_update = (count, time.perf_counter())
            return ""
        first_count, first_time = self.first_update
        seconds = (time.perf_counter() - first_time) / max(1, count - first_count) * (self.total - count)
        return f"{seconds:.0f} s left"


class Watchers(list[Callable[[Trainer, Record], None]]):
    """Functions of a trainer and a record, called one after another."""

    def __call__(self, trainer: Trainer, record: Record) -> None:
        for watcher in self:
            watcher(trainer, record)


def describe(trainer: Trainer, record: Record) -> str:
    """Return one line: worst recall 0.71 · objective 0.71 · used 0.83 · λ recall['8'] 0.31 · 12,000/s"""
    worst_class = min(range(len(record.recall)), key=record.recall.__getitem__)
    parts = [
        f"worst recall {record.recall[worst_class]:.3f} ({trainer.task.class_names[worst_class]})",
        f"objective {record.value:.3f}",
    ]
    if record.slack and min(record.slack) < 0:
        parts.append(f"constraints missed by {-min(record.slack):.3f}")
    if record.used is not None:
        parts.append(f"used {record.used:.2f}")
    if record.multipliers:
        index = max(range(len(record.multipliers)), key=record.multipliers.__getitem__)
        parts.append(f"λ {trainer.multipliers.labels[index]} {record.multipliers[index]:.2f}")
    if record.examples_per_second is not None:
        parts.append(f"{record.examples_per_second:,.0f}/s")
    return " · ".join(parts)


def plain_console(**options: Any) -> Console:
    """Return a console that prints text unchanged: [head] is no markup and :cat: no picture."""
    return Console(markup=False, emoji=False, highlight=False, **options)
