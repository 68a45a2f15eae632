"""The shape of the code: imports go down only, files stay readable, nothing heavy or unsafe creeps in."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "csst"
LAYERS = [
    {"errors"},
    {"confusion", "domains", "settings", "engine", "plugins", "records", "sampling", "schedules"}
    | {"hub", "interruption"},
    {"objectives", "intervals", "optimizers"},
    {"gain", "language", "resampling"},
    {"losses", "multipliers", "selection"},
    {"statistics"},
    {"rules"},
    {"selftraining", "data", "models", "exporting"},
    {"evaluation", "runs", "batches", "measuring"},
    {"training", "theory", "learners"},
    {"crossfit"},
    {"recipes"},
    {"report", "estimator"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def files():
    return sorted(SOURCE.rglob("*.py"))


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_imports_go_down_only():
    wrong = []
    for path in files():
        own = part(path)
        if own.startswith("__"):
            continue
        for module in imported(path):
            if module.startswith("csst."):
                other = module.split(".")[1]
                if other != own and LEVEL[other] > LEVEL[own]:
                    wrong.append(f"{path.relative_to(SOURCE)} imports csst.{other}")
                if {own, other} <= {"data", "models"} and own != other:
                    wrong.append(f"{path.relative_to(SOURCE)} imports csst.{other}")
    assert not wrong


def test_the_mathematics_imports_torch_only():
    for name in ("confusion", "domains", "objectives", "gain", "losses", "multipliers"):
        outside = {m.split(".")[0] for m in imported(SOURCE / f"{name}.py")}
        assert outside <= {"__future__", "abc", "collections", "dataclasses", "functools", "typing", "torch", "csst"}


def test_files_are_short_and_safe():
    unsafe = re.compile(r"(?<![\w.])(eval|exec)\(|pickle\.load|allow_pickle=True|weights_only=False|yaml\.load\(")
    for path in files():
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        assert not unsafe.search(text), path
        if path.name != "__init__.py" or text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path} says nothing about itself"


def test_public_names_exist():
    import csst

    for name in csst.__all__:
        assert getattr(csst, name) is not None
    assert "Confusion" in dir(csst)
