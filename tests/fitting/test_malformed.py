"""A run whose metrics.json is JSON, but not what csst writes, is refused in one sentence by whatever reads it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

import csst
from csst.fitting.fitted_model import FittedModel
from csst.fitting.folder import refuse_malformed
from csst.report.run_view import read_run

RUN = Path(__file__).parents[1] / "faults" / "release-0.1.0" / "network"


@pytest.mark.parametrize(
    ("read", "name", "value"),
    [
        (FittedModel.load, "class_names", 3),
        (FittedModel.load, "labeled_counts", {}),
        (FittedModel.load, "input_shape", "x"),
        (read_run, "class_names", 3),
    ],
)
def test_wrong_values(tmp_path, read, name, value):
    folder = Path(shutil.copytree(RUN, tmp_path / "run"))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics[name] = value
    (folder / "metrics.json").write_text(json.dumps(metrics))
    with pytest.raises(csst.InputError, match=r"metrics\.json does not hold what csst writes there"):
        read(folder)


def test_a_card_of_wrong_values(tmp_path):
    model = FittedModel.load(RUN)
    for values in ({"validation": {}}, {"test": {"intervals": {"recall": [{"low": "x"}]}}}):
        damaged = dataclasses.replace(model, metrics=model.metrics | values)
        with pytest.raises(csst.InputError, match=r"metrics\.json does not hold"):
            damaged.export(tmp_path / "model.safetensors", "safetensors")


def test_an_error_becomes_a_sentence_with_its_reason(tmp_path):
    sentence = r"a\.json does not hold what csst writes there \(KeyError: 'b'\)"
    with pytest.raises(csst.InputError, match=sentence), refuse_malformed(tmp_path / "a.json"):
        {}["b"]
    with pytest.raises(csst.InputError, match="as it is"), refuse_malformed(tmp_path / "a.json"):
        raise csst.InputError("as it is")
