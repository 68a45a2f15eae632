"""The page of a comparison: its table, its figures over the seeds, and one run of each row to look into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from csst.report.figures.class_tables import draw_class_counts, draw_recall_table
from csst.report.figures.comparison import (
    Curve,
    Styles,
    assign_styles,
    draw_settings,
    draw_tradeoff,
    draw_used,
    draw_values,
)
from csst.report.figures.svg import Drawing
from csst.report.page import Part, comparison_page
from csst.report.run_view import thin
from csst.report.tables import cells, describe_runs, split_objectives
from csst.runs.folder import Run
from csst.runs.outcomes import ComparisonRow, Outcome

#: rows whose runs can be looked into at most
SECTIONS = 60


def outcomes_page(title: str, sentence: str, table: Sequence[ComparisonRow], outcomes: Sequence[Outcome]) -> str:
    """The page of a table and of the runs behind it.

    Args:
        title: of the page.
        sentence: what the table says.
        table: the rows, in the order in which they are shown.
        outcomes: the runs of these rows.

    Returns:
        The HTML.
    """
    styles = assign_styles(table)
    parts, objectives = [], split_objectives(table)
    for objective, lines in objectives.items():
        runs = [outcome for outcome in outcomes if outcome.row.objective == objective]
        drawings = list(draw_objective(lines, runs, styles))
        caption = f"Results on {lines[0].part}. {describe_runs(lines)}"
        parts.append(Part(objective if len(objectives) > 1 else "", cells(lines), caption, drawings))
    parts[-1] = parts[-1]._replace(drawings=[*parts[-1].drawings, draw_distribution(outcomes)])
    suffix = {name: f", {name}" if len(objectives) > 1 else "" for name in objectives}
    firsts = {outcome.row.label + suffix[outcome.row.objective]: outcome.folders[0] for outcome in outcomes}
    return comparison_page(title, sentence, [], firsts, SECTIONS, parts)


def draw_objective(table: Sequence[ComparisonRow], outcomes: Sequence[Outcome], styles: Styles) -> Iterator[Drawing]:
    """The figures of all rows of one objective."""
    metrics = outcomes[0].metrics[0]
    drawings = [
        draw_values(table, styles),
        draw_tradeoff(table, styles) if len(table) > 1 else None,
        draw_settings(table),
        draw_used([read_curve(outcome) for outcome in outcomes], styles),
        draw_recall_table(table, metrics["class_names"], metrics["labeled_counts"]),
    ]
    return (drawing for drawing in drawings if drawing is not None)


def draw_distribution(outcomes: Sequence[Outcome]) -> Drawing:
    """The class distribution of the data: of a row that holds validation labels back, where there is one."""
    metrics = next((outcome for outcome in outcomes if outcome.row.fit is None), outcomes[0]).metrics[0]
    unlabeled, how = metrics.get("unlabeled_true_counts"), ""
    if unlabeled is None and "prior" in metrics:
        unlabeled, how = np.array(metrics["prior"]["unlabeled_estimate"]) * metrics["unlabeled_count"], ", as estimated"
    return draw_class_counts(metrics["labeled_counts"], unlabeled, metrics["class_names"], how)


def read_curve(outcome: Outcome) -> Curve:
    """What the runs of a row used of the unlabeled examples over the steps, from their journals."""
    journals = [thin(record for record, _ in Run(folder).records())[0] for folder in outcome.folders]
    length = min(map(len, journals))
    used, accuracy = (
        np.array([[record.get(key) for record in journal[:length]] for journal in journals], float).reshape(
            len(journals), length
        )
        for key in ("used", "pseudo_accuracy")
    )
    return Curve(outcome.row.label, [record["step"] for record in journals[0][:length]], used, accuracy)
