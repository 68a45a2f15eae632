"""Figures of a comparison: every row is in them, on the axes that its objective asks for."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from csst.comparison.rows import Setting
from csst.comparison.summary import sort_rows
from csst.report.comparison import average_recalls
from csst.report.figures import comparison
from csst.report.figures.comparison import (
    FILLS,
    Curve,
    assign_styles,
    draw_settings,
    draw_tradeoff,
    draw_used,
    draw_values,
    find_axes,
)
from csst.report.figures.matrix import draw_class_counts, draw_recall_table
from tests.helpers.comparisons import make_line
from tests.report.samples import read_limits

pytestmark = pytest.mark.usefixtures("real_figures")


def words_of(drawing) -> list[str]:
    return re.findall(r">([^<>\n]+)</text>", drawing.inline(1))


def test_a_single_row_has_room_for_long_names():
    """matplotlib warned that the axes had collapsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_recall_table({"linear": [0.2, 0.9]}, ["MMWWMMWWMM", "cat"], [1, 9])


@pytest.mark.parametrize("count", [2, 12, 30])
def test_all_rows_are_drawn(count):
    table = [make_line(f"row {n}", [n / 40, n / 40 + 0.1]) for n in range(count)]
    styles = assign_styles(table)
    assert [word for word in words_of(draw_values(table, styles)) if word.startswith("row")] == [
        line.name for line in reversed(table)
    ]
    keys = [key.label for key in draw_tradeoff(table, styles).legend]
    assert sorted(keys) == sorted(line.name for line in table)
    shown = words_of(draw_recall_table(average_recalls(table), ["cat", "dog"], [1, 9]))
    assert [word for word in shown if word.startswith("row")] == [line.name for line in table]
    assert [word for word in shown if word in ("cat", "dog")] == ["dog", "cat"]  # from most to fewest labels
    assert shown.count("50") >= count


def test_the_objective_is_an_axis_whatever_it_is():
    free = [make_line("a", [0.2]), make_line("b", [0.3])]
    value, other = find_axes(free)
    assert (value.label, other.label) == ("objective value", "mean recall")
    assert value.read(free[1]) == [0.3]
    mean = [make_line("a", [0.5]), make_line("b", [0.5])]  # its value is the mean recall
    assert find_axes(mean)[1].label == "min recall"
    bound = [make_line("a", [0.2, 0.3], [[0.1, -0.2], [0.3, 0.1]])]
    assert find_axes(bound)[1].label == "slack of the tightest constraint"
    assert find_axes(bound)[1].read(bound[0]) == [-0.2, 0.1]
    assert "constraints met to the right" in [key.label for key in draw_tradeoff(bound, assign_styles(bound)).legend]


def test_values_are_drawn_from_high_to_low_and_missed_constraints_marked():
    met, missed = [[0.1]], [[-0.2]]
    trained = [make_line("low", [0.2], met), make_line("high", [0.9], missed), make_line("middle", [0.4], missed)]
    ruled = [make_line("low", [0.6], met, "rule"), make_line("middle", [0.5], met, "rule")]
    table = sort_rows([*trained, *ruled])
    assert table[0].name == "low + rule"  # the table has those that meet the constraints first
    drawing = draw_values(table, assign_styles(table))
    names = [word for word in words_of(drawing) if word.rstrip("†") in ("low", "middle", "high")]
    assert names == ["high†", "low", "middle"]
    assert drawing.caption.startswith("Objective value, best first")
    assert "misses the constraints" in [key.label for key in drawing.legend]


def test_no_axis_of_recalls_begins_below_zero(monkeypatch):
    table = [make_line("a", [0.0, 0.0]), make_line("b", [0.0, 0.4])]
    styles = assign_styles(table)
    settings = [Setting("KL threshold", value) for value in (0.01, 0.1)]
    varied = [make_line("a", [n / 10, 0.0], setting=setting) for n, setting in enumerate(settings)]
    # What can be negative may be: a slack, and the value of a sentence that takes a difference.
    bound = [make_line("a", [-0.5], [[-0.4]]), make_line("b", [0.6], [[0.4]])]
    monkeypatch.setattr(comparison, "draw", read_limits)
    assert draw_values(table, styles)[0].x == 0
    assert draw_tradeoff(table, styles)[0].y == 0
    assert [panel.y for panel in draw_settings(varied)][1] == 0
    assert draw_values(bound, styles)[0].x < -0.5
    assert draw_tradeoff(bound, styles)[0].x < -0.4
    assert draw_tradeoff(bound, styles)[0].y < -0.5


