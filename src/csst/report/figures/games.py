"""Both players over the steps, run beside run: the multipliers, and the recall of every class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from csst.report.figures.svg import Drawing, Key, draw, rank_colors, shorten, sort_classes

#: the largest number of classes with a line each, and of runs beside each other
MOST_CLASSES = 12
MOST_RUNS = 4
#: inches of a run's column, and of the figure's height
COLUMN = 2.3
HEIGHT = 3.6


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
