"""Figures over the steps of training: multipliers, recall, coverage, what was used; and runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from csst.report.bounds import CoverageBound
from csst.report.figures.svg import ACCENT, FAINT, INK, RUNS, Drawing, Key, draw, rank_colors, shorten, sort_classes
from csst.report.run_view import RunView

#: up to this many lines each has its name; more become a band with the extreme ones drawn
LINES = 12
EXTREMES = 3
#: the largest number of classes with a line each beside each other, and of such runs
MOST_CLASSES = 12
MOST_RUNS = 4
#: inches of a run's column, and of the height of runs beside each other
COLUMN = 2.3
HEIGHT = 3.6


class Lines(NamedTuple):
    """Lines over the steps: values (steps, lines), a name for each line, and its class's labeled examples."""

    values: Any
    names: Sequence[str]
    counts: Sequence[int] | None


def draw_multipliers(run: RunView) -> Drawing:
    """Draw the multipliers λ over the steps."""
    values = run.curve("multipliers")
    labels = run.labels if len(run.labels) == values.shape[1] else [f"λ {n}" for n in range(values.shape[1])]
    names, metric = strip_classes(labels, run.class_names)
    counts = run.class_counts if metric else None
    quantity = f"multiplier λ{metric and ' of '}{metric}"
    return _draw_lines(run, Lines(values, names, counts), quantity, is_largest=True)


def draw_recall_curves(run: RunView) -> Drawing:
    """Draw the validation recall of every class over the steps."""
    lines = Lines(run.curve("recall"), run.class_names, run.class_counts)
    return _draw_lines(run, lines, "validation recall", limit=1.02)


def draw_coverage_curves(run: RunView, bounds: Sequence[CoverageBound]) -> Drawing:
    """Draw the validation coverage of every constrained class or group over the steps, with the bounds."""
    coverage = run.curve("coverage")
    values = np.stack([coverage[:, list(bound.classes)].mean(1) for bound in bounds], 1)
    bounded_classes = [bound.classes[0] for bound in bounds if len(bound.classes) == 1]
    counts = (
        [run.class_counts[c] for c in bounded_classes]
        if run.class_counts and len(bounded_classes) == len(bounds)
        else None
    )
    levels = sorted({level for bound in bounds for level in (bound.low, bound.high) if level is not None})
    lines = Lines(values, [bound.label for bound in bounds], counts)
    return _draw_lines(run, lines, "validation coverage", levels=levels)


