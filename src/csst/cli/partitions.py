"""Folders of tables, predicted file by file: every file's predictions have the same place in another folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from csst.data.tabular.files import is_table
from csst.errors import InputError
from csst.runs.folder import Run

#: a file in the folder of predictions: what they are of
RECORD = "predictions.json"


class Part(NamedTuple):
    """A file of the input folder, and the file of its predictions."""

    source: Path
    target: Path

    @property
    def is_done(self) -> bool:
        """Whether there are predictions, and the input has not changed since."""
        return self.target.exists() and self.target.stat().st_mtime >= self.source.stat().st_mtime


@dataclass(frozen=True)
class Record:
    """The model and the options of a folder of predictions.

    Args:
        model: the SHA-256 of the run's metrics, which hold the rule and the checksum of the model.
        objective: another sentence than the run's, or "".
        keep: columns of the input that are kept.
        has_all: whether there is a column for every class.
        text_column: the column of texts, or "" for the one of training.
    """

    model: str
    objective: str
    keep: tuple[str, ...]
    has_all: bool
    text_column: str

    def write(self, folder: Path) -> None:
        """Store the record in a new folder; raise an error if the folder is of another model or of other options."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / RECORD
        text = json.dumps(asdict(self), indent=1) + "\n"
        if path.exists() and path.read_text() != text:
            raise InputError(f"{folder} holds predictions of another model or with other options: name another folder")
        if not path.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} holds files that are no predictions of csst: name an empty or a new folder")
        path.write_text(text)


def hash_model(run: str) -> str:
    """Return the SHA-256 of a run's metrics, which hold the rule and the checksum of the model."""
    return hashlib.sha256(Run(run).path("metrics.json").read_bytes()).hexdigest()


def list_parts(folder: str, output: str) -> list[Part]:
    """Return the tables of a folder and of its sub-folders, sorted, with the files of their predictions.

    Predictions of a .csv or .parquet file have its name; predictions of any other table are a CSV file.
    """
    if not output:
        raise InputError(f"{folder} is a folder, which is predicted file by file: name a folder for predictions by -o")
    root = Path(folder).resolve()
    target_root = Path(output).resolve()
    if target_root.is_relative_to(root):
        raise InputError(f"predictions would lie among the files of {folder}: name a folder outside of it")
    if target_root.is_file() or target_root.suffix:
        raise InputError(f"{folder} is a folder, so are its predictions; found the file name {output}")
    sources = sorted(path for path in root.rglob("*") if path.is_file() and is_table(path))
    if not sources:
        raise InputError(f"{folder} holds no .csv, .tsv, .jsonl or .parquet file")
    parts = []
    for source in sources:
        place = source.relative_to(root)
        name = place.name if place.suffix.lower() in (".csv", ".parquet") else f"{place.name}.csv"
        parts.append(Part(source, target_root / place.with_name(name)))
    return parts
