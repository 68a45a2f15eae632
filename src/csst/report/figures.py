"""Figures as inline SVG, drawn by matplotlib without a display."""

from __future__ import annotations

import io
from typing import Any

COLOURS = ("#888888", "#c08a2d", "#3a7d44", "#4a6fa5", "#b3412f", "#7a4fa0", "#2a9d8f", "#555555")


def _svg(figure: Any, alt: str) -> str:
    from html import escape

    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", transparent=True)
    text = out.getvalue()
    return f'<figure role="img" aria-label="{escape(alt)}">{text[text.index("<svg") :]}</figure>'


def _axes(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def recall_bars(recalls: dict[str, list[float]], class_names: list[str], counts: list[int]) -> str:
    """Recall of every class, one bar per method, with the number of labeled examples below each class."""
    figure, axes = _axes(10, 3.2)
    width = 0.8 / len(recalls)
    for at, (method, recall) in enumerate(recalls.items()):
        places = [c + (at - (len(recalls) - 1) / 2) * width for c in range(len(recall))]
        axes.bar(places, recall, width, label=method, color=COLOURS[at % len(COLOURS)])
    labels = [f"{name}\n{count} labeled" for name, count in zip(class_names, counts, strict=True)]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylabel("test recall")
    axes.set_ylim(0, 1)
    axes.legend(ncols=len(recalls), fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    return _svg(figure, "Test recall of every class, one bar per method")


def over_time(journal: list[dict[str, Any]], key: str, names: list[str], ylabel: str) -> str:
    """One line per class (or multiplier) over the steps of a run."""
    from matplotlib import colormaps

    figure, axes = _axes(5, 2.8)
    steps = [record["step"] for record in journal]
    for at, name in enumerate(names):
        colour = colormaps["turbo"](0.05 + 0.9 * at / max(1, len(names) - 1))
        axes.plot(steps, [record[key][at] for record in journal], label=name, color=colour, lw=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    if len(names) <= 12:
        axes.legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return _svg(figure, f"{ylabel} over the steps of training")
