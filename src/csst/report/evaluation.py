"""The page of a model that was measured on labeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from csst.fitting.evaluation import Evaluation
from csst.report.figures.classes import draw_recall
from csst.report.figures.matrix import draw_confusion
from csst.report.render import render
from csst.report.result import Result
from csst.report.run_view import RunView


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
    drawings = [draw_recall([view]), draw_confusion(view)]
    return render("evaluation.html", title=place, sentence=evaluation.sentence, tables=tables, drawings=drawings)