def test_rules_have_marks_of_their_own():
    table = [make_line("a", [0.2], rule=rule) for rule in FILLS]
    keys = {key.symbol: key.label for key in draw_values(table, assign_styles(table)).legend}
    assert keys["●"] == "as trained"
    assert keys["○"] == "with the decision rule"
    assert keys["◒"] == "with the rule 'pooled'"
    assert not draw_values(table[:1], assign_styles(table)).legend
    drawn = [draw_values([table[0], line], assign_styles(table)).svg for line in table[1:]]
    assert len(set(drawn)) == len(drawn)


def test_an_ablation_is_a_curve_over_what_it_varies():
    settings = [Setting("KL threshold", value) for value in (0.01, 0.1, 0.3)]
    table = [make_line("csst", [n / 10, n / 10 + 0.1], setting=setting) for n, setting in enumerate(settings)]
    drawing = draw_settings(table[::-1])
    assert drawing is not None
    assert drawing.alt == "mean_recall against KL threshold, 3 values; highest at 0.3: 0.500"
    assert {"0.01", "0.1", "0.3", "KL threshold", "mean recall", "min recall"} <= set(words_of(drawing))
    bound = [make_line("csst", [n / 10], [[0.1]], setting=setting) for n, setting in enumerate(settings)]
    assert {"objective value", "mean recall", "min coverage"} <= set(words_of(draw_settings(bound)))
    assert draw_settings([make_line("a", [0.1])]) is None


def test_what_methods_used_is_one_figure_over_time():
    first = Curve("fixmatch", [10, 20], np.array([[np.nan, 0.4], [np.nan, 0.6]]), np.array([[np.nan, 0.9]] * 2))
    second = Curve("csst", [10, 20], np.array([[0.2, 0.3]]), np.array([[0.5, 0.7]]))
    without = Curve("erm", [10, 20], np.full((1, 2), np.nan), np.full((1, 2), np.nan))
    styles = assign_styles([make_line(name, [0.1]) for name in ("fixmatch", "csst", "erm")])
    drawing = draw_used([first, second, without], styles)
    assert drawing is not None
    assert drawing.alt == "Pseudo-labels used, and their accuracy; used at the end: fixmatch 0.50; csst 0.30"
    assert [key.label for key in drawing.legend] == ["fixmatch", "csst"]
    assert {"fraction used", "of these correct"} <= set(words_of(drawing))
    assert draw_used([without], styles) is None


@pytest.mark.parametrize("classes", [3, 40])
def test_the_class_distribution_has_labeled_and_unlabeled_examples(classes):
    labeled = [10 + 3 * n for n in range(classes)]
    drawing = draw_class_counts(
        labeled, [2.0 * n for n in labeled], [f"c{n}" for n in range(classes)], ", as estimated"
    )
    assert [key.label for key in drawing.legend] == ["labeled", "unlabeled, as estimated"]
    assert f"imbalance is {labeled[-1] / 10:.3g}" in drawing.caption
    if classes == 3:
        assert [word for word in words_of(drawing) if word.startswith("c")] == ["c2", "c1", "c0"]
    assert len(draw_class_counts(labeled, None, ["c"] * classes, "").legend) == 1


def test_the_recall_of_many_classes_is_shades():
    recall = [n / 40 for n in range(40)]
    drawing = draw_recall_table({"a": recall}, [f"c{n}" for n in range(40)], list(range(1, 41)))
    assert drawing.alt == "Recall of 40 classes in 1 rows; lowest 0.00: class c0 in a"
    assert "<image" in drawing.svg
