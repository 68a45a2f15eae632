"""Multipliers and recalls over the steps, run beside run."""

from __future__ import annotations

import numpy as np
import pytest

from csst.report.figures.curves import MOST_CLASSES, MOST_RUNS, Game, draw_games

NAMES = ["owl", "fox", "bee"]
COUNTS = [50, 20, 2]


def make_game(title, multipliers):
    """A run of four updates; recalls rise to .9, .6 and .3."""
    recall = np.linspace(0, 1, 4)[:, None] * np.array([0.9, 0.6, 0.3])
    return Game(title, [0, 10, 20, 30], np.asarray(multipliers, dtype=float), recall)


@pytest.fixture
def moving():
    return [[1 / 3, 1 / 3, 1 / 3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6], [0.1, 0.2, 0.7]]


def test_two_runs_are_drawn_beside_each_other(moving):
    drawing = draw_games([make_game("by gradient", moving), make_game("solved", moving)], NAMES, COUNTS)
    assert drawing.alt.endswith("by gradient: lowest recall 0.30 at the end; solved: lowest recall 0.30 at the end")
    assert [key.label for key in drawing.legend] == NAMES
    wider = draw_games([make_game(str(n), moving) for n in range(MOST_RUNS + 2)], NAMES, COUNTS)
    assert wider.alt.count("lowest recall") == MOST_RUNS


def test_a_class_keeps_its_color_and_panels_their_lines(moving, monkeypatch):
    painted = []
    monkeypatch.setattr("csst.report.figures.svg.write_svg", lambda figure: painted.append(figure) or "<svg></svg>")
    drawing = draw_games([make_game("by gradient", moving), make_game("solved", moving)], NAMES, COUNTS)
    panels = painted[0].axes
    assert len(panels) == 4
    for panel in panels:
        assert [line.get_color() for line in panel.lines] == [key.color for key in drawing.legend]
    assert panels[0].lines[2].get_ydata().tolist() == [row[2] for row in moving]
    assert panels[2].lines[0].get_ydata()[-1] == pytest.approx(0.9)


@pytest.mark.parametrize("reason", ["stand still", "one per group", "no journal", "many classes"])
def test_runs_without_a_moving_multiplier_for_each_class_are_left_out(reason, moving):
    many = np.linspace(0, 1, 2 * (MOST_CLASSES + 1)).reshape(2, -1)
    others = {
        "stand still": make_game("fixed", [[0.2, 0.3, 0.5]] * 4),
        "one per group": make_game("groups", [[0.5, 0.5]] * 4),
        "no journal": Game("forest", [], np.array([]), np.array([])),
        "many classes": Game("many", [0, 1], many, many),
    }
    assert draw_games([make_game("solved", moving), others[reason]], NAMES, COUNTS) is None
