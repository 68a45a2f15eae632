"""A folder of files that are written atomically: what a fitted model is stored in and loaded from.

model.safetensors  the model                        metrics.json   the results; its presence means complete
columns.json       the columns of a table, by name  recipe.yaml    the settings, if a recipe was carried out

The checksum of the model is in metrics.json, with one of its own. `csst.runs.folder.Run` adds the files of a training.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml

from csst.data.tabular.columns import Columns
from csst.errors import InputError

COLUMNS = "columns.json"
#: entry of metrics.json: the checksum of the others
CHECKSUM = "checksum"

F = TypeVar("F", bound="Folder")


class CorruptFileError(InputError):
    """A file whose content does not match its checksum, or cannot be read."""


def digest_metrics(metrics: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the values of metrics.json, other than the checksum itself."""
    values = {name: value for name, value in metrics.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class Folder:
    """The folder of a fitted model."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"the run's folder {self.folder} cannot be written: {error}") from None

    @classmethod
    def open(cls: type[F], folder: str | Path) -> F:
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
        metrics = self._read_mapping("metrics.json")
        # Earlier releases wrote none, and whoever changes a value on purpose takes it out.
        if CHECKSUM in metrics and metrics.pop(CHECKSUM) != digest_metrics(metrics):
            raise CorruptFileError(
                f"{self.path('metrics.json')} is not as csst wrote it: its values do not match its checksum; restore "
                f"it, or train again (to use it as it is, delete its entry {CHECKSUM!r})"
            )
        return metrics

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Write metrics.json, with the checksum that `metrics` compares."""
        values = json.loads(json.dumps(metrics))
        self.write("metrics.json", json.dumps({**values, CHECKSUM: digest_metrics(values)}, indent=2))

    def _read_mapping(self, name: str) -> dict[str, Any]:
        content = self._read(name, json.loads, RecursionError)
        if not isinstance(content, dict):
            raise InputError(
                f"{self.path(name)} must hold names and values; found {type(content).__name__}: restore it"
            )
        return content

    def _read(self, name: str, parse: Any, parse_error: type[Exception]) -> Any:
        try:
            return parse(self.path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, parse_error) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{self.path(name)} cannot be read ({reason}): restore it, or start a new run") from None

    def write(self, name: str, content: str | bytes, former_name: str = "") -> None:
        """Write a file atomically: first under another name, then renamed over the old one.

        Args:
            name: the file.
            content: content of the file.
            former_name: name under which the old file is kept; empty to replace it.
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
                if former_name and target.is_file():
                    os.replace(target, self.path(former_name))  # a kill before the next line leaves only this one
                os.replace(neighbor, target)
            except OSError:
                with suppress(OSError):
                    neighbor.unlink()
                raise

    def write_columns(self, columns: Columns | None) -> None:
        """Write what the columns of the training table hold, if it was one."""
        if columns is not None:
            self.write(COLUMNS, json.dumps(columns.as_dict(), indent=1, ensure_ascii=False))

    def columns(self) -> Columns | None:
        """Return what the columns of the training table hold; None if the run did not learn from a table."""
        if not self.path(COLUMNS).is_file():
            return None
        values = self._read(COLUMNS, json.loads, RecursionError)
        try:
            return Columns.from_dict(values)
        except ValueError:
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
