"""Damaged tables, columns.json and costs.csv, and damaged runs with their models and exports, for `fuzz.py`."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst.cli import main as run_command
from csst.data.costs import read_costs
from csst.data.tabular.labeled_tables import read_labeled_table
from csst.fitting.fitted_model import FittedModel
from csst.fitting.folder import COLUMNS, Folder
from csst.fitting.model_file import MODEL
from csst.report.run_view import WATCHED, read_run
from csst.runs.folder import CHECKPOINT, Run

Use = Callable[[Any], None]
#: what is put in the place of a value of a JSON file
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    0.5,
    float("nan"),
    "",
    "number",
    "\x00",
    "<b>",
    [],
    [1],
    {},
    {"a": 1},
)
#: pieces that make tables messy
PIECES = (b"", b",", b";", b'"', b"\n", b"\r", b"\x00", b"\xff", b"NA", b"?", b"1,5", b"2026-02-30", b"1e999", b"-inf")
#: rows of numbers with gaps, categories, dates and labels
TABLE = "size;color;day;kind;region\n" + "".join(
    f"{i * 7 % 11 if i % 9 else ''};{('red', 'blue', '')[i % 3]};2026-0{i % 8 + 1}-1{i % 9};"
    f"{('cat', 'dog', 'eel')[i % 3] if i % 2 else ''};{('north', 'south')[i // 7 % 2]}\n"
    for i in range(60)
)
COSTS = b"EUR,cat,dog\ncat,0,5\ndog,200,-1\n"


# ── Damage ──


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with up to six faults: other, missing, inserted or repeated ones."""
    content = bytearray(data)
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(content) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            content[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            content[at:at] = rng.choice(PIECES)
        elif kind == 2:
            del content[at : at + rng.randint(1, 20)]
        elif kind == 3:
            content[at:at] = content[max(0, at - 30) : at]
        elif rng.random() < 0.3:
            del content[at:]
    return bytes(content)


def damage_values(values: Any, rng: random.Random) -> Any:
    """Return the values of a JSON file with one of them replaced or removed, at any depth."""
    if rng.random() < 0.1 or not isinstance(values, (dict, list)) or not values:
        return rng.choice(VALUES)
    key = rng.choice(list(values) if isinstance(values, dict) else range(len(values)))
    if rng.random() < 0.1:
        del values[key]
    else:
        values[key] = damage_values(values[key], rng)
    return values


def damage_file(data: bytes, rng: random.Random) -> bytes:
    """Return the content of a file with damage to its bytes or, if it is JSON, half of the time to its values."""
    if data[:1] in (b"{", b"[") and rng.random() < 0.5:
        with contextlib.suppress(ValueError):
            return json.dumps(damage_values(json.loads(data), rng)).encode()
    return damage(data, rng)


# ── Tables and what describes them ──


@cache
def make_parquet() -> bytes:
    """Return the table as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    lines = [line.split(";") for line in TABLE.splitlines()]
    columns = {name: list(cells) for name, *cells in zip(*lines, strict=True)}
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def tables(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield damaged tables, columns.json and costs.csv: the name of the file and its content."""
    text = TABLE.encode()
    rows = [dict(zip(TABLE.split("\n")[0].split(";"), line.split(";"), strict=True)) for line in TABLE.splitlines()[1:]]
    whole = {
        "table.csv": [text, text.replace(b";", b","), TABLE.encode("utf-16"), b"\xef\xbb\xbf" + text],
        "table.tsv": [text.replace(b";", b"\t")],
        "table.jsonl": ["".join(json.dumps(row) + "\n" for row in rows).encode()],
        "table.parquet": [make_parquet()],
        "columns.json": [json.dumps(describe_columns()).encode()],
        "costs.csv": [COSTS, COSTS.replace(b",", b", ")],
    }
    while True:
        name = rng.choice(list(whole))
        yield name, damage_file(rng.choice(whole[name]), rng)


@cache
def describe_columns() -> list[dict[str, Any]]:
    """Return what columns.json says of the table."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(TABLE, encoding="utf-8")
        return read_labeled_table(str(path), "kind")[1].as_dict()


def table_user(folder: Path) -> Use:
    """Return what is done with a damaged table: it is read with labels and groups, described and encoded."""

    def use(given: tuple[str, bytes]) -> None:
        name, content = given
        path = folder / name
        path.write_bytes(content)
        if name == "costs.csv":
            read_costs(path).matrix(("cat", "dog"), 2)
        elif name == COLUMNS:
            columns = Folder(folder).columns()
            assert columns is not None
            cells = {column.name: np.array(["1", "red", None], dtype=object) for column in columns.inputs}
            columns.encode(cells)
        else:
            arrays, columns = read_labeled_table(str(path), "kind", group="region")
            if arrays["x"].shape != (len(arrays["y"]), columns.width) or not np.isfinite(arrays["x"]).all():
                raise AssertionError("rows of a table are not finite numbers of its columns")

    return use


# ── Runs ──


@cache
def make_runs() -> dict[str, dict[str, bytes]]:
    """Return the files of two runs by name: a linear model of the table with a rule, and a network."""
    import tempfile

    runs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mine.csv").write_text(TABLE, encoding="utf-8")
        table = ["array", "--data.path", str(folder / "mine.csv"), "--data.label", "kind", "--learner", "linear"]
        network = "toy --data.labeled 60 --data.unlabeled 120 --data.validation 40 --data.test 60 --training.steps 40"
        for run, words in {"table": [*table, "--rule", "fit"], "network": network.split()}.items():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                if run_command(["train", *words, "--out", str(folder / run)]) != 0:
                    raise SystemExit(f"the run {run} could not be made")
            # What the monitor writes, too; the page itself is an output and nobody's input.
            note = json.dumps({"input": ["new.csv"], "sentences": ["as before"]})
            (folder / run / WATCHED).write_text(f"{note}\n", encoding="utf-8")
            files = [path for path in (folder / run).iterdir() if path.suffix != ".html"]
            runs[run] = {path.name: path.read_bytes() for path in files}
    return runs


def damages(rng: random.Random) -> Iterator[tuple[str, str, bytes]]:
    """Yield a run, one of its files, and damaged content of the file."""
    runs = make_runs()
    while True:
        run = rng.choice(list(runs))
        name = rng.choice(list(runs[run]))
        yield run, name, damage_file(runs[run][name], rng)


def run_user(folder: Path) -> Use:
    """Return what is done with a run: its page is prepared, its model predicts and is exported, its files are read."""
    runs = make_runs()
    for run, files in runs.items():
        (folder / run).mkdir()
        for name, content in files.items():
            (folder / run / name).write_bytes(content)

    def use(given: tuple[str, str, bytes]) -> None:
        run, name, content = given
        place = folder / run
        (place / name).write_bytes(content)
        try:
            if name == MODEL:  # whoever changes the model can change the checksums
                metrics = Run(place).metrics()
                metrics["checksums"][MODEL] = hashlib.sha256(content).hexdigest()
                Run(place).write_metrics(metrics)
            if name == CHECKPOINT:
                Run.open(place).checkpoint()
                return
            read_run(place)
            model = FittedModel.load(place)
            shape = json.loads(runs[run]["metrics.json"])["input_shape"]
            probs = model.predict_proba(torch.zeros(3, *shape))
            if not torch.isfinite(probs).all():
                raise AssertionError("probabilities are not finite")
            model.export(folder / "model.safetensors", "safetensors")
        finally:
            for file in {name, "metrics.json"}:
                (place / file).write_bytes(runs[run][file])

    return use
