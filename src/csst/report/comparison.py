"""The page of a comparison: its table, its figures over the seeds, and details of one run of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from csst.comparison.summary import ComparisonRow, Outcome
from csst.report.comparison_tables import cells, describe_runs, split_objectives
from csst.report.figures.comparison import (
    Curve,
    Styles,
    assign_styles,
    draw_settings,
    draw_tradeoff,
    draw_used,
    draw_values,
)
from csst.report.figures.curves import Game, draw_games
from csst.report.figures.matrix import draw_class_counts, draw_recall_table
from csst.report.figures.svg import Drawing
from csst.report.page import Part, comparison_page
from csst.report.run_view import read_journal
from csst.runs.folder import Run

#: the largest number of rows with details of a run
SECTIONS = 60


def outcomes_page(title: str, sentence: str, table: Sequence[ComparisonRow], outcomes: Sequence[Outcome]) -> str:
    """Return the page of a table and of the runs behind it.

    Args:
        title: the title of the page.
        sentence: a summary of the table.
        table: the rows, in the order of the page.
        outcomes: the runs of these rows.

    Returns:
        The HTML.
    """
    styles = assign_styles(table)
    objectives = split_objectives(table)
    has_headings = len(objectives) > 1
    parts = []
    for objective, lines in objectives.items():
        runs = [outcome for outcome in outcomes if outcome.row.objective == objective]
        drawings = list(draw_objective(lines, runs, styles))
        caption = f"Results on {lines[0].part}. {describe_runs(lines)}"
        parts.append(Part(objective if has_headings else "", cells(lines), caption, drawings))
    parts[-1] = parts[-1]._replace(drawings=[*parts[-1].drawings, draw_distribution(outcomes)])
    folders = {}
    for outcome in outcomes:
        suffix = f", {outcome.row.objective}" if has_headings else ""
        folders[outcome.row.label + suffix] = outcome.folders[0]
    return comparison_page(title, sentence, [], folders, SECTIONS, parts)


def draw_objective(table: Sequence[ComparisonRow], outcomes: Sequence[Outcome], styles: Styles) -> Iterator[Drawing]:
    """Draw the figures of all rows of one objective."""
    metrics = outcomes[0].metrics[0]
    drawings = [
        draw_values(table, styles),
        draw_tradeoff(table, styles) if len(table) > 1 else None,
        draw_settings(table),
        draw_games([read_game(outcome) for outcome in outcomes], metrics["class_names"], metrics["labeled_counts"]),
        draw_used([read_curve(outcome) for outcome in outcomes], styles),
        draw_recall_table(average_recalls(table), metrics["class_names"], metrics["labeled_counts"]),
    ]
    return (drawing for drawing in drawings if drawing is not None)


def average_recalls(table: Sequence[ComparisonRow]) -> dict[str, list[float]]:
    """Return the recall of every class, mean over the seeds, by the name of the row."""
    return {line.name: np.mean([result.recall for result in line.results], 0).tolist() for line in table}


def draw_distribution(outcomes: Sequence[Outcome]) -> Drawing:
    """Draw the class distribution of the data, if possible of a row that does not learn from validation labels."""
    metrics = next((outcome for outcome in outcomes if outcome.row.is_network), outcomes[0]).metrics[0]
    unlabeled_counts = metrics.get("unlabeled_true_counts")
    suffix = ""
    if unlabeled_counts is None and "prior" in metrics:
        unlabeled_counts = np.array(metrics["prior"]["unlabeled_estimate"]) * metrics["unlabeled_count"]
        suffix = ", as estimated"
    return draw_class_counts(metrics["labeled_counts"], unlabeled_counts, metrics["class_names"], suffix)


def read_game(outcome: Outcome) -> Game:
    """Return the multipliers and recalls of a row's first run, from its journal."""
    records, _ = read_journal(Run(outcome.folders[0]))
    values = {key: [record[key] for record in records if record.get(key)] for key in ("multipliers", "recall")}
    steps = [record["step"] for record in records]
    return Game(outcome.row.label, steps, np.array(values["multipliers"]), np.array(values["recall"]))


def read_curve(outcome: Outcome) -> Curve:
    """Return the fraction of pseudo-labels that the runs of a row used, and their accuracy, from the journals."""
    journals = [read_journal(Run(folder))[0] for folder in outcome.folders]
    length = min(map(len, journals))
    steps = [record["step"] for record in journals[0][:length]]

    def read(key: str) -> np.ndarray:
        values = [[record.get(key) for record in journal[:length]] for journal in journals]
        return np.array(values, float).reshape(len(journals), length)

    return Curve(outcome.row.label, steps, read("used"), read("pseudo_accuracy"))
