"""Everything public says what it takes, in which shape, and what it gives back; and where the paper has it.

Public is what `csst.__all__` and `csst.theory.__all__` list, and every name on a page of docs/reference.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from docstring_parser import Docstring
from docstring_parser.google import parse
from torch import Tensor

import csst
import csst.theory

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
NAME = r"`(csst\.[\w.]+)`"
#: the generated page of the API adds these
MORE = ["csst.report.report_page", "csst.training.records.Record", "csst.training.tracking.TensorBoard"]
#: how a place in the printed paper is named
PLACE = re.compile(r"\b(Sec|Eqs?|Figs?|Tables?|Algorithms?|Definition|Assumptions?|Theorem|Lemma|Examples?|appendix)\b")
#: a shape such as (n, K) or (m,), or words for one
SHAPE = re.compile(r"\([^()]*,[^()]*\)|\bscalar\b|\b(any|own) shape\b")


def list_public() -> dict[str, Any]:
    """Public functions and classes, each once, by the name under which it is known."""
    names = {name for page in sorted(REFERENCE.glob("*.md")) for name in re.findall(NAME, page.read_text("utf-8"))}
    names |= {f"csst.{name}" for name in csst.__all__} | {f"csst.theory.{name}" for name in csst.theory.__all__}
    values = {name: resolve(name) for name in sorted(names | set(MORE))}
    once = {id(value): (name, value) for name, value in values.items() if callable(value)}
    return dict(sorted(once.values(), key=lambda pair: pair[0]))


def resolve(path: str) -> Any:
    """The object behind a dotted path; None for a field without a default."""
    value: Any = csst
    for part in path.split(".")[1:]:
        if inspect.ismodule(value) and not hasattr(value, part):
            value = importlib.import_module(f"{value.__name__}.{part}")
        else:
            value = getattr(value, part, None)
    return value


def list_faults(value: Any) -> list[str]:
    """What a function, or a class and its public methods, do not document."""
    if not inspect.isclass(value):
        return check_function(value)
    faults = check_class(value)
    attributes = {field.name for field in fields(value)} if is_dataclass(value) else set()
    for name, member in vars(value).items():
        if name.startswith("_") or name in attributes:
            continue
        if inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod)):
            faults += [f"{name}: {fault}" for fault in check_function(getattr(value, name))]
        elif isinstance(member, property) and not inspect.getdoc(member):
            faults.append(f"{name}: no docstring")
    return faults


def check_class(value: type) -> list[str]:
    if issubclass(value, Exception) or inspect.isabstract(value) or getattr(value, "_is_protocol", False):
        return [] if value.__doc__ else ["no docstring"]
    return check_parameters(inspect.signature(value), parse(inspect.cleandoc(value.__doc__ or "")))


def check_function(function: Any) -> list[str]:
    documented, signature = parse(inspect.getdoc(function) or ""), inspect.signature(function)
    faults = check_parameters(signature, documented)
    takes = [name for name in signature.parameters if name != "self"]
    if takes and signature.return_annotation not in (None, "None") and documented.returns is None:
        faults.append("no Returns")
    if takes and documented.returns is not None and signature.return_annotation in (Tensor, "Tensor"):
        has_shape = SHAPE.search(documented.returns.description or "")
        faults += [] if has_shape else ["no shape of what is returned"]
    return faults


def check_parameters(signature: inspect.Signature, documented: Docstring) -> list[str]:
    if not documented.short_description:
        return ["no docstring"]
    words = {param.arg_name.lstrip("*"): param.description or "" for param in documented.params}
    faults = []
    for name, parameter in signature.parameters.items():
        if name == "self" or name.startswith("_"):
            continue
        if not words.get(name):
            faults.append(f"no word on {name}")
        elif parameter.annotation in (Tensor, "Tensor", "np.ndarray") and not SHAPE.search(words[name]):
            faults.append(f"no shape of {name}")
    return faults


PUBLIC = list_public()


@pytest.mark.parametrize("name", PUBLIC)
def test_what_it_takes_and_returns_is_documented(name):
    assert not list_faults(PUBLIC[name])


def list_of_the_paper() -> list[str]:
    """The names in the paper map's column of code."""
    rows = [line.split(" | ") for line in (REFERENCE / "paper-map.md").read_text("utf-8").splitlines()]
    cells = [row[3] for row in rows if len(row) == 5 and not row[3].startswith("not implemented")]
    return sorted({name for cell in cells for name in re.findall(NAME, cell)})


@pytest.mark.parametrize("name", list_of_the_paper())
def test_what_the_paper_has_names_its_place_in_print(name):
    assert PLACE.search(inspect.getdoc(resolve(name)) or "")


def explained(count: int, rows: Tensor) -> Tensor:
    """Some rows.

    Args:
        count: how many.
        rows: to take them from, (n, K).

    Returns:
        The first, (count, K).
    """
    return rows[:count]


def unexplained(count: int, rows: Tensor) -> Tensor:
    """Some rows.

    Args:
        rows: to take them from.
    """
    return rows[:count]


def test_what_is_missing_is_noticed():
    assert list_faults(explained) == []
    assert list_faults(unexplained) == ["no word on count", "no shape of rows", "no Returns"]
    assert list_faults(test_what_is_missing_is_noticed) == ["no docstring"]
    assert "csst.theory.gamma" in PUBLIC
    assert "csst.theory.gamma" in list_of_the_paper()
