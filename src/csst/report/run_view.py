"""A run as a page shows it, from its folder or from memory; with result.py the only module that knows its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from csst.data.tabular.column_words import tabulate_columns
from csst.errors import InputError
from csst.fitting.evaluation import tabulate_groups
from csst.maths.language import ALIASES, Sentence
from csst.maths.language.words import is_minimized
from csst.report.bounds import label_multipliers, read_sentence
from csst.report.mistakes import MistakenCell
from csst.report.result import Result, RuleView, read_parts, read_rule
from csst.runs.folder import Run

#: the longest journal, in bytes, that is read whole, as the diagnostics of the multipliers need
DIAGNOSED = 64_000_000
TOO_LONG = "the journal is too long ({:,} updates) to diagnose the multipliers"
#: the largest number of records of a thinned journal, and of characters in them
POINTS = 500
CHARACTERS = 16_000_000
#: entries of a record that have one number per class or multiplier
LISTS = ("recall", "coverage", "multipliers")
#: the file of examples that the model gets wrong
MISTAKES = "mistakes.json"
#: what new rows said, a line for every `csst monitor`
WATCHED = "monitor.jsonl"
#: lines of it that a page shows
MOST_WATCHED = 20
#: the beginning of the warning about an uncertain lowest recall
MINIMUM_NOTE = "the lowest class recall is expected to be "
T = TypeVar("T")


@dataclass(frozen=True)
class RunView:
    """One run of a page.

    Attributes:
        name: the name on the page, different for every run.
        data: the name of the recipe, which names the data.
        results: metrics as trained on `validation` and `test`; while training, metrics of the last record.
        rule: the decision rule and its metrics.
        class_counts: labeled examples of each class; None while training.
        split: a hash of the split.
        labels: names of the multipliers.
        journal: evenly spaced records of the whole journal.
        updates: the number of records in the whole journal.
        warnings: sentences about the training and its multipliers.
        settings: the recipe.
        columns: cells about the columns of a table, the first row being the head; empty for other data.
        learners: cells about the learners that are averaged.
        groups: cells about the expected recall of every group of rows and class.
        mistakes: examples that the deployed model gets wrong, by cell of the confusion.
        watched: cells about new rows that were looked at since, the first row being the head; the latest first.
    """

    name: str
    method: str
    objective: str
    data: str
    seed: str
    steps: str
    is_complete: bool = False
    results: dict[str, Result] = field(default_factory=dict)
    rule: RuleView = field(default_factory=RuleView)
    class_names: list[str] = field(default_factory=list)
    class_counts: list[int] | None = None
    unlabeled_count: int = 0
    split: str = "?"
    selected_step: int | None = None
    seconds: float | None = None
    labels: list[str] = field(default_factory=list)
    journal: list[dict[str, Any]] = field(default_factory=list)
    updates: int = 0
    warnings: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    folder: str = ""
    columns: list[list[str]] = field(default_factory=list)
    learners: list[list[str]] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    mistakes: list[MistakenCell] = field(default_factory=list)
    watched: list[list[str]] = field(default_factory=list)

    @property
    def part(self) -> str:
        """The part its numbers were measured on: test, or validation without a test set or while training."""
        return "test" if "test" in self.results else "validation"

    @property
    def result(self) -> Result:
        """The metrics as trained; of an incomplete run, metrics of its last record."""
        return self.results.get(self.part, Result())

    @property
    def adjusted(self) -> Result | None:
        """The metrics with the decision rule; None without one."""
        return self.rule.results.get(self.part)

    @property
    def deployed(self) -> Result:
        """The metrics of the model that csst predict uses."""
        return self.adjusted or self.result

    @property
    def without_rule(self) -> Result:
        """The metrics of the same model without its rule."""
        return self.rule.unadjusted.get(self.part, self.result)

    @property
    def origin(self) -> tuple[str, str]:
        """Data and split; only runs of the same origin can be compared."""
        return self.data, self.split

    @property
    def sentence(self) -> Sentence | None:
        """The objective if it is a sentence about these classes."""
        return read_sentence(self.objective, self.class_names, self.class_counts, self.settings.get("groups"))

    @property
    def recorded_steps(self) -> list[int]:
        """The step of each record."""
        return [record["step"] for record in self.journal]

    def lowest_classes(self, limit: int) -> list[int]:
        """Return the indices of all classes; if they are more than `limit`, those with the lowest deployed recall."""
        indices = list(range(len(self.class_names)))
        if len(indices) <= limit:
            return indices
        recall = self.deployed.recall
        return sorted(indices, key=lambda c: (recall[c], c))[:limit]

    def curve(self, key: str) -> Any:
        """Return one entry of all records, (records,) or (records, classes); nan if a record has none."""
        return np.array([record.get(key) for record in self.journal], float)


def read_runs(folders: Sequence[str | Path]) -> list[RunView]:
    """Read the runs in these folders, in bounded memory, and give them different names."""
    paths: set[Path] = set()
    for folder in folders:
        path = Path(folder).resolve()
        if path in paths:
            raise InputError(f"the run {folder} appears twice: name each run once")
        paths.add(path)
    return name_runs([read_run(folder) for folder in folders])


def name_runs(runs: Sequence[RunView]) -> list[RunView]:
    """Name runs by their method and whatever differs between them; add the folder if that is not enough."""
    aliases = {sentence: alias for alias, sentence in ALIASES.items()}
    facts = [
        (run.method, f"for {aliases.get(run.objective, run.objective)}", f"on {run.data}", f"seed {run.seed}")
        for run in runs
    ]
    columns = list(zip(*facts, strict=True))
    shown_columns = [columns[0], *(column for column in columns[1:] if len(set(column)) > 1)]
    names = [" ".join(row) for row in zip(*shown_columns, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def read_run(folder: str | Path, name: str = "") -> RunView:
    """Read the run in a folder, complete or not."""
    run = Run.open(folder)
    metrics = run.metrics() if run.is_complete else {}
    if metrics and not isinstance(metrics.get("test", metrics.get("validation")), dict):
        raise InputError(f"{run.path('metrics.json')} holds no results on test or validation: train the run again")
    updates = None
    path = run.path("journal.jsonl")
    if path.is_file() and path.stat().st_size > DIAGNOSED:
        journal, updates = read_journal(run)
    else:
        journal = run.journal()
    view = view_run(
        name,
        metrics,
        journal,
        updates=updates,
        recipe=run.recipe(),
        environment=run.read_environment(),
        folder=folder,
    )
    columns = run.columns()
    cells = [] if columns is None else tabulate_columns(columns)
    return replace(
        view, columns=cells, mistakes=_read_mistakes(run.path(MISTAKES)), watched=_read_watched(run.path(WATCHED))
    )


def read_journal(run: Run) -> tuple[list[dict[str, Any]], int]:
    """Return evenly spaced records of a run's journal, read line by line, and the number of all of them."""
    return thin(record for record, _ in run.records())


