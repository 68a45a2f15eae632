"""Render templates as pages that load nothing, with a policy that forbids other content and scripts, and write them."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from csst.errors import InputError
from csst.report.figures.svg import shorten
from csst.report.run_tables import describe_constraints, format_number, format_signed

#: the scripts of every page, in this order
SCRIPTS = ("sort.js", "explore.js")


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("csst.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": shorten, "number": format_number}
    environment.filters |= {"fixed": "{:.3f}".format, "signed": format_signed, "grouped": "{:,}".format}
    environment.globals["describe_constraints"] = describe_constraints
    return environment


def render(template: str, **content: Any) -> str:
    """Return a page; its policy tells the browser to run only our scripts, which sort tables and explore."""
    folder = files("csst.report") / "templates"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = (
        _make_environment()
        .get_template(template)
        .render(
            **content,
            style=Markup((folder / "style.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            next_number=itertools.count(1).__next__,
        )
    )
    return page.encode("utf-8", "replace").decode()  # a lone surrogate from a JSON file cannot be written


def write_page(page: str, path: Path) -> None:
    """Write a page completely or not at all."""
    draft = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(page, encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise InputError(f"the page {path} cannot be written: {error.strerror or error}") from None
