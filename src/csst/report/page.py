"""The page: a sentence, a table, figures of every run, settings. One file that works offline, light and dark."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from csst.report.bounds import find_coverage_bounds
from csst.report.deployed import tabulate_deployed
from csst.report.explorer import build_explorer
from csst.report.figures.classes import TOGETHER, draw_coverage, draw_recall
from csst.report.figures.curves import draw_coverage_curves, draw_multipliers, draw_recall_curves, draw_used
from csst.report.figures.matrix import draw_confusion
from csst.report.figures.svg import Drawing, shorten
from csst.report.figures.tradeoff import draw_frontier, draw_tradeoff
from csst.report.render import render
from csst.report.run_tables import tabulate_differing_settings, tabulate_runs
from csst.report.run_view import RunView, read_run, read_runs, view_run

#: runs with figures of their own at most; the templates bound the tables, the warnings and the settings
DETAILED = 8


class Part(NamedTuple):
    """A table of a page with the figures that belong to it, under a heading where there are several."""

    heading: str
    table: list[list[str]]
    caption: str
    drawings: Sequence[Drawing]


def report_page(folders: Sequence[str | Path]) -> str:
    """The page of some runs, complete or not.

    Args:
        folders: of the runs.

    Returns:
        HTML that needs no other file.
    """
    runs = read_runs(folders)
    if len(runs) == 1:
        title = f"{runs[0].method} on {runs[0].data}"
    else:
        title = f"{len(runs)} runs on {', '.join(sorted({run.data for run in runs})[:3])}"
    return _render_page({"title": title}, tabulate_runs(runs), runs)


def comparison_page(
    title: str,
    sentence: str,
    table_rows: list[list[str]],
    runs: Mapping[str, str | Path | Mapping[str, Any]],
    detailed: int = DETAILED,
    parts: Sequence[Part] = (),
) -> str:
    """A page with a sentence and a table of the caller's, and figures of `runs`.

    Args:
        title: of the page.
        sentence: below the title.
        table_rows: cells, the first row being the head.
        runs: name → the run's folder, or what it would hold: {"metrics": metrics.json, "journal": records, "labels":
            names of the multipliers} and, where they are to be shown, "recipe", "environment", "folder".
        detailed: how many runs get figures of their own.
        parts: instead of the one table and the figures of all runs, which are then folded.

    Returns:
        The HTML.
    """
    views = [view_run(name, **run) if isinstance(run, Mapping) else read_run(run, name) for name, run in runs.items()]
    seeds = sorted({run.seed for run in views})
    note = f"The figures show one run of each row of the table, seed {', '.join(seeds[:5])}."
    head = {"title": title, "sentence": sentence, "note": "" if parts else note}
    return _render_page(head, table_rows, views, detailed, parts)


def _render_page(
    head: Mapping[str, str],
    table: list[list[str]],
    runs: Sequence[RunView],
    detailed: int = DETAILED,
    parts: Sequence[Part] = (),
) -> str:
    """The page; head: its title, and the sentence and the note below it, if they are not to be made here."""
    complete = [run for run in runs if run.is_complete]
    alike = [run for run in complete if run.class_names == complete[0].class_names and run.part == complete[0].part]
    drawn_together = alike[:TOGETHER] if len(alike) > 1 else []
    is_folded = bool(parts)
    drawings = [draw_tradeoff(complete)] if len(complete) > 1 and not is_folded else []
    if is_folded:
        drawn_together = alike
    elif drawn_together:
        drawings.append(draw_recall(alike))
    is_alone = len(runs) == 1 and not is_folded
    deployed = tabulate_deployed(runs[0]) if is_alone else None
    has_table = len(table) > 1 and (bool(complete) or not is_alone) and not is_folded and deployed is None
    return render(
        "page.html",
        title=shorten(head["title"], 200),
        sentence=head.get("sentence", ""),
        note=head.get("note", ""),
        runs=runs,
        complete=complete,
        deployed=deployed,
        table=table if has_table else [],
        parts=parts,
        drawings=drawings,
        is_folded=is_folded,
        sections=[
            {
                "run": run,
                "drawings": _draw_run(run, any(run is other for other in drawn_together), is_folded),
                "settings": yaml.safe_dump(run.settings, sort_keys=False, allow_unicode=True),
                "environment": "\n".join(f"{key}: {_format(value)}" for key, value in run.environment.items()),
            }
            for run in runs[:detailed]
        ],
        explorer=build_explorer(runs[0]) if is_alone else None,
        differing=tabulate_differing_settings(runs[:detailed]) if not is_alone else [],
    )


def _draw_run(run: RunView, has_recall: bool, is_folded: bool) -> list[Drawing]:
    """The figures of one run.

    has_recall: whether its recall is in a figure of all runs already; is_folded: whether what it used is, too, and the
    frontier is left to the run's own page.
    """
    drawings: list[Drawing | None] = []
    if run.result.recall and not has_recall:
        drawings.append(draw_recall([run]))
    if run.is_complete:
        drawings.append(draw_confusion(run))
    if run.journal:
        drawings += [draw_multipliers(run) if run.labels else None, draw_recall_curves(run)]
        drawings.append(None if is_folded else draw_used(run))
    about = (run.objective, run.class_names, run.class_counts, run.settings.get("groups"))
    bounds = find_coverage_bounds(*about) if run.result.recall else []
    if bounds:
        drawings += [draw_coverage(run, bounds), draw_coverage_curves(run, bounds) if run.journal else None]
    drawings.append(None if is_folded else draw_frontier(run))
    return [drawing for drawing in drawings if drawing is not None]


def _format(value: Any) -> str:
    """A value of the environment; the command as it can be pasted into a shell."""
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
