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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from csst import __version__
from csst.data.tabular.columns import Columns
from csst.errors import InputError

CHECKPOINT_VERSION = 5
CHECKPOINT = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"
COLUMNS = "columns.json"
CHECKSUM_MAGIC = b"csst sha256 "
CHECKSUM_SIZE = len(CHECKSUM_MAGIC) + hashlib.sha256().digest_size


class CorruptFileError(InputError):
    """A file whose content does not match its checksum, or cannot be read."""


class Run:
    """The folder of one training run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.unreadable: set[str] = set()  # damaged checkpoints, which must not replace a good one

    @classmethod
    def create(cls, folder: str | Path, recipe: dict[str, Any]) -> Run:
        """Create the folder with its recipe and environment."""
        run = cls(folder)
        run.make_folder()
        run.write("environment.json", json.dumps(environment(), indent=2))
        run.describe(recipe)
        return run

    def make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the run's folder {self.folder} cannot be written: {error}") from None

    def describe(self, recipe: dict[str, Any]) -> None:
        self.write("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        run = cls(folder)
        if not cls.exists(folder):
            recipes = sorted(Path(folder).glob("*/recipe.yaml"))
            if recipes:
                raise InputError(f"{folder} is not a run but holds some: name one of them, such as {recipes[0].parent}")
            raise InputError(f"{folder} is not a run: it has no recipe.yaml")
        return run

    @staticmethod
    def exists(folder: str | Path) -> bool:
        return (Path(folder) / "recipe.yaml").is_file()

    def path(self, name: str) -> Path:
        return self.folder / name

    def recipe(self) -> dict[str, Any]:
        settings = self._read("recipe.yaml", yaml.safe_load, yaml.YAMLError)
        if not isinstance(settings, dict):
            raise InputError(f"{self.path('recipe.yaml')} holds no settings: restore it, or start a new run")
        return settings

    @property
    def is_complete(self) -> bool:
        return self.path("metrics.json").is_file()

    def metrics(self) -> dict[str, Any]:
        if not self.is_complete:
            raise InputError(f"the run {self.folder} is not complete: continue it with csst train ... --resume")
        return self._read("metrics.json", json.loads, RecursionError)

    def _read(self, name: str, parse: Any, parse_error: type[Exception]) -> Any:
        try:
            return parse(self.path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, parse_error) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{self.path(name)} cannot be read ({reason}): restore it, or start a new run") from None

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
        self.write(name, buffer.getvalue())

    def load(self, name: str) -> dict[str, Any] | None:
        """Return a saved state, None if there is none. Loading runs no code from the file."""
        path = self.path(name)
        if not path.is_file():
            return None
        way_out = ""
        if name not in (CHECKPOINT, PREVIOUS):
            way_out = "; restore it, or delete metrics.json and continue with --resume, which writes it anew"
        try:
            data = path.read_bytes()
            content = data[:-CHECKSUM_SIZE]
            checksum = data[-CHECKSUM_SIZE:]
            has_checksum = checksum.startswith(CHECKSUM_MAGIC)
            if has_checksum and hashlib.sha256(content).digest() != checksum[len(CHECKSUM_MAGIC) :]:
                raise CorruptFileError(f"{path} is damaged: its content does not match its checksum{way_out}")
            state = torch.load(io.BytesIO(content if has_checksum else data), map_location="cpu", weights_only=True)
        except CorruptFileError:
            raise
        except Exception as error:  # a damaged or hostile file can make the unpickler raise anything
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise CorruptFileError(f"{path} cannot be read as a checkpoint: {reason}{way_out}") from None
        version = state.get("version") if isinstance(state, dict) else None
        if version != CHECKPOINT_VERSION:
            raise InputError(
                f"{path} has format {version}, and csst {__version__} reads format {CHECKPOINT_VERSION}: use the csst "
                "that environment.json names, or train again in another folder"
            )
        if not has_checksum:
            raise CorruptFileError(f"{path} is damaged: it lacks its checksum{way_out}")
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

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file atomically: first under another name, then renamed over the old one.

        An old checkpoint is kept as PREVIOUS.
        """
        target = self.path(name)
        neighbor = self.path(name + ".partial")
        data = content.encode() if isinstance(content, str) else content
        with self._writing(name):
            try:
                with neighbor.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if name == CHECKPOINT and target.is_file() and name not in self.unreadable:
                    os.replace(target, self.path(PREVIOUS))  # a kill before the next line leaves only this one
                os.replace(neighbor, target)
            except OSError:
                with suppress(OSError):
                    neighbor.unlink()
                raise
        self.unreadable.discard(name)

    def write_columns(self, columns: Columns | None) -> None:
        """Write what the columns of the training table hold, if it was one."""
        if columns is not None:
            self.write(COLUMNS, json.dumps(columns.as_dict(), indent=1, ensure_ascii=False))

    def columns(self) -> Columns | None:
        """Return what the columns of the training table hold; None if the run did not learn from a table."""
        if not self.path(COLUMNS).is_file():
            return None
        try:
            return Columns.from_dict(self._read(COLUMNS, json.loads, RecursionError))
        except (TypeError, KeyError, AttributeError):
            raise InputError(f"{self.path(COLUMNS)} does not describe columns: restore it, or train again") from None

    def write_checked(self, name: str, content: bytes) -> str:
        """Write a file and return its SHA-256, which `read_checked` compares."""
        self.write(name, content)
        return hashlib.sha256(content).hexdigest()

    def read_checked(self, name: str, digest: str) -> bytes:
        """Read a file that `write_checked` wrote; raise an error if its SHA-256 differs."""
        path = self.path(name)
        way_out = "restore it, or delete metrics.json and continue with --resume"
        if not path.is_file():
            raise InputError(f"the run {self.folder} has no {name}: {way_out}")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise CorruptFileError(
                f"{path} is damaged: its content does not match the checksum in metrics.json: {way_out}"
            )
        return content

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"{self.path(name)} cannot be written ({error.strerror or error}): free some space or unlock the "
                "file, then continue with --resume; what was saved before is intact"
            ) from None


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
