"""Measured lines: each is written to a file when it is measured and never measured again, so runs can be continued.

`python -m benchmarks.results_check --repeat MODULE` measures a random twentieth of the lines once more and compares.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


#: parts of the names of values that differ from one run to the next: times, and the commit
UNSTEADY = ("seconds", "cpu", "commit", "speed", "megabytes")


class Repeated(Exception):
    """Carries what measuring lines once more has shown, out of the script that measures them.

    Args:
        file: the log.
        numbers: the drawn lines of the file, from 1.
        differences: what differs, as text for each drawn line that does.
    """

    def __init__(self, file: Path, numbers: list[int], differences: list[str]) -> None:
        super().__init__(f"{len(differences)} of {len(numbers)} lines of {file.name} differ")
        self.file, self.numbers, self.differences = file, numbers, differences


def drop_unsteady(value: Any) -> Any:
    """Return the values of a line that must repeat: without times and the commit."""
    if isinstance(value, dict):
        return {k: drop_unsteady(v) for k, v in value.items() if not any(part in k for part in UNSTEADY)}
    return value


class Log:
    """The lines of a file, by what they are of."""

    #: fraction of the lines to measure once more, instead of those that are missing
    repeated_fraction: float = 0.0

    def __init__(self, file: Path, keys: tuple[str, ...]) -> None:
        self.file, self.keys = file, keys
        read = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
        self.lines: dict[tuple, Line] = {self.identify(line): line for line in read}

    def identify(self, line: Line) -> tuple:
        return tuple(line[key] for key in self.keys)

    def add(self, line: Line) -> None:
        self.lines[self.identify(line)] = line
        with self.file.open("a") as out:
            out.write(json.dumps(line) + "\n")

    def measure(self, cells: Iterable[Line], measure: Callable[[Line], Line]) -> list[Line]:
        """All lines, after every cell that is not among them was measured: the cell and what `measure` adds to it."""
        import torch
        from threadpoolctl import threadpool_limits

        torch.set_num_threads(1)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.repeated_fraction:
                self._repeat(cells, measure)
            for cell in cells:
                if self.identify(cell) not in self.lines:
                    line = cell | measure(cell)
                    self.add(line)
                    print(json.dumps(line)[:200], flush=True)
        return list(self.lines.values())

    def _repeat(self, cells: Iterable[Line], measure: Callable[[Line], Line]) -> None:
        """Measure lines that are drawn at random once more, and raise `Repeated` with what differs."""
        texts = self.file.read_text().splitlines()
        numbers = {self.identify(json.loads(text)): number for number, text in enumerate(texts, start=1)}  # the last
        count = max(1, round(self.repeated_fraction * len(numbers)))
        keys = set(random.Random(0).sample(list(numbers), count))
        drawn_numbers = sorted(numbers[key] for key in keys)
        differences = []
        for cell in cells:
            key = self.identify(cell)
            if key not in keys:
                continue
            keys.remove(key)
            before = drop_unsteady(self.lines[key])
            now = drop_unsteady(json.loads(json.dumps(cell | measure(cell))))
            if now != before:
                names = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
                values = ", ".join(f"{n}: {before.get(n)} was measured, {now.get(n)} is" for n in sorted(names))
                differences.append(f"{key}: {values[:500]}")
            print(f"{key}: {'the same' if now == before else 'differs'}", flush=True)
        differences += [f"{key}: the script no longer measures it" for key in sorted(keys, key=str)]
        raise Repeated(self.file, drawn_numbers, differences)
