"""Measured lines: each is written to a file when it is measured and never measured again, so runs can be continued."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Log:
    """The lines of a file, by what they are of."""

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
            for cell in cells:
                if self.identify(cell) not in self.lines:
                    line = cell | measure(cell)
                    self.add(line)
                    print(json.dumps(line)[:200], flush=True)
        return list(self.lines.values())
