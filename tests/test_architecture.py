"""The shape of the code: imports go down only, files stay readable, nothing heavy or unsafe creeps in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
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


def test_imports_go_down_only():
    """The contracts of pyproject.toml: nine layers, data and models apart."""
    command = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    run = subprocess.run([sys.executable, "-c", command], cwd=SOURCE.parent.parent, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


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
            assert ast.get_docstring(ast.parse(text)), f"{path} says nothing about itself"


def test_few_modules_lie_loose():
    assert len([path for path in SOURCE.glob("*.py") if not path.name.startswith("__")]) <= 8


def test_public_names_exist():
    import csst

    for name in csst.__all__:
        assert getattr(csst, name) is not None
    assert set(csst.__all__) == set(csst._HOMES)
    assert "Confusion" in dir(csst)


USER = """import csst
reveal_type(csst.CSSTClassifier)
reveal_type(csst.Gain.optimal_prediction)
reveal_type(csst.fit_rule)
reveal_type(csst.execute)
reveal_type(csst.fit)
"""


def test_a_type_checker_sees_real_types(tmp_path):
    (tmp_path / "program.py").write_text(USER)
    root = SOURCE.parent.parent
    command = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml")]
    command += ["--cache-dir", str(root / ".mypy_cache"), str(tmp_path / "program.py")]  # warm after make lint
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    for shown in (
        "-> csst.estimators.classifier.CSSTClassifier",
        "def (self: csst.maths.gain.Gain, target: torch._tensor.Tensor) -> torch._tensor.Tensor",
        "-> csst.rules.fit.FittedRule",
        "recipe: csst.recipes.recipe.Recipe",
        "-> csst.fitting.fitted_model.FittedModel",
    ):
        assert shown in run.stdout, run.stdout
    assert 'Any"' not in run.stdout


def test_no_test_module_imports_another():
    """What tests share lies in tests/helpers or in a module beside them that holds no tests."""
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [part for alias in node.names for part in alias.name.split(".")]
            else:
                continue
            if "tests" in names or getattr(node, "level", 0):
                assert not [name for name in names if name.startswith("test_")], f"{path}:{node.lineno}"
