"""The shape of the code: imports go down only, files stay readable, nothing heavy or unsafe creeps in."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "csst"


def files():
    return sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_the_layers_that_lint_checks_name_all_rooms():
    """`make lint` sees that imports go down only: nine layers, data and models apart."""
    text = (SOURCE.parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    layers = re.search(r"^layers = \[(.*?)^\]", text, re.DOTALL | re.MULTILINE)[1]
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(re.findall(r"\w+", layers)) == rooms
    assert layers.count("\n") - 1 == 9
    assert "exhaustive = true" in text
    assert "lint-imports" in (SOURCE.parent.parent / "Makefile").read_text(encoding="utf-8")


def test_the_mathematics_imports_torch_only():
    for path in (SOURCE / "maths").glob("*.py"):
        outside = {m.split(".")[0] for m in imported(path)}
        assert outside <= {"__future__", "abc", "collections", "dataclasses", "functools", "typing", "torch", "csst"}


def test_files_are_short_and_safe():
    unsafe = re.compile(r"(?<![\w.])(eval|exec)\(|pickle\.load|allow_pickle=True|weights_only=False|yaml\.load\(")
    for path in files():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        assert not unsafe.search(text), path
        if path.name != "__init__.py" or text.strip():
            assert text.startswith('"""'), f"{path} says nothing about itself"


def test_few_modules_lie_loose():
    assert len([path for path in SOURCE.glob("*.py") if not path.name.startswith("__")]) <= 8


def test_public_names_exist():
    import csst

    for name in csst.__all__:
        assert getattr(csst, name) is not None
    assert set(csst.__all__) == set(csst._HOMES)
    assert "Confusion" in dir(csst)


def test_lint_sees_that_a_program_gets_real_types():
    text = (SOURCE.parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'files = ["src/csst", "tests/helpers/typed_program.py"]' in text
    assert (SOURCE / "py.typed").exists()


#: an import, in one line or in brackets
IMPORT = re.compile(r"^\s*(?:from\s+\S+\s+)?import\s+(?:\([^)]*\)|.*)$", re.MULTILINE)


def test_no_test_module_imports_another():
    """What tests share lies in tests/helpers or in a module beside them that holds no tests."""
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for statement in IMPORT.findall(path.read_text(encoding="utf-8")):
            if "tests" in statement or re.match(r"\s*from\s+\.", statement):
                assert not re.search(r"\btest_", statement), f"{path}: {statement}"
