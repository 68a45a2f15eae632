"""A run as a page shows it: what its folder holds, with a name that tells it from the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from csst.errors import InputError
from csst.maths.language import ALIASES
from csst.report.goals import multiplier_labels
from csst.report.journal import thinned_journal
from csst.runs.folder import Run

#: bytes of a journal up to which it is read whole, for the diagnostics of the multipliers
DIAGNOSED = 64_000_000


@dataclass(frozen=True)
class ShownRun:
    """One run of a page. metrics is empty while the run is unfinished; updates: lines of the whole journal."""

    name: str
    metrics: dict[str, Any]
    journal: list[dict[str, Any]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    recipe: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    folder: str = ""
    updates: int = 0
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return bool(self.metrics)

    @property
    def part(self) -> str:
        """What its numbers were measured on: test, or validation where there is no test set or no end yet."""
        return "test" if "test" in self.metrics else "validation"

    @property
    def result(self) -> dict[str, Any]:
        """Its numbers; of an unfinished run those that the last record has."""
        if self.finished:
            return self.metrics[self.part]
        return {key: self.journal[-1][key] for key in ("recall", "coverage")} if self.journal else {}

    @property
    def finish(self) -> dict[str, Any]:
        """The same numbers after post-hoc adjustment, where the run has one."""
        return (self.metrics.get("adjusted") or {}).get(self.part) or {}

    @property
    def as_used(self) -> ShownRun:
        """The run with the numbers of the model that csst predict uses: the finished one, where there is one."""
        return replace(self, metrics={**self.metrics, self.part: self.finish}) if self.finish else self

    @property
    def intervals(self) -> dict[str, Any]:
        """Confidence intervals of its numbers, where the run has them."""
        return self.result.get("intervals") or {}

    @property
    def class_names(self) -> list[str]:
        names = self.metrics.get("class_names")
        return list(map(str, names)) if names else [str(c) for c in range(len(self.result.get("recall", ())))]

    @property
    def counts(self) -> list[int] | None:
        """Labeled examples of each class; an unfinished run does not say."""
        return self.metrics.get("labeled_counts")

    @property
    def method(self) -> str:
        return str(self.metrics.get("method") or self.recipe.get("method", "?"))

    @property
    def objective(self) -> str:
        return str(self.metrics.get("objective") or self.recipe.get("objective", "?"))

    @property
    def data(self) -> str:
        return str(self.metrics.get("recipe") or self.recipe.get("name", "?"))

    @property
    def seed(self) -> str:
        return str(self.metrics.get("seed", self.recipe.get("seed", "?")))


def opened_runs(folders: Sequence[str | Path]) -> list[ShownRun]:
    """The runs in these folders, each read once, in bounded memory, with names that differ."""
    seen: dict[Path, str] = {}
    for folder in folders:
        if Path(folder).resolve() in seen:
            raise InputError(f"the run {folder} is named twice: name each run once")
        seen[Path(folder).resolve()] = str(folder)
    return named([_opened(folder) for folder in folders])


def named(runs: list[ShownRun]) -> list[ShownRun]:
    """The runs with names made of the method and what else differs between them, with the folder where nothing does."""
    short = {sentence: alias for alias, sentence in ALIASES.items()}
    facts = [
        (run.method, f"for {short.get(run.objective, run.objective)}", f"on {run.data}", f"seed {run.seed}")
        for run in runs
    ]
    differs = [True, *(len({fact[n] for fact in facts}) > 1 for n in range(1, 4))]
    names = [" ".join(fact for fact, shown in zip(own, differs, strict=True) if shown) for own in facts]
    if len(set(names)) < len(names):
        names = [f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def _opened(folder: str | Path) -> ShownRun:
    if not Run.exists(folder) and any(Run.exists(inner) for inner in _folders(folder)):
        raise InputError(f"{folder} is not a run but holds some: name them, as in csst report {Path(folder) / '*'}")
    run = Run.open(folder)
    metrics = _read(run, "metrics.json", json.loads) if run.is_complete else {}
    recipe = _read(run, "recipe.yaml", yaml.safe_load)
    journal, updates = thinned_journal(run.path("journal.jsonl"))
    labels = list(metrics.get("multipliers", ()))
    shown = ShownRun("", metrics, journal, labels, recipe, environment_of(run), str(folder))
    if metrics and not isinstance(metrics.get(shown.part), dict):
        raise InputError(f"{run.path('metrics.json')} holds no results on test or validation: train the run again")
    if journal and not metrics:
        multipliers = len(journal[-1]["multipliers"])
        shown = replace(shown, labels=multiplier_labels(shown.objective, len(shown.class_names), multipliers))
    size = run.path("journal.jsonl").stat().st_size if journal else 0
    if size <= DIAGNOSED:
        notes = all_notes(metrics, run.journal() if metrics and updates > len(journal) else journal, shown.labels)
    elif not metrics:
        notes = ()
    else:
        long = f"the journal is too long ({updates:,} updates) to diagnose the multipliers"
        notes = (*all_notes(metrics, [], []), long)
    return replace(shown, updates=updates, notes=notes)


def all_notes(metrics: dict[str, Any], journal: Sequence[dict[str, Any]], labels: Sequence[str]) -> tuple[str, ...]:
    """Warnings of a finished run, also about its multipliers. All records: a thinned journal would exaggerate moves."""
    notes = tuple(map(str, metrics.get("warnings") or ()))
    if not metrics or not journal or not labels:
        return notes
    from csst.theory.dual import dual_diagnostics

    try:
        return (*notes, *map(str, dual_diagnostics(journal, labels)["warnings"]))
    except InputError as error:
        return (*notes, f"the multipliers cannot be diagnosed: {error}")


def environment_of(run: Run) -> dict[str, Any]:
    """What the run was made with, where it says so."""
    return _read(run, "environment.json", json.loads) if run.path("environment.json").is_file() else {}


def _folders(folder: str | Path) -> list[Path]:
    path = Path(folder)
    return sorted(inner for inner in path.iterdir() if inner.is_dir()) if path.is_dir() else []


def _read(run: Run, name: str, read: Any) -> dict[str, Any]:
    try:
        found = read(run.path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{run.path(name)} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(found, dict):
        raise InputError(f"{run.path(name)} must hold names and values; found {type(found).__name__}")
    return found
