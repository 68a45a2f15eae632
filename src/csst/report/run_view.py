"""What a page knows of a run, from its folder or from memory; with result.py it alone knows the keys of its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import takewhile
from math import nan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import yaml

from csst.errors import InputError
from csst.maths.language import ALIASES
from csst.report.bounds import label_multipliers
from csst.report.result import Result
from csst.rules.bounds import Bound
from csst.rules.certified import Certificate, certificate_from_dict
from csst.runs.folder import Run

#: bytes of a journal up to which it is read whole, for the diagnostics of the multipliers
DIAGNOSED = 64_000_000
TOO_LONG = "the journal is too long ({:,} updates) to diagnose the multipliers"
#: records of a journal that are kept at most, and characters in them
POINTS, CHARACTERS = 500, 16_000_000
#: entries of a record that have a number per class or multiplier
LISTS = ("recall", "coverage", "multipliers")
#: how the warning about a lowest recall that is known badly begins
MINIMUM_NOTE = "the lowest class recall is expected to be "
T = TypeVar("T")


class FrontierPoint(NamedTuple):
    """What one decision rule attains."""

    mean_recall: float
    min_recall: float
    min_coverage: float


@dataclass(frozen=True)
class RunView:
    """One run of a page.

    Attributes:
        name: tells it from the other runs of the page.
        results: what was measured on `validation` and `test` as trained; while training, the last record.
        adjusted_results: the same with the decision rule, empty without one.
        unadjusted_results: of the model whose rule it is, on the same parts without the rule.
        expected_value: of the objective with the rule; nan where the run does not say.
        bounds: by how much each constraint is expected to be met with the rule.
        certificate: whether the bounds are promised; None where no confidence was asked for.
        basis: what is expected of the rule is estimated from this.
        trades: the ways from mean recall to another number, as metrics.json has them; empty where it has none.
        feasibility: in words, whether rules can meet the constraints; "" without any, or where all are said to be met.
        class_counts: labeled examples of each class; None while training.
        labels: names of the multipliers.
        journal: evenly spaced records of the `updates` lines of the whole journal.
        warnings: of the training and about its multipliers.
        settings: the recipe.
    """

    name: str
    method: str
    objective: str
    data: str
    seed: str
    steps: str
    is_complete: bool
    results: dict[str, Result]
    class_names: list[str]
    adjusted_results: dict[str, Result]
    unadjusted_results: dict[str, Result]
    expected_value: float
    bounds: list[Bound]
    certificate: Certificate | None
    basis: str
    frontier: list[FrontierPoint]
    trades: dict[str, Any]
    feasibility: str
    class_counts: list[int] | None
    unlabeled_count: int
    split: str
    selected_step: int | None
    seconds: float | None
    labels: list[str]
    journal: list[dict[str, Any]]
    updates: int
    warnings: list[str]
    settings: dict[str, Any]
    environment: dict[str, Any]
    folder: str

    @property
    def part(self) -> str:
        """What its numbers were measured on: test, or validation where there is no test set or no end yet."""
        return "test" if "test" in self.results else "validation"

    @property
    def result(self) -> Result:
        """The numbers as trained; of an incomplete run those of its last record."""
        return self.results.get(self.part, Result())

    @property
    def adjusted(self) -> Result | None:
        """The numbers with the decision rule, where the run has one."""
        return self.adjusted_results.get(self.part)

    @property
    def deployed(self) -> Result:
        """The numbers of the model that csst predict uses."""
        return self.adjusted or self.result

    @property
    def without_rule(self) -> Result:
        """The numbers of the same model without its rule."""
        return self.unadjusted_results.get(self.part, self.result)

    @property
    def unadjusted(self) -> Result | None:
        """The numbers on validation of the model whose rule it is, without the rule."""
        return self.unadjusted_results.get("validation")

    @property
    def origin(self) -> tuple[str, str]:
        """Runs of the same origin can be compared."""
        return self.data, self.split

    @property
    def recorded_steps(self) -> list[int]:
        return [record["step"] for record in self.journal]

    def lowest_classes(self, limit: int) -> list[int]:
        """The indices of all classes; of more than `limit` of those with the lowest recall of the deployed model."""
        indices = range(len(self.class_names))
        recall = self.deployed.recall
        return list(indices) if len(indices) <= limit else sorted(indices, key=lambda c: (recall[c], c))[:limit]

    def curve(self, key: str) -> Any:
        """One entry of the journal over the records, nan where a record has none: [records] or [records, classes]."""
        return np.array([record.get(key) for record in self.journal], float)


def read_runs(folders: Sequence[str | Path]) -> list[RunView]:
    """The runs in these folders, each read once, in bounded memory, with names that differ."""
    seen: set[Path] = set()
    for folder in folders:
        if Path(folder).resolve() in seen:
            raise InputError(f"the run {folder} appears twice: name each run once")
        seen.add(Path(folder).resolve())
    return name_runs([read_run(folder) for folder in folders])


def name_runs(runs: Sequence[RunView]) -> list[RunView]:
    """The runs with names made of the method and what else differs between them, with the folder where nothing does."""
    aliases = {sentence: alias for alias, sentence in ALIASES.items()}
    facts = [
        (run.method, f"for {aliases.get(run.objective, run.objective)}", f"on {run.data}", f"seed {run.seed}")
        for run in runs
    ]
    differs = [True, *(len(set(column)) > 1 for column in list(zip(*facts, strict=True))[1:])]
    names = [" ".join(fact for fact, shown in zip(row, differs, strict=True) if shown) for row in facts]
    if len(set(names)) < len(names):
        names = [f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def read_run(folder: str | Path, name: str = "") -> RunView:
    """The run in this folder, complete or not."""
    inside = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
    if not Run.exists(folder) and any(Run.exists(path) for path in inside):
        raise InputError(f"{folder} is not a run but holds some: name them, as in csst report {Path(folder) / '*'}")
    run = Run.open(folder)
    metrics = _read_mapping(run.path("metrics.json"), json.loads)
    if metrics and not isinstance(metrics.get("test", metrics.get("validation")), dict):
        raise InputError(f"{run.path('metrics.json')} holds no results on test or validation: train the run again")
    path = run.path("journal.jsonl")
    is_long = path.is_file() and path.stat().st_size > DIAGNOSED
    journal, updates = _read_long_journal(path) if is_long else (run.journal(), None)
    return view_run(
        name,
        metrics,
        journal,
        updates=updates,
        recipe=_read_mapping(run.path("recipe.yaml"), yaml.safe_load),
        environment=_read_mapping(run.path("environment.json"), json.loads),
        folder=folder,
    )


def view_run(
    name: str,
    metrics: Mapping[str, Any],
    journal: Sequence[dict[str, Any]],
    labels: Sequence[str] | None = None,
    recipe: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    folder: str | Path = "",
    updates: int | None = None,
) -> RunView:
    """A run from what its files hold.

    Args:
        name: tells it from the other runs of the page.
        metrics: of metrics.json, empty while training.
        journal: the records.
        labels: of the multipliers; None takes them from the metrics or the objective.
        recipe: of recipe.yaml.
        environment: of environment.json.
        folder: where the run is.
        updates: how many records a journal has that is too long to be read whole; `journal` are some of them.

    Returns:
        The run.
    """
    recipe, rule = recipe or {}, metrics.get("adjusted") or {}
    records, count = thin(journal)
    if len({tuple(len(record.get(key) or ()) for key in LISTS) for record in records}) > 1:
        raise InputError(f"the journal of {folder or name} is damaged: the number of classes changes; train again")
    objective = str(metrics.get("objective") or recipe.get("objective", "?"))
    results = _read_parts(metrics)
    if records and not metrics:
        last = records[-1]
        results = {"validation": Result.read({**last, "min_recall": min(last["recall"])})}
        labels = label_multipliers(objective, len(last["recall"]), len(last["multipliers"]))
    labels = list(metrics.get("multipliers", ()) if labels is None else labels)
    classes = max((len(result.recall) for result in results.values()), default=0)
    # The page says the lowest recall and its interval once, elsewhere.
    warnings = [str(note) for note in metrics.get("warnings") or () if not str(note).startswith(MINIMUM_NOTE)]
    if metrics:
        warnings += diagnose(journal, labels) if updates is None else [TOO_LONG.format(updates)]
    return RunView(
        name=name,
        method=str(metrics.get("method") or recipe.get("method", "?")),
        objective=objective,
        data=str(metrics.get("recipe") or recipe.get("name", "?")),
        seed=str(metrics.get("seed", recipe.get("seed", "?"))),
        steps=str(metrics.get("steps") or (recipe.get("training") or {}).get("steps", "?")),
        is_complete=bool(metrics),
        results=results,
        class_names=[str(name) for name in metrics.get("class_names") or range(classes)],
        adjusted_results=_read_parts(rule),
        unadjusted_results=_read_parts(rule.get("unadjusted") or metrics),
        expected_value=rule.get("value", nan),
        bounds=[Bound(*(bound[each.name] for each in fields(Bound))) for bound in rule.get("bounds") or ()],
        certificate=certificate_from_dict(rule["certificate"]) if rule.get("certificate") else None,
        basis=str((rule.get("estimate") or {}).get("basis", "")),
        frontier=read_frontier(rule.get("frontier") or ()),
        trades=rule.get("trades") or {},
        feasibility=str(rule.get("frontier_sentence") or "") if _is_in_doubt(rule) else "",
        class_counts=metrics.get("labeled_counts"),
        unlabeled_count=metrics.get("unlabeled_count", 0),
        split=metrics.get("split_hash", "?"),
        selected_step=metrics.get("selected_step"),
        seconds=metrics.get("seconds"),
        labels=labels,
        journal=records,
        updates=count if updates is None else updates,
        warnings=warnings,
        settings=dict(recipe),
        environment=dict(environment or {}),
        folder=str(folder),
    )


def thin(items: Iterable[T], points: int = POINTS) -> tuple[list[T], int]:
    """Evenly spaced items, such as records of a journal or its lines, in bounded memory.

    Kept is every n-th, with n the smallest power of two that is enough; fewer where the items are very long.

    Args:
        items: read one by one.
        points: how many to keep at most, 2 or more.

    Returns:
        The items kept, the first and the last among them, and how many there were.
    """
    if points < 2:
        raise InputError(f"a thinned journal has at least 2 points, its first and its last; found points = {points}")
    kept: list[T] = []
    stride, count = 1, 0
    for item in items:
        if not kept:
            points = max(2, min(points, CHARACTERS // len(str(item))))
        if count % stride == 0 and len(kept) == 2 * points:
            kept, stride = kept[::2], 2 * stride
        if count % stride == 0:
            kept.append(item)
        count += 1
    if len(kept) > points:
        kept, stride = kept[::2], 2 * stride
    if count and (count - 1) % stride:
        kept = [*kept[: points - 1], item]
    return kept, count


def _read_long_journal(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Some records, of which alone the lines are decoded, and how many there are; a torn last line is none."""
    with path.open("rb") as file:
        lines, updates = thin(takewhile(lambda line: line.endswith(b"\n"), file))
    try:
        return [json.loads(line) for line in lines], updates
    except ValueError:
        raise InputError(f"{path} is damaged: a line is no record; restore it, or train the run again") from None


