"""What mkdocs builds beside the pages that are written by hand: the reference of settings, commands and names, and the
measured tables, which live in benchmarks/. Links that lead out of docs/ are turned to these pages."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import docstring_parser

ROOT = Path(__file__).parent.parent
#: what a page is generated from: its address in the site → the file in the repository
COPIES = {
    **{f"measured/{path.name}": path for path in sorted((ROOT / "benchmarks/results").glob("*.md"))},
    "project/changelog.md": ROOT / "CHANGELOG.md",
    "project/contributing.md": ROOT / "CONTRIBUTING.md",
    "project/security.md": ROOT / "SECURITY.md",
    "project/conduct.md": ROOT / "CODE_OF_CONDUCT.md",
}
ELSEWHERE = {"README.md": "index.md"}


def write_settings() -> str:
    """Every setting with its type, default and meaning, from the dataclasses."""
    from csst.estimators.settings import EstimatorSettings
    from csst.fitting.plan import Plan
    from csst.recipes import recipe
    from csst.settings import Settings

    hints = get_type_hints(EstimatorSettings)
    groups = {field.name: hints[field.name] for field in fields(EstimatorSettings) if is_dataclass(hints[field.name])}
    parts = [
        "# Settings",
        "From the dataclasses. Each is an argument of `csst train` (`--training.steps 500`), a line of a YAML "
        "file (`--config`, written by `--print_config`) and a field in Python. Defaults of a recipe may differ: "
        "`csst train RECIPE --help` shows them.",
        "## The recipe itself",
        tabulate(Plan, "", skip=tuple(field.name for field in fields(Settings))),
        tabulate(Settings, "", skip=tuple(groups)),
        "## Only of CSSTClassifier",
        tabulate(EstimatorSettings, "", skip=("inputs", *(field.name for field in fields(Settings)))),
    ]
    for name, kind in groups.items():
        parts += [f"## {name}", summarize(kind), tabulate(kind, f"{name}.")]
    for name in ("array", "text", "folder", "cifar10-lt", "imdb-lt-10", "digits"):
        kind = type(recipe(name).data)
        parts += [f"## data, of recipe {name}", summarize(kind), tabulate(kind, "data.")]
    return "\n\n".join(parts) + "\n"


def summarize(kind: type) -> str:
    parsed = docstring_parser.parse(inspect.getdoc(kind) or "")
    return "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))


def tabulate(kind: type, prefix: str, skip: tuple[str, ...] = ()) -> str:
    """A table of the fields of a dataclass; a field that its docstring does not explain is an error."""
    # A field that is inherited is explained where it is defined.
    parameters = [p for base in reversed(kind.__mro__) for p in docstring_parser.parse(base.__doc__ or "").params]
    meanings = {parameter.arg_name: parameter.description or "" for parameter in parameters}
    hints, rows = get_type_hints(kind), ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for field in fields(kind):
        if field.name in skip:
            continue
        default: Any = field.default
        if default is MISSING:
            default = field.default_factory() if field.default_factory is not MISSING else ""  # type: ignore[misc]
        if hasattr(default, "__dataclass_fields__"):
            nested = tabulate(type(default), f"{prefix}{field.name}.").splitlines()[2:]
            rows += nested
            continue
        meaning = " ".join(meanings[field.name].split()).replace("|", "\\|")
        shown = f"`{default}`" if default != "" else "–"
        rows.append(f"| `{prefix}{field.name}` | {shown} | {describe_type(hints[field.name])} | {meaning} |")
    return "\n".join(rows)


def describe_type(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(hint))
    return getattr(hint, "__name__", str(hint).replace("|", "\\|")).replace("str", "text")


def write_command_line() -> str:
    """What every command says of itself."""
    from csst.cli import VERBS

    parts = ["# Command line", "Generated from the parsers: what `csst COMMAND --help` prints."]
    for verb, purpose in VERBS.items():
        parts += [f"## csst {verb}", purpose[:1].upper() + purpose[1:] + ".", f"```text\n{capture_help(verb)}\n```"]
    return "\n\n".join(parts) + "\n"


def capture_help(verb: str) -> str:
    """The help of a command, 100 columns wide."""
    printed = io.StringIO()
    words = ["array", "--help"] if verb in ("train", "compare") else ["--help"]
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(f"csst.cli.{verb}").main(words)
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return printed.getvalue().strip()


def write_api() -> str:
    """Every public name, where it lives, by mkdocstrings."""
    import csst

    groups: dict[str, list[str]] = {}
    for name in sorted(csst.__all__, key=str.lower):
        value = getattr(csst, name)
        if isinstance(value, dict):
            continue
        home = value.__module__
        groups.setdefault(TITLES[home.split(".")[1]], []).append(f"{home}.{name}")
    parts = [
        "# API",
        "Everything here is importable from `csst`; the [glossary](glossary.md) says what each word means.",
    ]
    for title in dict.fromkeys(TITLES.values()):
        if title in groups:
            parts += [f"## {title}", *(f"::: {name}" for name in groups[title])]
    more = ("csst.report.report_page", "csst.training.records.Record", "csst.training.tracking.TensorBoard")
    parts += ["## Records and reports", *(f"::: {name}" for name in more)]
    parts += ["## Parts of a method", "What is called with what stands on [a page of its own](methods.md)."]
    parts += [f"::: csst.selftraining.{name}" for name in METHOD_PARTS]
    return "\n\n".join(parts) + "\n"


METHOD_PARTS = (
    "methods.Method",
    "labelers.Labeler",
    "labelers.Hard",
    "labelers.Sharpened",
    "selectors.Selector",
    "selectors.Confidence",
    "selectors.KLThreshold",
    "selectors.Either",
    "flexmatch.Curriculum",
    "step.Refiner",
    "step.SelfTraining",
    "stateful.StatefulPart",
)

TITLES = {
    "estimators": "Estimators",
    "fitting": "Fit and use",
    "comparison": "Fit and use",
    "runs": "Fit and use",
    "recipes": "Fit and use",
    "learners": "Fit and use",
    "rules": "Decision rules",
    "training": "Training",
    "settings": "Training",
    "data": "Training",
    "maths": "The mathematics",
    "errors": "Errors",
}

GENERATED: dict[str, Callable[[], str]] = {
    "reference/settings.md": write_settings,
    "reference/command-line.md": write_command_line,
    "reference/api.md": write_api,
}


def on_config(config: Any) -> Any:
    """Put the measured tables that the file does not name at the end of their part of the navigation."""
    for part in config.nav:
        if "Measured" in part:
            part["Measured"] += find_unnamed(part["Measured"])
    return config


def find_unnamed(navigation: list[Any]) -> list[str]:
    """Return the measured tables that a part of the navigation leaves out."""
    named = re.findall(r"measured/[\w-]+\.md", str(navigation))
    return [page for page in COPIES if page.startswith("measured/") and page not in named]


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for address, write in GENERATED.items():
        files.append(File.generated(config, address, content=write()))
    for address, path in COPIES.items():
        if path.exists():
            files.append(File.generated(config, address, content=path.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return turn_links(markdown, page.file.src_uri)


def turn_links(markdown: str, address: str) -> str:
    """Turn links and pictures to those of the site; what it does not have (examples, source) becomes its path."""
    source = COPIES.get(address, ROOT / "docs" / address).parent

    def turn(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        place = (source / path).resolve()
        if not place.is_relative_to(ROOT) or not place.exists():
            return match[0]
        inside = place.relative_to(ROOT).as_posix()
        known = {value.relative_to(ROOT).as_posix(): key for key, value in COPIES.items()} | ELSEWHERE
        wanted = known.get(inside) or (inside[5:] if inside.startswith("docs/") else None)
        if wanted is None:
            return match[0] if picture else f"{words} (`{inside}`)"
        relative = posixpath.relpath(wanted, posixpath.dirname(address) or ".")
        return f"{picture}[{words}]({relative}{'#' + anchor if anchor else ''})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", turn, markdown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print a generated page.")
    parser.add_argument("page", choices=GENERATED)
    print(GENERATED[parser.parse_args().page]())
