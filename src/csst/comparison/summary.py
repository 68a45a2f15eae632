"""The results of a comparison: a table of rows over seeds, ranked by the value of the objective."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from csst.comparison.rows import Row
from csst.errors import InputError
from csst.fitting.metrics import KeptEvidence, bind_sentence, read_label_prior, read_outputs
from csst.maths.confusion import Confusion
from csst.maths.language.words import is_minimized
from csst.rules.candidates import NAMES, fit_candidates, sharpness
from csst.rules.soft_objective import SoftObjective
from csst.runs.folder import Run, read_recipe
from csst.training.evaluation import constraints_met, summarize_counts

VALUE = "objective_value"
MEASURES = ("mean_recall", "min_recall", "min_coverage")
#: the measures that are over head and tail for an objective about these
OVER_GROUPS = {
    "min_recall": "max min(recall[head], recall[tail])",
    "min_coverage": "max min(coverage[head], coverage[tail])",
}
#: the mean of the five lowest class recalls, shown where there are more than ten classes
LOWEST = "five_lowest_recalls"
MANY_CLASSES = 10
#: rules that a comparison can show: the one chosen by each run, and the candidates
RULES = ("fit", *(name.replace(" ", "-") for name in NAMES))


@dataclass(frozen=True)
class Outcome:
    """The runs of one row, one metrics.json per seed."""

    row: Row
    metrics: list[dict[str, Any]]
    folders: list[Path]


@dataclass(frozen=True)
class SeedResult:
    """The results of one run of a row.

    Args:
        seed: seed of the run.
        values: `VALUE` and `MEASURES`; the minima are over head and tail if the objective is about them.
        slack: slack of each constraint, negative if it is missed.
        recall: recall of each class.
        seconds: time of training.
        used: the fraction of pseudo-labels used between the last two multiplier updates; None without any.
        hardware: the machine, as a phrase.
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
        """Whether all constraints are met; None without constraints."""
        return constraints_met(self.slack)

    @property
    def missed(self) -> float:
        """The largest miss of a constraint; 0 if all are met."""
        return -min(self.slack) if self.is_met is False else 0.0


@dataclass(frozen=True)
class ComparisonRow:
    """A line of the table: a row of the comparison over its seeds, as trained or with a decision rule.

    Args:
        row: the row of the comparison.
        rule: "" as trained, "rule" with the rule chosen by each run, or the name of a candidate.
        results: one result per seed.
        part: the measured part, "test" if all runs have one, else "validation".
        is_grouped: whether the minima are over head and tail.
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
        """Return one measure over the seeds: `VALUE`, one of `MEASURES`, or `LOWEST`."""
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
        fractions = [result.used for result in self.results if result.used is not None]
        return statistics.mean(fractions) if fractions else None

    @property
    def hardware(self) -> str:
        return "; ".join(dict.fromkeys(result.hardware for result in self.results))

    @property
    def missed(self) -> float:
        """The largest miss of a constraint, averaged over seeds."""
        return statistics.mean(result.missed for result in self.results)

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: the mean miss of constraints, then minus the value, to three decimals; less is better.

        Of a sentence that minimizes, the value itself.
        """
        value = round(self.mean(VALUE), 3)
        return round(self.missed, 3), value if is_minimized(self.row.objective) else -value


def tabulate(outcomes: Sequence[Outcome], rules: Sequence[str] = ("fit",)) -> list[ComparisonRow]:
    """Return each row as trained and, if it trains a network with a rule, again with each of `rules` (see `RULES`).

    Other learners always decide by their rule, so that their row is a single line.
    """
    for name in rules:
        if name not in RULES:
            raise InputError(f"the rules of a comparison are {', '.join(RULES)}, or none; found {name!r}")
    table = []
    for outcome in outcomes:
        if not outcome.row.is_network:
            table.append(_make_row(outcome, "", [metrics.get("adjusted", metrics) for metrics in outcome.metrics]))
            continue
        table.append(_make_row(outcome, "", outcome.metrics))
        candidates = []
        if {*rules} - {"fit"}:
            runs = zip(outcome.folders, outcome.metrics, strict=True)
            candidates = [dict(_measure_candidates(*run)) for run in runs if "adjusted" in run[1]]
        for name in rules:
            if name == "fit":
                label = "rule"
                parts = [metrics["adjusted"] for metrics in outcome.metrics if "adjusted" in metrics]
            else:
                label = name.replace("-", " ")
                parts = [parts_by_rule[name] for parts_by_rule in candidates]
            if parts:
                table.append(_make_row(outcome, label, parts))
    return table