def view_run(
    name: str,
    metrics: Mapping[str, Any],
    journal: Sequence[dict[str, Any]],
    recipe: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    folder: str | Path = "",
    updates: int | None = None,
) -> RunView:
    """Return a run from the content of its files.

    Args:
        name: the name on the page, different for every run.
        metrics: the content of metrics.json, empty while training.
        journal: the records.
        recipe: the content of recipe.yaml.
        environment: the content of environment.json.
        folder: the run's folder.
        updates: the number of records of a journal that is too long to be read whole; `journal` is a selection of them.

    Returns:
        The run.
    """
    recipe = recipe or {}
    records, count = thin(journal)
    if len({tuple(len(record.get(key) or ()) for key in LISTS) for record in records}) > 1:
        raise InputError(f"the journal of {folder or name} is damaged: the number of classes changes; train again")
    view = RunView(
        name=name,
        method=str(metrics.get("method") or recipe.get("method", "?")),
        objective=str(metrics.get("objective") or recipe.get("objective", "?")),
        data=str(metrics.get("recipe") or recipe.get("name", "?")),
        seed=str(metrics.get("seed", recipe.get("seed", "?"))),
        steps=str(metrics.get("steps") or (recipe.get("training") or {}).get("steps", "?")),
        journal=records,
        updates=count if updates is None else updates,
        settings=dict(recipe),
        environment=dict(environment or {}),
        folder=str(folder),
    )
    if not metrics:
        return _add_last_record(view) if records else view
    view = _add_metrics(view, metrics)
    # The diagnostics need all records: in a thinned journal the multipliers would seem to move more.
    diagnostics = diagnose(journal, view.labels) if updates is None else [TOO_LONG.format(updates)]
    return replace(view, warnings=view.warnings + diagnostics)


def _add_last_record(view: RunView) -> RunView:
    """Return an unfinished run with the metrics of its last record."""
    record = view.journal[-1]
    classes = len(record["recall"])
    return replace(
        view,
        results={"validation": Result.read({**record, "min_recall": min(record["recall"])})},
        class_names=[str(c) for c in range(classes)],
        labels=label_multipliers(view.objective, classes, len(record["multipliers"])),
    )


