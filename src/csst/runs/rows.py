"""What a comparison is made of: rows of method, objective and overrides of settings; the paper's tables as presets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

from csst.errors import InputError, nearest
from csst.recipes.recipe import Recipe, with_overrides


@dataclass(frozen=True)
class Row:
    """One line of the table: a method for an objective, with settings of its own where `changes` has any."""

    label: str
    method: str
    objective: str
    changes: dict[str, Any] = field(default_factory=dict)

    def recipe(self, base: Recipe, seed: int, rule: str) -> Recipe:
        values = {
            **self.changes,
            "method": self.method,
            "objective": self.objective,
            "seed": seed,
            "rule": rule,
            "learner": "network",
        }
        return with_overrides(base, values)

    @property
    def folder(self) -> str:
        """A name for the folder of its runs, without the seed.

        Letters that folders do not take become _, and long names are cut; a hash then tells such names apart.
        """
        said = f"{self.label}-{self.objective}"
        name = "".join(letter if letter.isalnum() or letter in "-+.=_" else "_" for letter in said)[:90]
        return name if name == said else f"{name}-{sha256(said.encode()).hexdigest()[:8]}"


def rows(methods: Sequence[str], objectives: Sequence[str]) -> list[Row]:
    """Every method for every objective."""
    if not methods or not objectives:
        raise InputError("a comparison needs at least one method and one objective")
    found = [Row(method, method, objective) for objective in objectives for method in methods]
    if len({row.folder for row in found}) < len(found):
        raise InputError(f"a method or objective is named twice: {', '.join(methods)}; {', '.join(objectives)}")
    return found


def preset(name: str, base: Recipe) -> list[Row]:
    """The rows of one of the paper's tables or figures, for this recipe."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}{nearest(name, PRESETS) or '; presets: ' + ', '.join(PRESETS)}")
    return PRESETS[name](base)


def _worst(base: Recipe) -> str:
    return "min-ht-recall" if "ht" in base.objective.split("-") else "min-recall"


def _coverage(base: Recipe) -> str:
    return "mean-recall-ht-coverage" if "ht" in base.objective.split("-") else "mean-recall-coverage"


def _table_min_recall(base: Recipe) -> list[Row]:
    return rows(["erm", "la", "csl", "fixmatch", "csst-fixmatch"], [_worst(base)])


def _table_coverage(base: Recipe) -> list[Row]:
    return rows(["erm", "la", "csl", "fixmatch", "csst-no-kl", "csst-fixmatch"], [_coverage(base)])


def _table_nlp(base: Recipe) -> list[Row]:
    return rows(["erm", "uda", "csst-uda"], [_worst(base)])


def _ablation_tau(base: Recipe) -> list[Row]:
    return [
        Row(f"csst tau={tau}", "csst", objective, {"selftraining": {"tau": tau}})
        for objective in (_worst(base), _coverage(base))
        for tau in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
    ]


def _ablation_labeled(base: Recipe) -> list[Row]:
    known = {f.name for f in fields(base.data)}  # type: ignore[arg-type]
    if "labeled" not in known:
        raise InputError(
            f"the preset ablation-labeled needs data cut by counts; recipe {base.name} has no data.labeled"
        )
    full = base.data.labeled  # type: ignore[attr-defined]
    return [
        Row(f"{method} labeled={share:g}x", method, _worst(base), {"data": {"labeled": max(1, round(share * full))}})
        for share in (0.25, 0.5, 1.0)
        for method in ("fixmatch", "csst")
    ]


def _mask_rate(base: Recipe) -> list[Row]:
    return rows(["fixmatch", "csst-no-kl", "csst-fixmatch"], [_worst(base), _coverage(base)])


def _seeds(base: Recipe) -> list[Row]:
    return rows(["csl", "fixmatch", "csst-fixmatch"], [_worst(base)])


#: the paper's tables and figures
PRESETS: dict[str, Callable[[Recipe], list[Row]]] = {
    "table-min-recall": _table_min_recall,
    "table-coverage": _table_coverage,
    "table-nlp": _table_nlp,
    "ablation-tau": _ablation_tau,
    "ablation-labeled": _ablation_labeled,
    "mask-rate": _mask_rate,
    "seeds": _seeds,
}
