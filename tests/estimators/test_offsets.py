"""Columns far from 0 that differ by little, such as Unix time in seconds: what float32 would round away is kept."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import csst
from csst.cli import main
from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.tables import find_coarse_columns
from tests.helpers.exports import onnx

START = 1_700_000_000.0


@pytest.fixture(scope="module")
def rows():
    """Seconds within twenty minutes, which tell the class, a column of noise, and classes."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    seconds = np.round(120.0 * y + rng.normal(size=300) * 40)
    return pd.DataFrame({"time": START + seconds, "noise": rng.normal(size=300)}), y


def fit(X, y, learner="linear"):
    labels = np.where(np.arange(len(y)) < 150, y, -1)
    return csst.CSSTClassifier("max min(recall)", learner=learner).fit(X, labels)


@pytest.mark.parametrize("learner", ["linear", "forest"])
def test_a_frame_keeps_differences(rows, learner):
    frame, y = rows
    clf = fit(frame, y, learner)
    predictions = clf.predict(frame)
    assert (predictions == y)[150:].mean() > 0.85
    column = clf.columns_.parts[0]
    assert column.offset == np.median(frame["time"])
    assert "counted from" in column.notes[0]
    assert clf.predict(frame.to_numpy()).tolist() == predictions.tolist()
    moved = fit(frame.assign(time=frame["time"] - column.offset), y, learner)
    assert moved.predict(frame.assign(time=frame["time"] - column.offset)).tolist() == predictions.tolist()


def test_an_array_is_warned_about(rows):
    frame, y = rows
    with pytest.warns(UserWarning, match="columns 0 of X lose differences .* Subtract a number near the mean"):
        clf = fit(frame.to_numpy(), y)
    new_frame = clf.predict(frame)  # counted like the array, not from a median of its own
    assert new_frame.tolist() == clf.predict(frame.to_numpy()).tolist()


def test_a_run_predicts_with_the_offset_it_was_fitted_with(rows, tmp_path, capsys):
    frame, y = rows
    names = np.where(np.arange(300) < 150, np.array(["early", "late"])[y], "")
    frame.assign(label=names).to_csv(tmp_path / "train.csv", index=False)
    late_rows = frame[y == 1]  # their own median is another one
    late_rows.to_csv(tmp_path / "new.csv", index=False)
    command = ["train", "array", "--data.path", str(tmp_path / "train.csv"), "--learner", "linear"]
    main([*command, "--out", str(tmp_path / "run")])
    main(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")])
    predictions = pd.read_csv(tmp_path / "out.csv")["prediction"]
    assert (predictions == "late").mean() > 0.85
    stored = json.loads((tmp_path / "run" / "columns.json").read_text())
    assert stored[0]["offset"] == np.median(frame["time"])
    del stored[0]["offset"]  # as a run of an earlier version
    assert Columns.from_dict(stored).parts[0].offset == 0.0
    with pytest.raises(ValueError, match="offset must be of type float"):
        Columns.from_dict([{**stored[0], "offset": "1"}])


@onnx
def test_an_exported_model_says_what_to_subtract(rows, tmp_path):
    import onnxruntime

    frame, y = rows
    clf = fit(frame, y)
    clf.export(tmp_path / "model.onnx")
    offset = clf.columns_.parts[0].offset
    card = "".join(path.read_text() for path in tmp_path.glob("*.md"))
    assert f"{offset!r} is subtracted from column 0 in float64" in card
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    encoded = np.column_stack([frame["time"] - offset, frame["noise"]]).astype(np.float32)
    outputs = session.run(None, {session.get_inputs()[0].name: encoded})
    decisions = next(output for output in outputs if output.ndim == 1)
    assert decisions.tolist() == clf.predict(frame).tolist()


def test_gaps_and_dates_are_counted_from_the_offset_too():
    numbers = START + np.arange(40.0) * 7 + 0.25
    columns = learn_columns({"time": np.where(np.arange(40) == 3, np.nan, numbers)})
    offset = columns.parts[0].offset
    encoded = columns.encode({"time": np.array([np.nan, numbers[5]])})
    assert encoded[:, 0].tolist() == [0.0, np.float32(numbers[5] - offset)]
    moments = np.datetime64("2026-01-05T10:00:00") + np.arange(40).astype("timedelta64[s]")
    seconds = learn_columns({"when": moments}).encode({"when": moments})[:, 0] * 86400
    assert np.diff(seconds) == pytest.approx(np.ones(39), abs=1e-2)


def test_only_columns_that_lose_differences_are_coarse():
    rng = np.random.default_rng(0)
    spread = rng.normal(size=100)
    table = np.column_stack([spread, 300 + spread, 1e9 * spread, 2020 + (spread > 2), 1e9 + 0 * spread, 1e8 + spread])
    table = np.column_stack([table, np.full(100, 0.1)])  # equal numbers whose deviation is 1e-17
    assert find_coarse_columns(table) == [5]
    assert find_coarse_columns(table.astype(np.float32)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_coarse_columns(np.array([[1e308, 1.0], [-1e308, np.nan]])) == []
