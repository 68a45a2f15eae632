"""A run's folder: recipe, environment, journal, checkpoints, metrics. All files are written atomically.

recipe.yaml       the resolved settings            journal.jsonl    one line per multiplier update
environment.json  versions, machine, command       checkpoint.pt    the whole game, to resume from
model.safetensors the kept models' weights         metrics.json     the results; its presence means complete
columns.json      the columns of a table, by name

checkpoint.previous.pt is the second newest checkpoint. A checkpoint ends in the checksum of its content; the checksum
of the model is in metrics.json.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from csst import __version__
from csst.errors import InputError
from csst.fitting.folder import CorruptFileError, Folder
from csst.fitting.plan import naming_version
from csst.recipes import Recipe, from_dict

CHECKPOINT_VERSION = 5
CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"
CHECKSUM_MAGIC = b"csst sha256 "
CHECKSUM_SIZE = len(CHECKSUM_MAGIC) + hashlib.sha256().digest_size


class Run(Folder):
    """The folder of one training run."""

    @cached_property
    def unreadable(self) -> set[str]:
        """Names of damaged checkpoints, which must not replace a good one."""
        return set()

    @classmethod
    def create(cls, folder: str | Path, recipe: dict[str, Any]) -> Run:
        """Create the folder with its recipe and environment."""
        run = cls(folder)
        run.make_folder()
        run.write("environment.json", json.dumps(environment(), indent=2))
        run.describe(recipe)
        return run

    def describe(self, recipe: dict[str, Any]) -> None:
        self.write("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))

    def read_environment(self) -> dict[str, Any]:
        """Return the versions, the machine and the command of the run; nothing if its environment.json is missing."""
        return self._read_mapping("environment.json") if self.path("environment.json").is_file() else {}

    def journal(self) -> list[dict[str, Any]]:
        """Return the records so far, without a last line that a kill has cut short."""
        return [record for record, _ in self.records()]

    def records(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Read the journal line by line; yield each record and the offset at which its line ends."""
        if not self.path("journal.jsonl").is_file():
            return
        end = 0
        damaged_line = None  # an error only if another line follows: a kill may cut the last one short
        with self.path("journal.jsonl").open("rb") as journal:
            for number, line in enumerate(journal, 1):
                if damaged_line is not None:
                    raise InputError(
                        f"line {damaged_line} of {self.path('journal.jsonl')} is damaged: delete this line to continue "
                        "without its record, restore the file, or start a new run"
                    )
                end += len(line)
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                if line.endswith(b"\n") and isinstance(record, dict) and isinstance(record.get("step"), int):
                    yield record, end
                else:
                    damaged_line = number

    def append(self, record: dict[str, Any]) -> None:
        with self._writing("journal.jsonl"), self.path("journal.jsonl").open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(record) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def rewind(self, step: int) -> None:
        """Drop the records after this step, which training will write again."""
        last_step = -1
        size = 0
        for record, end in self.records():
            if record["step"] > step:
                break
            last_step = record["step"]
            size = end
        path = self.path("journal.jsonl")
        if last_step < step:
            warnings.warn(
                f"{path} ends at step {last_step}, the checkpoint at {step}: some records are lost", stacklevel=2
            )
        with self._writing("journal.jsonl"), path.open("ab") as journal:
            journal.truncate(size)
            os.fsync(journal.fileno())

    def save(self, name: str, state: dict[str, Any]) -> None:
        buffer = io.BytesIO()
        torch.save({"version": CHECKPOINT_VERSION, **state}, buffer)
        buffer.write(CHECKSUM_MAGIC + hashlib.sha256(buffer.getbuffer()).digest())
        keeps_former = name == CHECKPOINT and name not in self.unreadable
        self.write(name, buffer.getvalue(), former_name=PREVIOUS if keeps_former else "")
        self.unreadable.discard(name)

    def load(self, name: str) -> dict[str, Any] | None:
        """Return a saved state, None if there is none. Loading runs no code from the file."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            data = path.read_bytes()
            content = data[:-CHECKSUM_SIZE]
            checksum = data[-CHECKSUM_SIZE:]
            has_checksum = checksum.startswith(CHECKSUM_MAGIC)
            if has_checksum and hashlib.sha256(content).digest() != checksum[len(CHECKSUM_MAGIC) :]:
                raise CorruptFileError(f"{path} is damaged: its content does not match its checksum")
            state = torch.load(io.BytesIO(content if has_checksum else data), map_location="cpu", weights_only=True)
        except CorruptFileError:
            raise
        except Exception as error:  # a damaged or hostile file can make the unpickler raise anything
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorruptFileError(f"{path} cannot be read as a checkpoint: {reason}") from None
        version = state.get("version") if isinstance(state, dict) else None
        if version != CHECKPOINT_VERSION:
            raise InputError(
                f"{path} has format {version}, and csst {__version__} reads format {CHECKPOINT_VERSION}: use the csst "
                "that environment.json names, or train again in another folder"
            )
        if not has_checksum:
            raise CorruptFileError(f"{path} is damaged: it lacks its checksum")
        return state

    def checkpoint(self) -> dict[str, Any] | None:
        """Return the newest checkpoint; if it is damaged, warn and return the one before. None before the first."""
        errors: list[str] = []
        for name in (CHECKPOINT, PREVIOUS):
            try:
                state = self.load(name)
            except CorruptFileError as error:
                self.unreadable.add(name)
                errors.append(str(error))
                continue
            if state is not None:
                for sentence in errors:
                    warnings.warn(f"{sentence}; continuing from {name}, the one before it", stacklevel=2)
                return state
        if errors:
            raise InputError(
                f"{'; '.join(errors)}; there is no other checkpoint: restore it, or delete it to train from the start"
            )
        return None


def read_recipe(folder: str | Path) -> Recipe:
    """Return the recipe of a run; raise an error if another version of csst wrote it."""
    values = Run.open(folder).recipe()
    with naming_version(folder):
        return from_dict(values)


def environment() -> dict[str, Any]:
    """Return the versions, the machine and the command of this process."""
    return {
        "csst": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": read_processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }


def read_processor() -> str:
    """Return the processor's name; its architecture if the system does not tell the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
