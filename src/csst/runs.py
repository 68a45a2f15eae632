"""A run's folder: recipe, environment, journal, checkpoints, metrics. Every file is written whole or not at all.

recipe.yaml       the resolved settings            journal.jsonl    one line per multiplier update
environment.json  versions, machine, command       checkpoint.pt    the whole game, to resume from
model.pt          the selected model's weights     metrics.json     the results; its presence means finished
"""

from __future__ import annotations

import io
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from csst import __version__
from csst.errors import InputError

CHECKPOINT_VERSION = 2


class Run:
    """The folder of one training run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: str | Path, recipe: dict[str, Any]) -> Run:
        """A new folder."""
        run = cls(folder)
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            run.write("environment.json", json.dumps(environment(), indent=2))
            run.write("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
        except OSError as error:
            raise InputError(f"the run's folder {folder} cannot be written: {error}") from None
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        run = cls(folder)
        if not cls.exists(folder):
            raise InputError(f"{folder} is not a run: it has no recipe.yaml")
        return run

    @staticmethod
    def exists(folder: str | Path) -> bool:
        return (Path(folder) / "recipe.yaml").is_file()

    def path(self, name: str) -> Path:
        return self.folder / name

    def recipe(self) -> dict[str, Any]:
        return yaml.safe_load(self.path("recipe.yaml").read_text(encoding="utf-8"))

    @property
    def finished(self) -> bool:
        return self.path("metrics.json").is_file()

    def metrics(self) -> dict[str, Any]:
        if not self.finished:
            raise InputError(f"the run {self.folder} has not finished: continue it with csst train ... --resume")
        return json.loads(self.path("metrics.json").read_text(encoding="utf-8"))

    def journal(self) -> list[dict[str, Any]]:
        """The records so far; a torn last line, left by a kill in the middle of a write, is not one."""
        if not self.path("journal.jsonl").is_file():
            return []
        records = []
        for line in self.path("journal.jsonl").read_bytes().split(b"\n"):
            try:
                records.append(json.loads(line))
            except ValueError:
                break
        return records

    def append(self, record: dict[str, Any]) -> None:
        with self.path("journal.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(record) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def rewind(self, step: int) -> None:
        """Drop the records after this step: they will be written again, exactly so."""
        kept = [json.dumps(record) + "\n" for record in self.journal() if record["step"] <= step]
        self.write("journal.jsonl", "".join(kept))

    def save(self, name: str, state: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save({"version": CHECKPOINT_VERSION, **state}, buffer)
        self.write(name, buffer.getvalue())

    def load(self, name: str) -> dict[str, Any] | None:
        """A saved state, or None where there is none. Loading runs no code from the file."""
        if not self.path(name).is_file():
            return None
        try:
            state = torch.load(self.path(name), map_location="cpu", weights_only=True)
        except Exception as error:  # the unpickler raises whatever a damaged or hostile file makes it
            reason = str(error).splitlines()[0]
            raise InputError(f"{self.path(name)} cannot be read as a checkpoint: {reason}") from None
        if not isinstance(state, dict) or state.get("version") != CHECKPOINT_VERSION:
            raise InputError(f"{self.path(name)} is not a checkpoint of this version of csst ({__version__})")
        return state

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file whole or not at all: to a neighbour first, then renamed over the old one."""
        target, neighbour = self.path(name), self.path(name + ".partial")
        data = content.encode() if isinstance(content, str) else content
        with neighbour.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(neighbour, target)


def environment() -> dict[str, Any]:
    """What the numbers were made with."""
    return {
        "csst": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }
