"""What a newcomer adds is one file, named on the command line or passed in Python: here a metric and a data source.

A method with a memory is in `tests/selftraining/test_own_labeler.py`, a learner in
`tests/learners/test_own_learner.py`.
"""

from __future__ import annotations

import sys
import wave

import numpy as np
import pytest
import torch

from csst import Confusion, CSSTClassifier, gain_matrix
from csst.cli import main
from csst.runs.folder import Run
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import gaussians

pytestmark = SHORT_RUN

METRIC = '''
import csst


class RecallAtPrecision(csst.Objective):
    """The recall of class 2, at a precision of at least 0.8."""

    domain = csst.NonNegative()
    metric_prior = "evaluation"

    def utility(self, c):
        return c.recall[2]

    def payoff(self, c):
        return c.precision[2:3] - 0.8
'''
SOURCE = '''
import wave
from pathlib import Path

import numpy as np

from csst.data import from_arrays


def describe(path):
    """Return the loudness of 16 bands of frequencies of a sound."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16) / 2**15
    bands = np.array_split(np.abs(np.fft.rfft(samples)), 16)
    return np.log1p([band.mean() for band in bands])


def load_sounds(seed):
    """WAV files in folders named by their class; those in the folder `unlabeled` have none."""
    paths = sorted(Path("sounds").glob("*/*.wav"))
    names = sorted({path.parent.name for path in paths} - {"unlabeled"})
    labels = [names.index(path.parent.name) if path.parent.name in names else -1 for path in paths]
    rows = np.stack([describe(path) for path in paths]).astype(np.float32)
    arrays = {"x": rows, "y": np.array(labels), "class_names": np.array(names)}
    return from_arrays(arrays, "sounds", seed=seed)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the newcomer's files."""
    (tmp_path / "my_metric.py").write_text(METRIC)
    (tmp_path / "my_sounds.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("my_metric", "my_sounds"):
        sys.modules.pop(name, None)


def write_sound(path, pitch: float, rng: np.random.Generator) -> None:
    """A tenth of a second of a noisy tone."""
    times = np.arange(800) / 8000
    samples = 0.5 * np.sin(2 * np.pi * pitch * times) + 0.1 * rng.normal(size=len(times))
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes((np.clip(samples, -1, 1) * (2**15 - 1)).astype(np.int16).tobytes())


def test_a_metric(folder):
    from my_metric import RecallAtPrecision

    X, y = gaussians(120)
    fitted = CSSTClassifier(RecallAtPrecision(), learner="linear").fit(X, y)
    confusion = Confusion.from_predictions(torch.from_numpy(y), torch.from_numpy(fitted.predict(X)), 3)
    assert fitted.score(X, y) == pytest.approx(float(confusion.recall[2]), abs=1e-6)
    assert float(confusion.precision[2]) >= 0.8
    # Raising the price of the precision makes a false alarm of class 2 costlier than before.
    prior = torch.full((3,), 1 / 3)
    gains = [gain_matrix(RecallAtPrecision(), [price], confusion, prior).matrix for price in (0.0, 2.0)]
    assert gains[1][0, 2] < gains[0][0, 2]
    words = ["train", "toy", "--learner", "linear", "--objective", "my_metric:RecallAtPrecision", "--out", "run"]
    assert main(words) == 0
    assert Run("run").metrics()["objective"] == "RecallAtPrecision"


def test_a_data_source(folder):
    rng = np.random.default_rng(0)
    for name, pitch in (("low", 400), ("middle", 1200), ("high", 2600)):
        for number in range(12):
            write_sound(folder / "sounds" / name / f"{number}.wav", pitch * rng.uniform(0.9, 1.1), rng)
            write_sound(folder / "sounds" / "unlabeled" / f"{name}{number}.wav", pitch, rng)
    words = ["train", "custom", "--data.source", "my_sounds:load_sounds", "--learner", "linear", "--out", "run"]
    assert main(words) == 0
    metrics = Run("run").metrics()
    assert metrics["class_names"] == ["high", "low", "middle"]
    assert metrics["unlabeled_count"] == 36
    assert metrics["validation"]["min_recall"] > 0.8
