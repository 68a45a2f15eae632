"""docs/reference/paper-map.md is complete: every item has a row, its function exists, its test exists and names it."""

import ast
import csv
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from csst.comparison.presets import PRESETS, read_preset
from csst.recipes import recipe

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "reference" / "paper-map.md"
HEADER = ["paper", "where", "what it says", "function", "test"]

NOT_IMPLEMENTED = "not implemented, because "

#: (kind, number, name) of every numbered item of the paper: the label, or a name where it has none
with open(Path(__file__).with_name("paper_items.csv"), encoding="utf-8", newline="") as file:
    ITEMS = [tuple(row) for row in csv.reader(file)][1:]
# What the paper defines without a number and the code computes.
UNNUMBERED = (
    "C_ij[F]",
    "eq:min-recall-obj",
    "G = M D",
    "average hybrid loss",
    "LA loss",
    "adding a constant to each row",
    "L_s + lambda_u L_u",
    "norm(G^T p)",
    "Proof of Prop. kl-weighted",
    "confidence threshold",
    "KL(norm(G^T p)",
    "groups of Eq. min-HT-recall-obj",
    "perfect-coverage",
    "CSST(FixMatch)",
    "CSST(UDA)",
    "lambda^0",
    "err_w",
    "w_ij = G_ij pi_i",
    "rows may be shifted",
    "R_{B,w}",
    "all-layer margin",
    "m_B(Phi, x)",
    "sec:appendix-a-c-expansion",
    "sec:appendix-conn-between",
    "mixtures of manifolds",
)
INVENTORY = (*(name for _, _, name in ITEMS), *UNNUMBERED)
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


def is_implemented(row):
    return not row["function"].startswith(NOT_IMPLEMENTED)


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


def test_the_list_has_every_number_once():
    """paper-map: no number of the paper is left out of the list, and rows carry their item's number."""
    numbers = {kind: [number for other, number, _ in ITEMS if other == kind] for kind, _, _ in ITEMS}
    last = {"Eq.": 25, "Table": 11, "Fig.": 5, "Algorithm": 2, "Assumption": 4, "Definition": 1, "Theorem": 2}
    last |= {"Proposition": 5, "Lemma": 4, "Example": 3}
    for kind, count in last.items():
        assert list(dict.fromkeys(n.rstrip("ab") for n in numbers.pop(kind))) == [str(n + 1) for n in range(count)]
    assert not numbers
    where = {row["paper"].strip("`"): row["where"] for row in table()}
    for kind, number, name in ITEMS:
        assert where[name].endswith(f", {kind} {number}"), name


def test_every_row_is_well_formed():
    """paper-map: no row twice, no empty cell."""
    names = [row["paper"] for row in table()]
    assert len(names) == len(set(names)) == len(INVENTORY)
    assert all(all(row.values()) for row in table())


def test_what_is_not_implemented_has_a_reason():
    """paper-map: a reason of some words instead of a test; what it refers to exists."""
    rows = [row for row in table() if not is_implemented(row)]
    assert {row["paper"].strip("`") for row in rows} == {
        *("eq:cons-cnst-obj", "sec:appendix-conn-between", "assump:cov-cond", "mixtures of manifolds"),
        *("tab:notations", "tab:GPU-usage-vision", "tab:GPU-usage-nlp"),
    }
    for row in rows:
        assert len(row["function"].removeprefix(NOT_IMPLEMENTED).split()) >= 8
        assert row["test"] == "–"
        for path in quoted(row["function"]):
            assert find(path) is not None


COMMANDS = [
    (row["where"].rpartition(", ")[2], command)
    for row in table()
    for command in quoted(row["what it says"])
    if command.startswith("csst compare")
]


@pytest.mark.parametrize(("number", "command"), COMMANDS)
def test_commands_are_understood(number, command):
    """paper-map: every `csst compare` of a row names a preset, which says the same number and has rows."""
    result = re.fullmatch(r"csst compare RECIPE --preset ([\w-]+)( --seeds 3)?", command)
    preset = PRESETS[result.group(1)]
    assert number in preset.paper.split(", ")
    for name in preset.recipes:
        assert len(read_preset(result.group(1), recipe(name))) >= 3


@pytest.mark.parametrize("row", list(filter(is_implemented, table())), ids=lambda row: row["paper"])
def test_functions_exist(row):
    """paper-map: every function of a row can be imported."""
    paths = quoted(row["function"])
    assert paths, f"{row['paper']} names no function"
    for path in paths:
        result = find(path)
        assert callable(result) or hasattr(type(result), "__get__"), f"{path} is no function, class or property"


def find(path):
    """What a dotted path names."""
    parts = path.split(".")
    result = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=1):
        if not hasattr(result, part):
            importlib.import_module(".".join(parts[: depth + 1]))
        result = getattr(result, part)
    return result


@pytest.mark.parametrize("row", list(filter(is_implemented, table())), ids=lambda row: row["paper"])
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
