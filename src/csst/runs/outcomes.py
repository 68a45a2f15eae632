"""What the runs of a comparison say, row by row: a table over seeds, ranked by the objective's own value."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from csst.errors import InputError
from csst.fitted import read_recipe
from csst.maths.confusion import Confusion, head_tail
from csst.recipes.recipe import read_group
from csst.rules.candidates import NAMES, fit_candidates, sharpness
from csst.rules.smooth import SmoothObjective
from csst.runs.folder import Run
from csst.runs.results import KeptEvidence, read_outputs
from csst.runs.rows import Row
from csst.training.evaluation import constraints_met, summarize_counts

VALUE = "objective_value"
MEASURES = ("mean_recall", "min_recall", "min_coverage")
#: the mean of the five lowest class recalls, shown where there are more than ten classes
LOWEST = "five_lowest_recalls"
MANY_CLASSES = 10
#: rules that a comparison can show: the one that every run chose, and the candidates it chose among
RULES = ("fit", *(name.replace(" ", "-") for name in NAMES))


@dataclass(frozen=True)
class Outcome:
    """The runs of one row, one metrics.json per seed."""

    row: Row
    metrics: list[dict[str, Any]]
    folders: list[Path]


@dataclass(frozen=True)
class SeedResult:
    """What one run of a row reached.

    Args:
        seed: of the run.
        values: `VALUE` and `MEASURES`; the minima are of head and tail where the objective is.
        slack: of every constraint, negative where it is missed.
        recall: of every class.
        seconds: of training.
        used: the fraction of pseudo-labels used between the last two multiplier updates; None without any.
        hardware: what it ran on, in words.
    """

    seed: int
    values: dict[str, float]
    slack: list[float]
    recall: list[float]
    seconds: float
    used: float | None = None
    hardware: str = ""

    @property
    def five_lowest_recalls(self) -> float:
        """The mean of the five lowest class recalls: of many classes, the lowest alone is mostly chance."""
        return statistics.mean(sorted(self.recall)[:5])

    @property
    def is_met(self) -> bool | None:
        """Whether all constraints are; None without any."""
        return constraints_met(self.slack)

    @property
    def missed(self) -> float:
        """By how much the constraint that is furthest from it is missed; 0 if all are met."""
        return -min(self.slack) if self.is_met is False else 0.0


@dataclass(frozen=True)
class ComparisonRow:
    """A line of the table: a row of the comparison over its seeds, as trained or with a decision rule.

    Args:
        row: of the comparison.
        rule: "" as trained, "rule" with the rule that each run chose, or one of the candidates' names.
        results: one per seed.
        part: what was measured, test wherever there is one.
        is_grouped: whether the minima are of head and tail.
    """

    row: Row
    rule: str
    results: list[SeedResult]
    part: str
    is_grouped: bool

    @property
    def name(self) -> str:
        return f"{self.row.label} + {self.rule}" if self.rule else self.row.label

    @property
    def n(self) -> int:
        return len(self.results)

    def values(self, measure: str) -> list[float]:
        """One measure over the seeds: `VALUE`, one of `MEASURES`, or `LOWEST`."""
        if measure == LOWEST:
            return [result.five_lowest_recalls for result in self.results]
        return [result.values[measure] for result in self.results]

    def mean(self, measure: str) -> float:
        return statistics.mean(self.values(measure))

    def std(self, measure: str) -> float:
        return statistics.stdev(self.values(measure)) if self.n > 1 else 0.0

    @property
    def has_many_classes(self) -> bool:
        """Whether the lowest of so many recalls says little."""
        return max(len(result.recall) for result in self.results) > MANY_CLASSES

    @property
    def seconds(self) -> float:
        return statistics.mean(result.seconds for result in self.results)

    @property
    def used(self) -> float | None:
        known = [result.used for result in self.results if result.used is not None]
        return statistics.mean(known) if known else None

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(result.hardware for result in self.results))

    @property
    def missed(self) -> float:
        """By how much the constraints are missed, on average."""
        return statistics.mean(result.missed for result in self.results)

    @property
    def rank(self) -> tuple[float, float]:
        """By how much constraints are missed on average, then minus the value, to three decimals; less is better."""
        return round(self.missed, 3), -round(self.mean(VALUE), 3)


def tabulate(outcomes: Sequence[Outcome], rules: Sequence[str] = ("fit",)) -> list[ComparisonRow]:
    """Each row as trained and, where its runs have a rule, once more with each of `rules` (see `RULES`)."""
    unknown = [name for name in rules if name not in RULES]
    if unknown:
        raise InputError(f"a comparison knows the rules {', '.join(RULES)}, or none; found {unknown[0]!r}")
    table = []
    for outcome in outcomes:
        table.append(_make_row(outcome, "", outcome.metrics))
        candidates = [dict(_measure_candidates(*run)) for run in _with_rule(outcome)] if {*rules} - {"fit"} else []
        for name in rules:
            if name == "fit":
                parts = [metrics["adjusted"] for metrics in outcome.metrics if "adjusted" in metrics]
            else:
                parts = [measured[name] for measured in candidates]
            if parts:
                table.append(_make_row(outcome, "rule" if name == "fit" else name.replace("-", " "), parts))
    return table


def sort_rows(table: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """The rows of one objective together, the best first: the highest value of those that miss constraints least."""
    objectives = list(dict.fromkeys(line.row.objective for line in table))
    return sorted(table, key=lambda line: (objectives.index(line.row.objective), line.rank))


def _with_rule(outcome: Outcome) -> Iterator[tuple[Path, dict[str, Any]]]:
    pairs = zip(outcome.folders, outcome.metrics, strict=True)
    return ((folder, metrics) for folder, metrics in pairs if "adjusted" in metrics)


def _measure_candidates(folder: Path, metrics: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every candidate for a run's rule on what the run kept, as metrics.json would have it."""
    kept, outputs, names = KeptEvidence.read(folder), read_outputs(folder), tuple(metrics["class_names"])
    objective = kept.bind(read_recipe(folder).bind_objective(names), names)
    smooth = SmoothObjective(objective, kept.prior, sharpness(kept.evidence))
    for candidate in fit_candidates(smooth, kept.evidence, kept.undo):
        rule = candidate.as_rule(kept.evidence.train_prior, kept.undo)
        parts = {}
        for part, (scores, labels) in outputs.parts.items():
            counts = rule.counts(torch.softmax(scores.double(), 1), labels)
            parts[part] = summarize_counts(counts, objective)
        yield candidate.name.replace(" ", "-"), parts


