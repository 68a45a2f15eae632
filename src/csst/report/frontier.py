"""The page of a frontier: what decision rules attain from one training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from csst.report.explorer import build_explorer
from csst.report.figures.tradeoff import draw_frontier
from csst.report.render import render
from csst.report.run_view import read_frontier, read_runs


def frontier_page(folder: str | Path, points: Sequence[dict[str, float]], sentence: str, trades: dict[str, Any]) -> str:
    """One figure, one sentence, and the points to move along, about the run in this folder."""
    run = replace(read_runs([folder])[0], frontier=read_frontier(points), trades=trades)
    title = f"What {run.method} on {run.data} can trade off"
    content = {"title": title, "sentence": sentence, "drawing": draw_frontier(run)}
    return render("frontier.html", **content, explorer=build_explorer(run))
