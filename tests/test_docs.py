"""The documentation runs, and says what is there."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.programs import shorten

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python_of(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))


WITH_PYTHON = [page for page in PAGES if python_of(page)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_examples_run(page, tmp_path, monkeypatch):
    """With few trees and few steps; as it stands below."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(shorten(python_of(page)), encoding="utf-8")
    runpy.run_path(str(program))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_examples_run_as_they_stand(page, tmp_path):
    subprocess.run([sys.executable, "-c", python_of(page)], cwd=tmp_path, check=True, capture_output=True, timeout=120)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_that_are_named_exist(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:docs|tests|benchmarks|src)/[\w./-]+\.\w+)", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target


def test_every_sentence_of_the_language_reference_parses():
    import csst

    text = (ROOT / "docs/reference/language.md").read_text(encoding="utf-8")
    sentences = re.findall(r"`(max [^`]+)`", text)
    assert len(sentences) >= 10
    for sentence in sentences:
        if sentence != "max recall":
            csst.objective(sentence)
    for alias, sentence in csst.ALIASES.items():
        assert f"| `{alias}` | `{sentence}` |" in text