def _add_metrics(view: RunView, metrics: Mapping[str, Any]) -> RunView:
    """Return a finished run with the content of its metrics.json."""
    results = read_parts(metrics, is_minimized(metrics.get("objective") or ""))
    classes = max((len(result.recall) for result in results.values()), default=0)
    notes = [str(note) for note in metrics.get("warnings") or ()]
    return replace(
        view,
        is_complete=True,
        results=results,
        rule=read_rule(metrics),
        class_names=[str(name) for name in metrics.get("class_names") or range(classes)],
        class_counts=metrics.get("labeled_counts"),
        unlabeled_count=metrics.get("unlabeled_count", 0),
        split=metrics.get("split_hash", "?"),
        selected_step=metrics.get("selected_step"),
        seconds=metrics.get("seconds"),
        labels=list(metrics.get("multipliers", ())),
        learners=_tabulate_learners(metrics),
        groups=_tabulate_groups(metrics),
        # The lowest recall and its interval stand elsewhere on the page.
        warnings=[note for note in notes if not note.startswith(MINIMUM_NOTE)],
    )


def _tabulate_learners(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Return cells about the learners that are averaged, and those left out; empty for a network."""
    members = metrics.get("members")
    if not isinstance(members, list):
        return []
    rows = [["learner", "balanced log-loss out of fold", "weight"]]
    rows += [[member["name"], f"{member['balanced_log_loss']:.3f}", f"{member['weight']:.2f}"] for member in members]
    losses = metrics.get("left_out")
    if isinstance(losses, dict):  # runs of earlier versions have names only
        rows += [[name, f"{loss:.3f}, clearly worse", "left out"] for name, loss in losses.items()]
    return rows


def _tabulate_groups(metrics: Mapping[str, Any]) -> list[list[str]]:
    """Return cells: the expected recall of every group of rows and class, its interval and labels; empty for none."""
    groups = (metrics.get("adjusted") or {}).get("groups")
    if not isinstance(groups, dict):
        return []
    head, *rows = tabulate_groups(groups, tuple(map(str, metrics.get("class_names", ()))))
    return [[f"recall by {head[0]}", *head[1:]], *rows]


def _read_mistakes(path: Path) -> list[MistakenCell]:
    """Return the examples that the model gets wrong, as far as the run keeps some."""

    def parse(text: str) -> list[MistakenCell]:
        return [MistakenCell.from_dict(cell) for cell in json.loads(text)]

    return _read(path, parse, "delete it, and the page has no mistakes to look at")


def _read_watched(path: Path) -> list[list[str]]:
    """Return what new rows said, the newest first."""

    def parse(text: str) -> list[list[str]]:
        values = [json.loads(line) for line in reversed(text.splitlines()[-MOST_WATCHED:])]
        rows = [[", ".join(map(str, value["input"])), ". ".join(map(str, value["sentences"]))] for value in values]
        return [["new rows", "what they say"], *rows]

    return _read(path, parse, "delete it, and the page has nothing about new rows")


def thin(items: Iterable[T], points: int = POINTS) -> tuple[list[T], int]:
    """Return evenly spaced items, such as records of a journal or its lines, in bounded memory.

    Every n-th item is returned, n being the smallest sufficient power of two; fewer if the items are very long.

    Args:
        items: the items, read one by one.
        points: the largest number of items to return, 2 or more.

    Returns:
        The selected items, the first and the last among them, and the number of all items.
    """
    if points < 2:
        raise InputError(f"a thinned journal has at least 2 points, its first and its last; found points = {points}")
    selection: list[T] = []
    stride = 1
    count = 0
    for item in items:
        if not selection:
            points = max(2, min(points, CHARACTERS // len(str(item))))
        if count % stride == 0 and len(selection) == 2 * points:
            selection = selection[::2]
            stride *= 2
        if count % stride == 0:
            selection.append(item)
        count += 1
    if len(selection) > points:
        selection = selection[::2]
        stride *= 2
    if count and (count - 1) % stride:
        selection = [*selection[: points - 1], item]
    return selection, count


def diagnose(journal: Sequence[dict[str, Any]], labels: Sequence[str]) -> list[str]:
    """Return warnings about the multipliers."""
    if not journal or not labels:
        return []
    from csst.theory.dual import dual_diagnostics

    try:
        return [str(warning) for warning in dual_diagnostics(journal, labels)["warnings"]]
    except InputError as error:
        return [f"the multipliers cannot be diagnosed: {error}"]


def _read(path: Path, parse: Callable[[str], list[T]], way_out: str) -> list[T]:
    """Return the parsed content of a file; nothing if there is none."""
    if not path.is_file():
        return []
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{path} cannot be read: {way_out}") from None
