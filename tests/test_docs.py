"""The documentation runs, and says what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(page, tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    if code:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=120)


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
