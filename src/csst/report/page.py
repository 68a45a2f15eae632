"""The page: a sentence, a table, figures of every run, settings. One file that works offline, light and dark."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from csst.report.classes import MANY_CLASSES, TOGETHER, coverage_figure, recall_figure
from csst.report.curves import coverage_over_time, multipliers_figure, recall_over_time, used_figure
from csst.report.document import document, folded, notes, table
from csst.report.goals import constrained_coverage
from csst.report.journal import thinned
from csst.report.matrix import confusion_figure
from csst.report.shown import ShownRun, all_notes, opened_runs
from csst.report.svg import Drawing, shortened
from csst.report.tradeoff import frontier_figure, tradeoff_figure
from csst.report.words import (
    class_table,
    constraint_table,
    differing_settings,
    numbers_table,
    run_sentence,
    runs_sentence,
)

#: runs with figures of their own, rows of a class table, sentences in a box, characters of a text: the page is bounded
DETAILED, ROWS, SENTENCES, CHARACTERS = 8, 30, 20, 20_000


def report_page(folders: Sequence[str | Path]) -> str:
    """The page of the runs in these folders, finished or not."""
    runs = opened_runs(folders)
    if len(runs) == 1:
        title, sentence = f"{runs[0].method} on {runs[0].data}", run_sentence(runs[0])
    else:
        sets = sorted({run.data for run in runs})
        title, sentence = f"{len(runs)} runs on {', '.join(sets[:3])}", runs_sentence(runs)
    return _page(title, sentence, numbers_table(runs), runs)


def comparison_page(
    title: str, sentence: str, table_rows: list[list[str]], runs: dict[str, dict[str, Any]], detailed: int = DETAILED
) -> str:
    """A page with a sentence and a table of the caller's, and figures of `runs`.

    runs: name → {"metrics": metrics.json, "journal": records, "labels": names of the multipliers} and, where they are
    to be shown, "recipe", "environment", "folder". detailed: how many runs get figures of their own.
    """
    shown = [
        ShownRun(
            name=name,
            metrics=run["metrics"],
            journal=thinned(run["journal"]),
            labels=list(run["labels"]),
            recipe=run.get("recipe") or {},
            environment=run.get("environment") or {},
            folder=str(run.get("folder") or ""),
            updates=len(run["journal"]),
            notes=all_notes(run["metrics"], run["journal"], run["labels"]),
        )
        for name, run in runs.items()
    ]
    seeds = sorted({run.seed for run in shown})
    note = f"The figures show one run of each row of the table, seed {', '.join(seeds[:5])}."
    return _page(title, sentence, table_rows, shown, detailed, note)


def _page(
    title: str,
    sentence: str,
    rows: list[list[str]],
    runs: Sequence[ShownRun],
    detailed: int = DETAILED,
    note: str = "",
) -> str:
    parts = [f"<h1>{escape(shortened(title, 200))}</h1>\n<p class='sentence'>{escape(sentence)}</p>\n"]
    figures = _Numbered()
    done = [run for run in runs if run.finished]
    if len(rows) > 1 and (done or len(runs) > 1):
        parts.append(table(rows, f"Results on {done[0].part}" if len(runs) > 1 and done else "Results"))
    if note:
        parts.append(f"<p class='soft'>{escape(note)}</p>\n")
    same = [run for run in done if run.class_names == done[0].class_names and run.part == done[0].part]
    if len(done) > 1:
        together = [recall_figure(same)] if len(same) > 1 else []
        parts.append(figures.side_by_side([tradeoff_figure(done), *together]))
    for run in runs[:detailed]:
        parts += _section(
            run, figures, len(runs) == 1, recall_shown=any(run is other for other in same[:TOGETHER]) and len(same) > 1
        )
    if len(runs) > detailed:
        parts.append(f"<p class='soft'>Figures of the first {detailed} of {len(runs)} runs.</p>\n")
    differing = differing_settings(runs[:detailed]) if len(runs) > 1 else []
    if differing:
        parts.append("<h2>Settings that differ</h2>\n" + table(differing, "One column per run"))
    return document(shortened(title, 200), "".join(parts))


class _Numbered:
    """Gives the figures of one page their numbers."""

    def __init__(self) -> None:
        self.count = 0

    def side_by_side(self, drawings: Sequence[Drawing | None]) -> str:
        shown = []
        for drawing in drawings:
            if drawing is not None:
                self.count += 1
                shown.append(drawing.html(self.count))
        return f"<div class='figures'>{''.join(shown)}</div>\n" if shown else ""


def _section(run: ShownRun, figures: _Numbered, alone: bool, recall_shown: bool) -> list[str]:
    parts = [] if alone else [f"<h2>{escape(shortened(run.name, 200))}</h2>\n<p>{escape(run_sentence(run))}</p>\n"]
    warned = [shortened(note, 600) for note in run.notes]
    if len(warned) > SENTENCES:
        warned = [*warned[:SENTENCES], f"… and {len(warned) - SENTENCES} more"]
    parts.append(notes(warned, "Warnings"))
    for key in ("sentence", "frontier_sentence"):
        said = (run.metrics.get("adjusted") or {}).get(key)
        parts.append(f"<p>{escape(shortened(said, 600))}</p>\n" if said else "")
    covered = constrained_coverage(run.objective, run.class_names, run.counts) if run.result else []
    used = run.as_used
    if run.finish:
        text = "The confusion, the coverage and the numbers of classes and constraints below are of the finished model"
        parts.append(
            f"<p class='soft'>{text}, which csst predict uses; curves over the steps are of the training.</p>\n"
        )
    drawings: list[Drawing | None] = []
    if run.result and not recall_shown:
        drawings.append(recall_figure([run]))
    if run.finished:
        drawings.append(confusion_figure(used))
    if run.journal:
        drawings.append(multipliers_figure(run) if run.labels else None)
        drawings += [recall_over_time(run), used_figure(run)]
    if covered:
        drawings.append(coverage_figure(used, covered))
        drawings.append(coverage_over_time(run, covered) if run.journal else None)
    if alone and run.finish:
        drawings.append(tradeoff_figure([run]))
    drawings.append(frontier_figure(run) if run.finished else None)
    parts.append(figures.side_by_side(drawings))
    if len(run.journal) < run.updates:
        parts.append(
            f"<p class='soft'>Figures over the steps show {len(run.journal)} of {run.updates:,} updates.</p>\n"
        )
    limits = constraint_table(used, ROWS)
    if limits:
        shown = table(limits, f"On {run.part}; a negative slack is a miss")
        parts.append(f"<details><summary>How surely the constraints are met</summary>{shown}</details>\n")
    if run.result:
        few = len(run.class_names) <= MANY_CLASSES
        heading = "The classes in numbers" if few else f"The {ROWS} classes with the lowest recall"
        rows = table(class_table(used, ROWS), f"On {run.part}")
        parts.append(f"<details><summary>{escape(heading)}</summary>{rows}</details>\n")
    return [*parts, *_made_with(run)]


def _made_with(run: ShownRun) -> list[str]:
    parts = [f"<p class='soft'>{escape(shortened(_data(run), 600))}</p>\n"] if run.finished else []
    if run.recipe:
        text = yaml.safe_dump(run.recipe, sort_keys=False, allow_unicode=True)
        parts.append(folded("Settings", _cut(text)))
    if run.environment:
        found = dict(run.environment)
        if isinstance(found.get("command"), list):
            found["command"] = shlex.join(map(str, found["command"]))
        lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in found.items()]
        parts.append(folded("Environment", _cut("\n".join(lines))))
    return parts


def _data(run: ShownRun) -> str:
    found = run.metrics
    text = f"{run.data}, split {found.get('split_hash', '?')}, seed {run.seed}"
    if run.counts:
        text += f": {sum(run.counts):,} labeled and {found.get('unlabeled_count', 0):,} unlabeled examples"
    if "selected_step" in found:
        text += f"; selected at step {found['selected_step']} of {found.get('steps', '?')}"
    if "seconds" in found:
        text += f", {found['seconds']:,.1f} seconds"
    return text + (f"; in {run.folder}" if run.folder else "") + "."


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + "\n…"
