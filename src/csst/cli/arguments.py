"""Arguments and YAML files from a recipe's typed settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, NoReturn

import yaml
from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from csst.errors import InputError, nearest
from csst.recipes import RECIPES, Recipe, recipe, with_overrides
from csst.selftraining import METHODS

HELP = {
    "name": argparse.SUPPRESS,
    "method": f"csst, {', '.join(METHODS)} or package.module:name",
    "learner": "network; or auto, linear, forest, kernel, propagation, lda, which take seconds on tables or embeddings",
    "objective": "what is maximized, selected on and reported, whatever the method",
    "seed": "of the split, the weights and the order of examples",
    "encoder": "words, hf:NAME_OR_FOLDER or package.module:name; with --frozen every example is embedded once",
    "rule": "fit fits, after training, the decision rule for the objective on validation and unlabeled examples",
    "deployment_prior": "class balance for estimates and rules: validation, labeled, unlabeled, uniform or numbers",
    "confidence": "how sure one must be that all bounds of the objective hold, e.g. 0.95; default as it says",
    "certifying": "with a confidence, the share of the labels that certify and that nothing is fitted to",
    "folds": "0 keeps validation labels apart; 2 to 20 learn from them, too, judging every label out of fold",
    "groups": "classes that the objective names together, by index or name: --groups.head 0,1,2 --groups.tail cat,dog",
    "frozen": "keep the encoder as it is and train a head on its embeddings; --no_frozen fine-tunes it",
}


class Parser(ArgumentParser):
    """A parser whose errors are one sentence, like every other error of csst."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sentence = " ".join(f"{ex or message}".split())
        unknown = _find_unknown(sentence)
        if unknown:
            settings = [word.removeprefix("--") for action in self._actions for word in action.option_strings]
            sentence = f"unknown setting {unknown!r}{_suggest(unknown, settings) or '; --help lists all'}"
        raise InputError(sentence)


def _find_unknown(sentence: str) -> str:
    """The setting that a sentence of the parser calls unknown; empty where it says something else."""
    for pattern, form in (
        (r"Group '([\w.]+)' does not accept option '([\w.]+)'", r"\1.\2"),
        (r"Option '([\w.]+)' is not accepted", r"\1"),
        (r"unrecognized arguments: --([\w.-]+)", r"\1"),
    ):
        match = re.search(pattern, sentence, re.IGNORECASE)
        if match:
            return match.expand(form)
    return ""


def _suggest(unknown: str, settings: Sequence[str]) -> str:
    """A hint that names the closest setting, or one of another group with the same name."""
    close = nearest(unknown, settings)
    same = [name for name in settings if name.rpartition(".")[2] == unknown.rpartition(".")[2]]
    return close or (f"; did you mean {same[0]!r}?" if same else "")


def recipe_and_rest(argv: Sequence[str], parser_of: Any, hidden: Sequence[str] = ()) -> tuple[Recipe, Namespace]:
    """The recipe named first (or by --config), changed by the other arguments; and those arguments.

    hidden: settings that --help does not list; a file of settings may still hold them.
    """
    name, rest = _read_name(list(argv))
    base = recipe(name)
    parser: Parser = parser_of(name, base)
    add_recipe(parser, base, hidden)
    args = parser.parse_args(rest)
    values = {f.name: args[f.name] for f in fields(base)}
    values = {key: value.as_dict() if isinstance(value, Namespace) else value for key, value in values.items()}
    if values["name"] != base.name:
        raise InputError(f"the configuration is for recipe {values['name']!r}, not {name!r}")
    return with_overrides(base, values), args


def add_recipe(parser: Parser, base: Recipe, hidden: Sequence[str] = ()) -> None:
    helps = {**HELP, **dict.fromkeys(hidden, argparse.SUPPRESS)}
    parser.add_argument("--config", action="config", help="a YAML file of settings, e.g. a run's recipe.yaml")
    for f in fields(base):
        value: Any = getattr(base, f.name)
        if is_dataclass(value) and not isinstance(value, type):
            parser.add_class_arguments(type(value), f.name)
            parser.set_defaults({f"{f.name}.{key}": v for key, v in asdict(value).items()})
        elif isinstance(value, bool):
            parser.add_argument(f"--{f.name}", action=ActionYesNo, default=value, help=helps[f.name])
        elif isinstance(value, dict):
            parser.add_argument(f"--{f.name}", type=dict[str, Any], default=value, help=helps[f.name])
        elif value is None:
            parser.add_argument(f"--{f.name}", type=float | None, default=None, help=helps[f.name])
        else:
            parser.add_argument(f"--{f.name}", type=type(value), default=value, help=helps[f.name])


def _read_name(argv: list[str]) -> tuple[str, list[str]]:
    if argv and not argv[0].startswith("-"):
        return argv[0], argv[1:]
    for at, word in enumerate(argv):
        path = argv[at + 1] if word == "--config" and at + 1 < len(argv) else word.partition("--config=")[2]
        if path:
            try:
                with open(path, encoding="utf-8") as file:
                    values = yaml.safe_load(file)
            except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
                raise InputError(f"the configuration {path} cannot be read: {error}") from None
            if isinstance(values, dict) and isinstance(values.get("name"), str):
                return values["name"], argv
            raise InputError(f"{path} does not say which recipe it is for: add 'name: {next(iter(RECIPES))}'")
    if any(word in ("-h", "--help") for word in argv):
        return next(iter(RECIPES)), argv
    raise InputError(f"which recipe? csst train RECIPE ..., with one of {', '.join(RECIPES)}")