def read_frontier(points: Iterable[Mapping[str, Any]]) -> list[FrontierPoint]:
    """The points of a frontier that have all numbers, in the order of the mean recall."""
    keys = FrontierPoint._fields
    whole = [point for point in points if all(point.get(key) is not None for key in keys)]
    return sorted(FrontierPoint(*(point[key] for key in keys)) for point in whole)


def diagnose(journal: Sequence[dict[str, Any]], labels: Sequence[str]) -> list[str]:
    """Warnings about the multipliers, from all records: those of a thinned journal would seem to move more."""
    if not journal or not labels:
        return []
    from csst.theory.dual import dual_diagnostics

    try:
        return [str(warning) for warning in dual_diagnostics(journal, labels)["warnings"]]
    except InputError as error:
        return [f"the multipliers cannot be diagnosed: {error}"]


def _is_in_doubt(rule: Mapping[str, Any]) -> bool:
    """Whether a rule has constraints that are not all said to be met."""
    if "bounds" in rule:
        return any(bound["status"] != "met" for bound in rule["bounds"])
    return any((rule.get(part) or {}).get("constraint_slack") for part in ("validation", "test"))


def _read_parts(values: Mapping[str, Any]) -> dict[str, Result]:
    return {part: Result.read(values[part]) for part in ("validation", "test") if values.get(part)}


def _read_mapping(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """What a file of names and values holds; nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold names and values; found {type(content).__name__}")
    return content