def strip_classes(labels: Sequence[str], class_names: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return labels that differ in the class only, such as recall['cat'], as class names and recall[class]."""
    forms = {label.replace(f"['{name}']", "[class]") for label, name in zip(labels, class_names, strict=False)}
    if len(labels) == len(class_names) and len(forms) == 1 and "[class]" in (form := forms.pop()):
        return class_names, form
    return labels, ""


def _draw_lines(
    run: RunView,
    lines: Lines,
    quantity: str,
    is_largest: bool = False,
    limit: float | None = None,
    levels: Sequence[float] = (),
) -> Drawing:
    values, names, counts = lines
    steps = run.recorded_steps
    end_values = values[-1]
    order = sorted(range(len(names)), key=lambda n: (-end_values[n] if is_largest else end_values[n], n))
    extreme = "largest" if is_largest else "lowest"
    alt = (
        f"{quantity} over {len(names)} lines and {steps[-1]} steps; at the end the {extreme} is "
        f"{shorten(names[order[0]], 60)} with {end_values[order[0]]:.3f}"
    )
    has_names = len(names) <= LINES
    line_indices = range(len(names)) if has_names else order[:EXTREMES]
    colors = rank_colors(counts, len(names)) if has_names else RUNS[1:4]
    is_dashed = [has_names and n % 2 == 1 for n in range(len(line_indices))]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        marker = "o" if len(steps) == 1 else None
        if not has_names:
            low, fifth, middle, ninth, high = np.nanquantile(values, (0, 0.1, 0.5, 0.9, 1), axis=1)
            axes.fill_between(steps, low, high, color=ACCENT, alpha=0.15, lw=0)
            axes.fill_between(steps, fifth, ninth, color=ACCENT, alpha=0.25, lw=0)
            axes.plot(steps, middle, color=ACCENT, marker=marker)
        for n, line in enumerate(line_indices):
            dashes = (0, (4, 1.5)) if is_dashed[n] else "-"
            axes.plot(steps, values[:, line], color=colors[n], ls=dashes, marker=marker)
        for level in levels:
            axes.axhline(level, color=INK, lw=1, ls=(0, (1, 1.5)))
        _label_steps(axes, run, quantity.split(" of ")[0], limit)

    title = f"{quantity[0].upper()}{quantity[1:]} over the steps"
    keys = []
    if not has_names:
        title += f"; lines: the {EXTREMES} {extreme} at the end"
        keys += [Key("band", ACCENT, f"all {len(names)}, the middle 80 % darker"), Key("line", ACCENT, "median")]
    elif counts is not None:
        title += ", from most labeled examples (blue) to fewest (red)"
    keys += [
        Key("dash" if is_dashed[n] else "line", colors[n], shorten(names[line], 40))
        for n, line in enumerate(line_indices)
    ]
    if levels:
        keys.append(Key("dash", INK, "bound " + " and ".join(f"{level:.4g}" for level in levels[:4])))
    return draw(paint, 2.9, alt, title, (*keys, *_make_selected_key(run)))


def _label_steps(axes: Any, run: RunView, ylabel: str, limit: float | None) -> None:
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    axes.set_ylim(0, limit)
    axes.grid(False, axis="x")
    if run.selected_step is not None:
        axes.axvline(run.selected_step, color=FAINT, lw=4, zorder=0)


def _make_selected_key(run: RunView) -> list[Key]:
    return [Key("▌", FAINT, "selected model")] if run.selected_step is not None else []


class Game(NamedTuple):
    """A run's multipliers and class recalls over the steps.

    Args:
        title: name of the run.
        steps: steps of the S updates.
        multipliers: λ of every class, (S, K).
        recall: on validation rows, (S, K).
    """

    title: str
    steps: Sequence[int]
    multipliers: np.ndarray
    recall: np.ndarray

    @property
    def is_drawable(self) -> bool:
        """Whether there is one multiplier per class, some of them move, and a line for each class is readable."""
        has_one_each = self.multipliers.ndim == 2 and self.multipliers.shape == self.recall.shape
        if not has_one_each or self.recall.shape[1] > MOST_CLASSES:
            return False
        return bool(np.ptp(self.multipliers, axis=0).max() > 0)


def draw_games(games: Sequence[Game], class_names: Sequence[str], counts: Sequence[int]) -> Drawing | None:
    """Draw runs beside each other; None with fewer than two that can be drawn.

    Args:
        games: the runs.
        class_names: K names.
        counts: labeled examples of every class, (K,).

    Returns:
        The drawing.
    """
    drawable_games = [game for game in games if game.is_drawable][:MOST_RUNS]
    if len(drawable_games) < 2:
        return None
    ends = "; ".join(f"{game.title}: lowest recall {game.recall[-1].min():.2f} at the end" for game in drawable_games)
    colors = rank_colors(counts, len(counts))
    legend = [Key("line", colors[k], shorten(class_names[k], 40)) for k in sort_classes(counts, len(counts))]

    def paint(figure: Any) -> None:
        paint_games(figure, drawable_games, counts)

    caption = (
        "The game over the steps: multiplier λ of every class, and its recall on validation rows, from most labeled "
        "examples (blue) to fewest (red)"
    )
    return draw(
        paint, HEIGHT, f"Multipliers and recalls over the steps. {ends}", caption, legend, COLUMN * len(drawable_games)
    )


def paint_games(figure: Any, games: Sequence[Game], counts: Sequence[int]) -> None:
    """Paint a column for each run: multipliers above recalls.

    Args:
        figure: an empty matplotlib figure.
        games: the runs.
        counts: labeled examples of every class, (K,).
    """
    axes = figure.subplots(2, len(games), sharex="col", sharey="row", squeeze=False)
    colors = rank_colors(counts, len(counts))
    for column, game in zip(axes.T, games, strict=True):
        for panel, values in zip(column, (game.multipliers, game.recall), strict=True):
            for k in sort_classes(counts, len(counts)):
                panel.plot(game.steps, values[:, k], color=colors[k], lw=1.3, label=str(counts[k]))
        column[0].set_title(game.title, fontsize="medium")
        column[1].set_xlabel("step")
    axes[0, 0].set_ylabel("multiplier λ")
    axes[0, 0].set_ylim(bottom=0)
    axes[1, 0].set_ylabel("recall on validation")
    axes[1, 0].set_ylim(0, 1.02)