def sort_rows(table: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Sort rows by objective, then by the smallest miss of constraints, then by the best value."""
    objectives = list(dict.fromkeys(line.row.objective for line in table))
    return sorted(table, key=lambda line: (objectives.index(line.row.objective), line.rank))


def _measure_candidates(folder: Path, metrics: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit every candidate for a run's rule to its stored scores; yield its name and numbers as in metrics.json."""
    evidence, prior = KeptEvidence.read(folder)
    outputs = read_outputs(folder)
    names = tuple(metrics["class_names"])
    objective = read_recipe(folder).bind_objective(names).bind_prior(read_label_prior(metrics))
    soft_objective = SoftObjective(objective, prior, sharpness(evidence))
    for candidate in fit_candidates(soft_objective, evidence):
        rule = candidate.as_rule(evidence.train_prior, evidence.undo)
        parts = {}
        for part, (scores, labels) in outputs.parts.items():
            counts = rule.counts(torch.softmax(scores.double(), 1), labels)
            parts[part] = summarize_counts(counts, objective)
        yield candidate.name.replace(" ", "-"), parts


def _make_row(outcome: Outcome, rule: str, parts: list[dict[str, Any]]) -> ComparisonRow:
    """Return a line of the table from the numbers of each seed, which hold "validation" and perhaps "test"."""
    is_grouped = any(word in outcome.metrics[0]["objective"] for word in ("[head]", "[tail]"))
    part = "test" if all("test" in entry for entry in parts) else "validation"
    results = []
    for metrics, folder, entry in zip(outcome.metrics, outcome.folders, parts, strict=True):
        numbers = entry[part]
        if is_minimized(metrics["objective"]):
            numbers = {**numbers, VALUE: 0.0 - numbers[VALUE]}
        if is_grouped:
            numbers = {**numbers, **_measure_groups(folder, metrics, numbers)}
        results.append(
            SeedResult(
                metrics["seed"],
                {measure: numbers[measure] for measure in (VALUE, *MEASURES)},
                numbers["constraint_slack"],
                numbers["recall"],
                metrics["seconds"],
                None if rule else _read_last_used(folder),
                read_hardware(folder, uses_gpu=outcome.row.is_network),
            )
        )
    return ComparisonRow(outcome.row, rule, results, part, is_grouped)


def _read_last_used(folder: Path) -> float | None:
    used_fraction = None
    for record, _ in Run(folder).records():
        used_fraction = record.get("used")
    return used_fraction


def read_hardware(folder: Path, uses_gpu: bool = True) -> str:
    """Return the machine in a run's environment.json: its GPUs, or its processor and threads; "" if unknown."""
    environment = Run(folder).read_environment()
    if not environment:
        return ""
    if environment.get("gpu") and uses_gpu and Run(folder).recipe()["hardware"]["accelerator"] != "cpu":
        return f"{environment['processes']} × {environment['gpu']}"
    threads = environment.get("threads", 1) * environment.get("processes", 1)
    return f"{environment['processor']}, {threads} thread{'s' if threads != 1 else ''}"


def _measure_groups(folder: Path, metrics: dict[str, Any], numbers: dict[str, Any]) -> dict[str, float]:
    """Return the minima over head and tail, as in the paper's tables for many classes."""
    confusion = Confusion.from_counts(torch.tensor(numbers["confusion"]))
    goals = {measure: bind_sentence(folder, sentence, metrics) for measure, sentence in OVER_GROUPS.items()}
    return {measure: float(goal.value(confusion)) for measure, goal in goals.items()}
