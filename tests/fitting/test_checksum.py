"""metrics.json carries a checksum of its own: a value that csst did not write is refused in one sentence."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

import csst
from csst.fitting.fitted_model import FittedModel
from csst.fitting.folder import CorruptFileError, Folder
from csst.report.run_view import read_run

RUN = Path(__file__).parents[1] / "faults" / "release-0.1.0" / "network"


@pytest.fixture
def folder(tmp_path):
    """A run of an earlier release, with the checksum that is written now."""
    copy = Path(shutil.copytree(RUN, tmp_path / "run"))
    run = Folder(copy)
    run.write_metrics(run.metrics())
    return copy


def test_what_was_written_is_read(tmp_path):
    metrics = {"a": [1, 0.1, math.inf], 2: {"b": None}, "c": (1, "ä")}
    Folder(tmp_path).write_metrics(metrics)
    assert Folder(tmp_path).metrics() == {"a": [1, 0.1, math.inf], "2": {"b": None}, "c": [1, "ä"]}


@pytest.mark.parametrize("read", [FittedModel.load, read_run])
@pytest.mark.parametrize(("name", "value"), [("class_names", 3), ("seconds", 1.0), ("new", {})])
def test_a_changed_value_is_refused(folder, read, name, value):
    path = folder / "metrics.json"
    read(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(CorruptFileError, match=r"metrics\.json is not as csst wrote it.*delete its entry 'checksum'"):
        read(folder)


def test_without_a_checksum_values_are_taken_as_they_are(folder):
    path = folder / "metrics.json"
    metrics = json.loads(path.read_text())
    del metrics["checksum"]
    path.write_text(json.dumps(metrics | {"class_names": ["a", "b", "c"]}))
    assert FittedModel.load(folder).class_names == ("a", "b", "c")


def test_metrics_that_are_no_names_and_values(folder):
    (folder / "metrics.json").write_text("[1, 2]")
    with pytest.raises(csst.InputError, match="must hold names and values; found list"):
        FittedModel.load(folder)
