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
        drawn: the drawn lines, from 1.
        different: what differs, as text for each drawn line that does.
    """

    def __init__(self, file: Path, drawn: list[int], different: list[str]) -> None:
        super().__init__(f"{len(different)} of {len(drawn)} lines of {file.name} differ")
        self.file, self.drawn, self.different = file, drawn, different


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
        places = list(self.lines)
        count = max(1, round(self.repeated_fraction * len(places)))
        drawn = sorted(random.Random(0).sample(range(len(places)), count))
        keys = {places[place] for place in drawn}
        different = []
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
                different.append(f"{key}: {values[:500]}")
            print(f"{key}: {'the same' if now == before else 'differs'}", flush=True)
        different += [f"{key}: the script no longer measures it" for key in sorted(keys, key=str)]
        raise Repeated(self.file, [place + 1 for place in drawn], different)
