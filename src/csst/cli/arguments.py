"""Command-line arguments and YAML files made from a recipe's typed settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, NoReturn

import yaml
from docstring_parser import parse
from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from csst.errors import InputError, nearest
from csst.fitting.plan import Plan
from csst.recipes import RECIPES, Recipe, recipe, with_overrides
from csst.selftraining import METHODS
from csst.settings import Settings


def read_help() -> dict[str, str]:
    """Return what the docstrings of a plan say about every single setting."""
    parameters = [*parse(Settings.__doc__ or "").params, *parse(Plan.__doc__ or "").params]
    texts = {setting.arg_name: " ".join((setting.description or "").split()) for setting in parameters}
    return {**texts, "name": argparse.SUPPRESS, "method": f"csst, {', '.join(METHODS)} or package.module:name"}


class Parser(ArgumentParser):
    """A parser whose errors are one sentence, like every other error of csst."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sentence = " ".join(f"{ex or message}".split())
        name = _find_unknown_setting(sentence)
        if name:
            settings = [word.removeprefix("--") for action in self._actions for word in action.option_strings]
            sentence = f"unknown setting {name!r}{_suggest(name, settings) or '; --help lists all'}"
        raise InputError(sentence)


def _find_unknown_setting(sentence: str) -> str:
    """Return the setting that a parser's message calls unknown; "" if the message is about something else."""
    for pattern, form in (
        (r"Group '([\w.]+)' does not accept option '([\w.]+)'", r"\1.\2"),
        (r"Option '([\w.]+)' is not accepted", r"\1"),
        (r"unrecognized arguments: --([\w.-]+)", r"\1"),
    ):
        match = re.search(pattern, sentence, re.IGNORECASE)
        if match:
            return match.expand(form)
    return ""


def _suggest(name: str, settings: Sequence[str]) -> str:
    """Return a hint with a setting of another group that has the same name, or with the closest one."""
    namesakes = [setting for setting in settings if setting.rpartition(".")[2] == name]
    return f"; did you mean {namesakes[0]!r}?" if namesakes else nearest(name, settings)


def parse_recipe(argv: Sequence[str], make_parser: Any, hidden_names: Sequence[str] = ()) -> tuple[Recipe, Namespace]:
    """Return the recipe named first (or by --config), changed by the other arguments, and all arguments.

    hidden_names: settings that --help does not list; a file of settings may still hold them.
    """
    name, words = _read_name(list(argv))
    base = recipe(name)
    parser: Parser = make_parser(name, base)
    add_recipe(parser, base, hidden_names)
    args = parser.parse_args(words)
    values = {setting.name: args[setting.name] for setting in fields(base)}
    values = {key: value.as_dict() if isinstance(value, Namespace) else value for key, value in values.items()}
    if values["name"] != base.name:
        raise InputError(f"the configuration is for recipe {values['name']!r}, not {name!r}")
    return with_overrides(base, values), args


def add_recipe(parser: Parser, base: Recipe, hidden_names: Sequence[str] = ()) -> None:
    """Add every setting of a recipe to a parser, its value in the recipe being the default."""
    texts = {**read_help(), **dict.fromkeys(hidden_names, argparse.SUPPRESS)}
    parser.add_argument("--config", action="config", help="a YAML file of settings, e.g. a run's recipe.yaml")
    # Single settings first, then those in groups.
    for setting in sorted(fields(base), key=lambda setting: is_dataclass(getattr(base, setting.name))):
        name = setting.name
        value: Any = getattr(base, name)
        if is_dataclass(value) and not isinstance(value, type):
            parser.add_class_arguments(type(value), name)
            parser.set_defaults({f"{name}.{key}": default for key, default in asdict(value).items()})
        elif isinstance(value, bool):
            parser.add_argument(f"--{name}", action=ActionYesNo, default=value, help=texts[name])
        else:
            parser.add_argument(f"--{name}", type=_find_type(value), default=value, help=texts[name])


def _find_type(value: Any) -> Any:
    """Return the type of a setting from its default; a setting without a default is a number."""
    if isinstance(value, dict):
        return dict[str, Any]
    return float | None if value is None else type(value)


def _read_name(argv: list[str]) -> tuple[str, list[str]]:
    """Return the name of the recipe, from the first word or a configuration, and the words after it."""
    if argv and not argv[0].startswith("-"):
        return argv[0], argv[1:]
    for i, word in enumerate(argv):
        path = argv[i + 1] if word == "--config" and i + 1 < len(argv) else word.partition("--config=")[2]
        if path:
            return _read_name_from_file(path), argv
    if any(word in ("-h", "--help") for word in argv):
        return next(iter(RECIPES)), argv
    raise InputError(f"which recipe? csst train RECIPE ..., with one of {', '.join(RECIPES)}")


def _read_name_from_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"the configuration {path} cannot be read: {error}") from None
    if isinstance(values, dict) and isinstance(values.get("name"), str):
        return values["name"]
    raise InputError(f"{path} does not say which recipe it is for: add 'name: {next(iter(RECIPES))}'")
