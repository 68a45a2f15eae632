"""Render templates as pages: one file that loads nothing, with a policy that forbids other content and scripts."""

from __future__ import annotations

import base64
import hashlib
import itertools
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from csst.report.figures.svg import shorten
from csst.report.run_tables import describe_constraints, format_number, format_signed

#: the scripts of every page, in this order
SCRIPTS = ("sort.js", "explore.js")


@cache
def _environment() -> Environment:
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
        _environment()
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
