"""Pages: a sentence, a table, figures of every run, settings. One file that works offline, light and dark."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from csst.fitting.evaluation import Evaluation
from csst.report.bounds import find_coverage_bounds
from csst.report.explorer import build_explorer
from csst.report.figures.classes import draw_coverage, draw_recall
from csst.report.figures.comparison import Curve, draw_used
from csst.report.figures.curves import draw_coverage_curves, draw_multipliers, draw_recall_curves
from csst.report.figures.matrix import draw_confusion, draw_recall_table
from csst.report.figures.svg import Drawing, run_style, shorten
from csst.report.figures.tradeoff import draw_frontier, draw_tradeoff
from csst.report.mistakes import MistakenCell
from csst.report.render import render
from csst.report.result import Result, read_frontier
from csst.report.run_tables import list_facts, tabulate_deployed, tabulate_differing_settings, tabulate_runs, title_run
from csst.report.run_view import RunView, read_run, read_runs, view_run

#: the largest number of runs with their own figures; the templates limit tables, warnings and settings
DETAILED = 8
#: the largest number of runs in a figure
MOST_RUNS = 60


class Part(NamedTuple):
    """A table of a page with its figures, and a heading if there are several parts."""

    heading: str
    table: list[list[str]]
    caption: str
    drawings: Sequence[Drawing]


def report_page(folders: Sequence[str | Path]) -> str:
    """Return the page of runs, complete or not.

    Args:
        folders: the folders of the runs.

    Returns:
        HTML that needs no other file.
    """
    runs = read_runs(folders)
    if len(runs) == 1:
        title = title_run(runs[0])
    else:
        title = f"{len(runs)} runs on {', '.join(sorted({run.data for run in runs})[:3])}"
    return _render_page({"title": title}, tabulate_runs(runs), runs)


def fitted_page(
    metrics: Mapping[str, Any],
    journal: Sequence[dict[str, Any]],
    columns: list[list[str]],
    mistakes: list[MistakenCell],
    title: str = "",
) -> str:
    """Return the page of a model that was fitted in Python.

    Args:
        metrics: the content that metrics.json would have.
        journal: the records of a network's training.
        columns: cells about the columns of a table, the first row being the head; may be empty.
        mistakes: examples that the model gets wrong; may be empty.
        title: the title; "" for the sentence.

    Returns:
        HTML that needs no other file.
    """
    run = replace(view_run("model", metrics, journal), columns=columns, mistakes=mistakes)
    return _render_page({"title": title or run.objective}, tabulate_runs([run]), [run])


def comparison_page(
    title: str,
    sentence: str,
    table_rows: list[list[str]],
    runs: Mapping[str, str | Path | Mapping[str, Any]],
    detailed: int = DETAILED,
    parts: Sequence[Part] = (),
) -> str:
    """Return a page with the caller's sentence and table, and figures of `runs`.

    Args:
        title: the title of the page.
        sentence: the sentence below the title.
        table_rows: cells, the first row being the head.
        runs: name → the run's folder or its content: {"metrics": metrics.json, "journal": records} and, to show them,
            "recipe", "environment", "folder".
        detailed: the number of runs with their own figures.
        parts: tables with figures in the place of `table_rows`; the figures of the runs are then folded.

    Returns:
        The HTML.
    """
    views = [view_run(name, **run) if isinstance(run, Mapping) else read_run(run, name) for name, run in runs.items()]
    seeds = sorted({run.seed for run in views})
    note = f"The figures show one run of each row of the table, seed {', '.join(seeds[:5])}."
    head = {"title": title, "sentence": sentence, "note": "" if parts else note}
    return _render_page(head, table_rows, views, detailed, parts)


def frontier_page(folder: str | Path, points: Sequence[dict[str, float]], sentence: str, trades: dict[str, Any]) -> str:
    """Return the page of a frontier: one figure, one sentence, and the points to move along.

    Args:
        folder: the run's folder.
        points: metrics of decision rules for the run's model.
        sentence: the sentence below the title.
        trades: the trades of mean recall for another number.

    Returns:
        The HTML.
    """
    run = read_runs([folder])[0]
    run = replace(run, rule=replace(run.rule, frontier=read_frontier(points), trades=trades))
    title = f"What {run.method} on {run.data} can trade off"
    content = {"title": title, "sentence": sentence, "drawing": draw_frontier(run)}
    return render("frontier.html", **content, explorer=build_explorer(run))


def _render_page(
    head: Mapping[str, str],
    table: list[list[str]],
    runs: Sequence[RunView],
    detailed: int = DETAILED,
    parts: Sequence[Part] = (),
) -> str:
    """Return the page; head: its title and, unless they follow from the runs, the sentence and the note below it."""
    complete_runs = [run for run in runs if run.is_complete]
    comparable_runs = _find_comparable(complete_runs)
    is_folded = bool(parts)
    is_alone = len(runs) == 1 and not is_folded
    drawings = []
    if len(complete_runs) > 1 and not is_folded:
        drawings.append(draw_tradeoff(complete_runs[:MOST_RUNS]))
    # the runs whose recall is in a figure of several runs; on a folded page, that is a figure of the parts
    runs_with_recall = comparable_runs if is_folded else []
    if len(comparable_runs) > 1 and not is_folded:
        runs_with_recall = comparable_runs[:MOST_RUNS]
        recalls = {run.name: run.deployed.recall for run in runs_with_recall}
        drawings.append(draw_recall_table(recalls, comparable_runs[0].class_names, comparable_runs[0].class_counts))
    deployed_table = tabulate_deployed(runs[0]) if is_alone else None
    has_table = len(table) > 1 and (bool(complete_runs) or not is_alone) and not is_folded and deployed_table is None
    return render(
        "page.html",
        title=shorten(head["title"], 200),
        sentence=head.get("sentence", ""),
        note=head.get("note", ""),
        runs=runs,
        complete=complete_runs,
        deployed=deployed_table,
        facts=list_facts(runs[0]) if is_alone else [],
        table=table if has_table else [],
        parts=parts,
        drawings=drawings,
        is_folded=is_folded,
        sections=[
            {
                "run": run,
                "drawings": _draw_run(run, any(run is drawn_run for drawn_run in runs_with_recall), is_folded),
                "settings": yaml.safe_dump(run.settings, sort_keys=False, allow_unicode=True),
                "environment": "\n".join(f"{key}: {_format(value)}" for key, value in run.environment.items()),
            }
            for run in runs[:detailed]
        ],
        explorer=build_explorer(runs[0]) if is_alone else None,
        differing=tabulate_differing_settings(runs[:detailed]) if not is_alone else [],
    )


def _find_comparable(runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs with the same classes and the same measured part as the first."""
    return [run for run in runs if run.class_names == runs[0].class_names and run.part == runs[0].part]


