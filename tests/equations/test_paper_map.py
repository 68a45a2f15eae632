"""docs/reference/paper-map.md is complete: every item has a row, its function exists, its test exists and names it."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "reference" / "paper-map.md"
HEADER = ["paper", "where", "what it says", "function", "test"]

# Every numbered equation, table row, algorithm and proposition of Secs. 2 and 4, the appendices "Objective",
# "Algorithms" and "diagonal Gain Matrix", and the two objectives of Sec. 5; by its label, or a name where it has none.
INVENTORY = (
    "C_ij[F]",
    "Table metrics, recall",
    "Table metrics, coverage",
    "Table metrics, precision",
    "Table metrics, worst case recall",
    "Table metrics, accuracy",
    "eq:min-recall-obj",
    "eq:coverage-constraint-obj",
    "eq:csl-obj",
    "saddle point of worst-case recall",
    "eq:cov-const-obj",
    "G = M D",
    "loss:hyb",
    "average hybrid loss",
    "LA loss",
    "Narasimhan's Prop. 4",
    "adding a constant to each row",
    "L_s + lambda_u L_u",
    "norm(G^T p)",
    "eq:wt-consistency-reg",
    "prop:kl-weighted",
    "Proof of Prop. kl-weighted",
    "confidence threshold",
    "prop:prop2-narashimhan",
    "KL(norm(G^T p)",
    "loss:CSST-KL",
    "groups of Eq. min-HT-recall-obj",
    "eq:min-HT-recall-obj",
    "perfect-coverage",
    "eq:HT-cov-const-obj",
    "eq:lgt-adj-wt-cons",
    "eq:hyb-sup",
    "loss:supp-hybloss",
    "CSST(FixMatch)",
    "CSST(UDA) L_s",
    "CSST(UDA) L_u",
    "CSST(UDA)",
    "algo:worst-case",
    "algo:coverage",
    "lambda^0",
    "Threshold function",
    "KL = -log p_m(x)_y",
    "err_w",
    "w_ij = G_ij pi_i",
    "rows may be shifted",
    "fig:disjoint_non_disjoint_supp",
    "R_{B,w}",
    "assump:mu-small",
    "def:c-exp-def",
    "assump:c-exp",
    "assump:pseudo-labeler",
    "eq:ssl-non-decomp-obj-theoretical",
    "thm:main-err-bd",
    "exa:c-exp-mix-gauss",
    "exa:gamma-3",
    "exa:r_gopt_bound",
    "lem:err-bd",
    "lem:incl",
    "lem:n1_cup_n2",
    "lem:m3-upper-bd",
    "all-layer margin",
    "m_B(Phi, x)",
    "prop:rw-finite-bd",
    "prop:lw-finite-bd",
    "last theorem",
    "sec:appendix-a-c-expansion",
)
# What counts as naming an equation in a docstring, besides the labels above.
NAMED = re.compile(r"\b(Eqs?\.|Sec\.|Prop\.|Table metrics|Algorithms? |paper-map)")


def table():
    """The rows of the map as dictionaries."""
    lines = [line.strip() for line in MAP.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == HEADER
    assert all(len(row) == len(HEADER) for row in cells), "each row has five cells"
    return [dict(zip(HEADER, row, strict=True)) for row in cells[2:]]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


@cache
def docstrings_of(path):
    """name → docstring of the test functions in a file."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        node.name: ast.get_docstring(node) or ""
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def short(item):
    """How a docstring writes a label: without its kind."""
    return re.sub(r"^(eq|prop|algo):", "", item)


@pytest.mark.parametrize("item", INVENTORY)
def test_every_item_has_one_row(item):
    """paper-map: one row for each item of the inventory."""
    assert [row["paper"] for row in table()].count(f"`{item}`") == 1


def test_every_row_is_well_formed():
    """paper-map: no row twice, no empty cell."""
    names = [row["paper"] for row in table()]
    assert len(names) == len(set(names)) >= len(INVENTORY)
    assert all(all(row.values()) for row in table())


@pytest.mark.parametrize("row", table(), ids=lambda row: row["paper"])
def test_functions_exist(row):
    """paper-map: every function of a row can be imported."""
    paths = quoted(row["function"])
    assert paths, f"{row['paper']} names no function"
    for path in paths:
        parts = path.split(".")
        found = importlib.import_module(parts[0])
        for depth, part in enumerate(parts[1:], start=1):
            if not hasattr(found, part):
                importlib.import_module(".".join(parts[: depth + 1]))
            found = getattr(found, part)
        assert callable(found) or hasattr(type(found), "__get__"), f"{path} is no function, class or property"


@pytest.mark.parametrize("row", table(), ids=lambda row: row["paper"])
def test_tests_exist_and_name_the_item(row):
    """paper-map: every test of a row exists, and its docstring names the item."""
    paths = quoted(row["test"])
    assert paths, f"{row['paper']} names no test"
    for path in paths:
        file, _, name = path.partition("::")
        functions = docstrings_of(ROOT / file)
        assert name in functions, f"{path} does not exist"
        (item,) = quoted(row["paper"])
        assert short(item).lower() in functions[name].lower(), f"the docstring of {path} does not name {item}"


def test_every_test_names_its_equation():
    """paper-map: a test in this folder says which equation, algorithm, proposition or table row it checks."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for name, words in docstrings_of(file).items():
            known = NAMED.search(words) or any(short(item) in words for item in INVENTORY)
            assert known, f"{file.name}::{name} has no docstring that names an equation"
