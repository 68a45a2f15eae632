"""The page of a frontier: what decision rules attain from one training."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from csst.report.document import document
from csst.report.shown import opened_runs
from csst.report.tradeoff import frontier_figure


def frontier_page(folder: str | Path, points: list[dict[str, float]], sentence: str) -> str:
    """One figure and one sentence about the run in this folder."""
    run = opened_runs([folder])[0]
    old: dict[str, Any] = run.metrics.get("adjusted") or {}
    drawn = frontier_figure(replace(run, metrics={**run.metrics, "adjusted": {**old, "frontier": points}}))
    figure = drawn.html(1) if drawn is not None else ""
    title = f"What {run.method} on {run.data} can trade off"
    return document(title, f"<h1>{escape(title)}</h1>\n<p class='sentence'>{escape(sentence)}</p>\n{figure}")