def _draw_run(run: RunView, has_recall: bool, is_folded: bool) -> list[Drawing]:
    """Return the figures of one run.

    has_recall: whether a figure of all runs shows its recall already; is_folded: whether one shows its pseudo-labels,
    too, and the frontier is left to the run's own page.
    """
    drawings: list[Drawing | None] = []
    if run.result.recall and not has_recall:
        drawings.append(draw_recall(run))
    if run.is_complete:
        drawings.append(draw_confusion(run))
    if run.journal and run.labels:
        drawings.append(draw_multipliers(run))
    if run.journal:
        drawings.append(draw_recall_curves(run))
    if run.journal and not is_folded:
        curve = Curve(run.name, run.recorded_steps, run.curve("used")[None], run.curve("pseudo_accuracy")[None])
        drawings.append(draw_used([curve], {run.name: run_style(0)}))
    drawings += _draw_coverages(run)
    if not is_folded:
        drawings.append(draw_frontier(run))
    return [drawing for drawing in drawings if drawing is not None]


def _draw_coverages(run: RunView) -> list[Drawing]:
    """Return the figures of the coverage, if the objective bounds it."""
    if not run.result.recall:
        return []
    bounds = find_coverage_bounds(run.sentence)
    if not bounds:
        return []
    if not run.journal:
        return [draw_coverage(run, bounds)]
    return [draw_coverage(run, bounds), draw_coverage_curves(run, bounds)]


def _format(value: Any) -> str:
    """Return a value of the environment as text; the command so that it can be pasted into a shell."""
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def evaluation_page(evaluation: Evaluation, run: str | Path = "", files: Sequence[str] = ()) -> str:
    """Return the page of an evaluation.

    Args:
        evaluation: the numbers.
        run: the folder of the run whose model was measured; "" for a model in memory.
        files: the files of labeled rows.

    Returns:
        HTML that needs no other file.
    """
    view = RunView(
        name=Path(run).name or "model",
        method="",
        objective=str(evaluation.objective),
        data=", ".join(Path(file).name for file in files),
        seed="",
        steps="",
        is_complete=True,
        results={"test": Result.read(evaluation.numbers)},
        class_names=list(evaluation.class_names),
        class_counts=evaluation.counts.sum(1).tolist(),
    )
    place = f"{view.data} by {view.name}" if view.data else "Evaluation"
    tables = {title: rows for title, rows in evaluation.tables.items() if title != "confusion"}
    drawings = [draw_recall(view), draw_confusion(view)]
    return render("evaluation.html", title=place, sentence=evaluation.sentence, tables=tables, drawings=drawings)
