"""What has been reached in style stays: names that are nouns, one assignment per statement, short main functions."""

from __future__ import annotations

import ast

import pytest

from tests.density import SOURCE, Density, count_lines, measure

#: the functions that a reader meets first
MAIN_FUNCTIONS = (
    ("runs/execute.py", "execute"),
    ("fitting/network_fit.py", "conclude"),
    ("fitting/fit.py", "fit"),
    ("fitting/fit.py", "conclude"),
    ("fitting/fitted_model.py", "load"),
    ("report/run_view.py", "view_run"),
)


def test_names_are_nouns_and_assignments_are_single():
    density = measure()
    assert density.bare_percent < 2, density.bare.most_common(20)
    assert density.pairs_per_thousand < 3


@pytest.mark.parametrize(("path", "name"), MAIN_FUNCTIONS)
def test_main_functions_are_short(path, name):
    text = (SOURCE / path).read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if getattr(node, "name", "") == name]
    assert functions
    for function in functions:
        body = ast.unparse(function.body)  # as one line per statement: layout does not count
        density = Density()
        count_lines(body, ast.parse(body), density)
        assert density.lines <= 30


def test_an_adjective_is_found(tmp_path):
    (tmp_path / "module.py").write_text("def f():\n    kept, rows = 1, 2\n    return kept, rows\n")
    density = measure(tmp_path)
    assert (density.bare_percent, density.pairs, density.lines) == (50, 1, 3)
