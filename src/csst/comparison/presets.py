"""The tables and figures of the paper's experiments as rows of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from csst.comparison.rows import Row, Setting, make_rows
from csst.errors import InputError, nearest
from csst.recipes.recipe import Recipe
from csst.settings import SelfTrainingSettings

#: KL thresholds of Fig. 5b, and labels of Fig. 5a as fractions of the recipe's
TAUS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
FRACTIONS = (0.25, 0.5, 1.0, 2.0)
VISION = ("cifar10-lt", "cifar100-lt", "imagenet100-lt")
SCRATCH = ("mnist-lt", "fashion-lt", "traffic-signs")
UPDATES = ("gradient", "solve", "fixed")
#: methods of the tables in the main text, and of the tables in the appendix
MAIN = ("erm", "la", "csl", "fixmatch", "csst-fixmatch")
SSL = ("crest", "darp", "flexmatch", "fixmatch", "csst-fixmatch")
TEXTS = ("imdb-lt-10", "imdb-lt-100", "dbpedia14-lt")


@dataclass(frozen=True)
class Preset:
    """The rows of a table or figure.

    Args:
        paper: place in the printed paper.
        recipes: names of the recipes that it is for.
        make: function from a recipe to the rows.
    """

    paper: str
    recipes: tuple[str, ...]
    make: Callable[[Recipe], list[Row]]


def read_preset(name: str, base: Recipe) -> list[Row]:
    """Return the rows of one of the paper's tables or figures (Tables 2 to 4 and 9 to 11, Figs. 1, 4 and 5).

    Args:
        name: name of the preset, such as "table-min-recall".
        base: the recipe that the rows change.

    Returns:
        The rows of the comparison.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}{nearest(name, PRESETS) or '; presets: ' + ', '.join(PRESETS)}")
    return PRESETS[name].make(base)


def _ask_worst(base: Recipe) -> str:
    return "min-ht-recall" if "ht" in base.objective.split("-") else "min-recall"


def _ask_coverage(base: Recipe) -> str:
    return "mean-recall-ht-coverage" if "ht" in base.objective.split("-") else "mean-recall-coverage"


def _make_table(methods: Sequence[str], *goals: Callable[[Recipe], str]) -> Callable[[Recipe], list[Row]]:
    """Return a function that makes a row for every method and goal."""
    return lambda base: make_rows(methods, [goal(base) for goal in goals])


def _make_protocol(base: Recipe) -> list[Row]:
    _require(base, "protocol-1500-3000", "labeled", "unlabeled", "imbalance")
    data = {"labeled": 1500, "unlabeled": 3000, "imbalance": 100.0}
    return make_rows(["erm", "la", "csl", *SSL], [_ask_worst(base)], {"data": data})


def _vary_tau(base: Recipe) -> list[Row]:
    return [
        Row(f"csst tau={tau:g}", "csst", objective, {"selftraining": {"tau": tau}}, Setting("KL threshold τ", tau))
        for objective in (_ask_worst(base), _ask_coverage(base))
        for tau in TAUS
    ]


def _vary_labels(base: Recipe) -> list[Row]:
    """Return rows with the same unlabeled data: the recipe's, less the examples that the most labels take from it."""
    labeled, unlabeled = _require(base, "ablation-labeled", "labeled", "unlabeled", "labeled_fraction")[:2]
    constant = unlabeled - round((max(FRACTIONS) - 1) * labeled)
    if labeled < 1 or constant < 1:
        raise InputError(
            f"the preset ablation-labeled takes up to {max(FRACTIONS):g} times the labels from the unlabeled examples; "
            f"found data.labeled {labeled} and data.unlabeled {unlabeled}: raise data.unlabeled, or lower data.labeled"
        )
    return [
        Row(
            f"{method} labels={fraction:g}x",
            method,
            objective,
            {"data": {"labeled_fraction": fraction, "unlabeled": constant}},
            Setting("labels, as a fraction of the recipe's", fraction),
        )
        for objective in (_ask_worst(base), _ask_coverage(base))
        for fraction in FRACTIONS
        for method in ("fixmatch", "csst")
    ]


