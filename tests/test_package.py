"""Wheel and sdist install into an empty environment and work there without the source tree: make package."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.package


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)], check=True, capture_output=True)
    return out


def run(command: list[str], folder: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def test_what_is_inside(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert all(name.startswith(("csst/", "csst_learn-")) for name in names)
    for needed in ("csst/py.typed", "csst/report/templates/explore.js", "csst/report/figures/figures.mplstyle"):
        assert needed in names
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = [name.split("/", 1)[1] for name in sdist.getnames() if "/" in name]
    for needed in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/csst/__init__.py",
        "tests/test_tour.py",
        "docs/index.md",
    ):
        assert needed in names
    assert not any(name.startswith((".venv", "runs", "site", "dist")) for name in names)


@pytest.mark.parametrize(
    ("pattern", "versions"),
    [("*.whl", "constraints.txt"), ("*.tar.gz", "constraints.txt"), ("*.whl", "constraints-oldest.txt")],
)
def test_it_installs_and_runs_the_demo(built, pattern, versions, tmp_path):
    run([sys.executable, "-m", "venv", str(tmp_path / "env")], tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    package = next(built.glob(pattern))
    run([str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / versions), str(package)], tmp_path)
    where = run([str(python), "-c", "import csst; print(csst.__file__, csst.__version__)"], tmp_path)
    assert str(tmp_path / "env") in where
    printed = run([str(tmp_path / "env/bin/csst"), "demo", "--seeds", "1", "--out", "demo"], tmp_path)
    assert "CSSTClassifier()" in printed
    assert list((tmp_path / "demo").rglob("*.html"))