def _make_row(outcome: Outcome, rule: str, parts: list[dict[str, Any]]) -> ComparisonRow:
    is_grouped = any(word in outcome.metrics[0]["objective"] for word in ("[head]", "[tail]"))
    part = "test" if all("test" in numbers for numbers in parts) else "validation"
    results = []
    for metrics, folder, numbers in zip(outcome.metrics, outcome.folders, parts, strict=True):
        shown = numbers[part]
        if is_grouped:
            shown = {**shown, **_measure_groups(shown, _read_groups(folder, metrics))}
        results.append(
            SeedResult(
                metrics["seed"],
                {measure: shown[measure] for measure in (VALUE, *MEASURES)},
                shown["constraint_slack"],
                shown["recall"],
                metrics["seconds"],
                None if rule else _read_last_used(folder),
                read_hardware(folder, uses_gpu=outcome.row.fit is None),
            )
        )
    return ComparisonRow(outcome.row, rule, results, part, is_grouped)


def _read_last_used(folder: Path) -> float | None:
    last: dict[str, Any] = {}
    for record, _ in Run(folder).records():
        last = record
    return last.get("used")


def read_hardware(folder: Path, uses_gpu: bool = True) -> str:
    """What a run's environment.json says of the machine: a GPU per process, or the processor and its threads."""
    path = Run(folder).path("environment.json")
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if known.get("gpu") and uses_gpu and Run(folder).recipe()["hardware"]["accelerator"] != "cpu":
        return f"{known['processes']} × {known['gpu']}"
    threads = known.get("threads", 1) * known.get("processes", 1)
    return f"{known['processor']}, {threads} thread{'s' if threads != 1 else ''}" if known else ""


def _read_groups(folder: Path, metrics: dict[str, Any]) -> list[list[int]]:
    """The classes of head and tail: the recipe's, where it names them."""
    counts = torch.tensor(metrics["labeled_counts"]).double()
    groups = head_tail(counts / counts.sum())
    named = read_recipe(folder).groups if Run.exists(folder) else {}
    for name in groups.keys() & named.keys():
        members = read_group(named[name], metrics["class_names"])
        groups[name] = [c if isinstance(c, int) else metrics["class_names"].index(c) for c in members]
    return list(groups.values())


def _measure_groups(numbers: dict[str, Any], groups: list[list[int]]) -> dict[str, float]:
    """The worse of head and tail, as the paper's tables for many classes show."""
    c = Confusion.from_counts(torch.tensor(numbers["confusion"]))
    return {
        "min_recall": min(float(c.recall[members].mean()) for members in groups),
        "min_coverage": min(float(c.coverage[members].mean()) for members in groups),
    }