def _vary_updates(methods: Sequence[str], objective: str, updates: Sequence[str] = UPDATES) -> list[Row]:
    """Return a row for every method and every way in which multipliers move."""
    return [
        Row(f"{method} {update}", method, objective, {"dual": {"update": update}, **keep_threshold(method)})
        for method in methods
        for update in updates
    ]


def keep_threshold(method: str) -> dict[str, Any]:
    """Return the paper's tau for its CSST, as changes of a recipe: a recipe from scratch has that of csst-balanced."""
    is_of_paper = method.startswith("csst-") and method != "csst-balanced"
    return {"selftraining": {"tau": SelfTrainingSettings().tau}} if is_of_paper else {}


def _make_scratch(base: Recipe) -> list[Row]:
    objective = _ask_worst(base)
    # CSST's classes weigh alike at first, and a fixed gain stays so; without the KL threshold that is FixMatch.
    weighted_row = Row("fixmatch 1/pi", "csst-no-kl", objective, {"dual": {"update": "fixed", "initial": "zero"}})
    return [
        *make_rows(["erm", "la"], [objective]),
        *_vary_updates(["csl"], objective, ["gradient"]),
        *make_rows(["fixmatch", "uda", "flexmatch", "darp", "crest+"], [objective]),
        weighted_row,
        *_vary_updates(["csst-fixmatch", "csst-uda"], objective),
        *_vary_updates(["csst-no-kl"], objective, ["gradient", "solve"]),
        *_vary_updates(["csst-balanced"], objective),
    ]


def _make_few(goal: Callable[[Recipe], str]) -> Callable[[Recipe], list[Row]]:
    """Return a function that makes rows of the best known methods, and of the paper's with every update."""
    return lambda base: [
        *make_rows(["la", "fixmatch"], [goal(base)]),
        *_vary_updates(["csst-fixmatch", "csst-balanced"], goal(base)),
    ]


def _require(base: Recipe, name: str, *settings: str) -> list[int]:
    """Return these settings of the recipe's data; raise an error if it has none of them."""
    missing_settings = [setting for setting in settings if not hasattr(base.data, setting)]
    if missing_settings:
        raise InputError(
            f"the preset {name} needs data cut by counts; recipe {base.name} has no data.{missing_settings[0]}: use a "
            "recipe that has, such as digits"
        )
    return [getattr(base.data, setting) for setting in settings]


PRESETS: dict[str, Preset] = {
    "table-min-recall": Preset("Table 2, Fig. 1", VISION, _make_table(MAIN, _ask_worst)),
    "table-coverage": Preset(
        "Table 3, Table 6", VISION, _make_table((*MAIN[:-1], "csst-no-kl", MAIN[-1]), _ask_coverage)
    ),
    "table-nlp": Preset("Table 4, Table 7", TEXTS, _make_table(("erm", "uda", "csst-uda"), _ask_worst)),
    "mask-rate": Preset(
        "Fig. 4",
        ("cifar100-lt",),
        _make_table(("fixmatch", "csst-no-kl", "csst-fixmatch"), _ask_worst, _ask_coverage),
    ),
    "ablation-labeled": Preset("Fig. 5a", ("cifar10-lt",), _vary_labels),
    "ablation-tau": Preset("Fig. 5b", ("cifar10-lt",), _vary_tau),
    "seeds": Preset("Table 9", ("cifar10-lt",), _make_table(MAIN, _ask_worst)),
    "table-ssl-min-recall": Preset("Table 10", ("cifar10-lt", "cifar100-lt"), _make_table(SSL, _ask_worst)),
    "table-ssl-coverage": Preset("Table 11", ("cifar10-lt", "cifar100-lt"), _make_table(SSL, _ask_coverage)),
    "protocol-1500-3000": Preset("not in the paper", ("cifar10-lt",), _make_protocol),
    "scratch": Preset("not in the paper", SCRATCH, _make_scratch),
    "scratch-few": Preset("not in the paper", SCRATCH, _make_few(_ask_worst)),
    "scratch-coverage": Preset("not in the paper", SCRATCH, _make_few(_ask_coverage)),
}
