"""The examples run, are short, and reach what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
#: a number that the example prints, and the least it must be
SAID = {
    "tabular_imbalanced.py": (r"min recall on test: ([\d.]+)", 0.85),
    "embeddings.py": (r"min recall on the unlabeled rows: ([\d.]+)", 0.65),
    "text_with_encoder.py": (r"lowest class recall ([\d.]+) \(95 %", 0.8),
    "own_metric.py": (r"objective ([\d.]+), estimated", 0.85),
    "grid_search_tau.py": (r"tau 0.05  min recall ([\d.]+)", 0.6),
}


def test_every_example_is_listed():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name, tmp_path):
    path = EXAMPLES / name
    assert path.read_text(encoding="utf-8").count("\n") < 40
    run = subprocess.run(
        [sys.executable, str(path)],
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
