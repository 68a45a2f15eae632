"""The bounds that an objective sets on the coverage, and names for multipliers."""

from __future__ import annotations

import pytest

from csst.report.bounds import find_coverage_bounds, find_limits, label_multipliers, read_sentence
from csst.report.figures.curves import strip_classes

NAMES = ["cat", "dog", "it's", "rare"]
COUNTS = [100, 50, 30, 2]


def found(objective, names=NAMES, counts=COUNTS):
    bounds = find_coverage_bounds(read_sentence(objective, names, counts))
    return [(part.label, part.classes, part.low, part.high) for part in bounds]


def test_every_class():
    bound = 0.95 / 4
    expected = [(name, (k,), bound, None) for k, name in enumerate(NAMES)]
    assert found("max mean(recall) s.t. coverage >= 0.95/K") == expected
    assert found("mean-recall-coverage") == expected
    assert found("mean-recall-coverage", counts=None) == expected


def test_groups_single_classes_and_both_sides():
    assert found("mean-recall-ht-coverage") == [
        ("mean of head", (0, 1, 2), 0.95 / 4, None),
        ("mean of tail", (3,), 0.95 / 4, None),
    ]
    assert found("max accuracy s.t. 0.1 <= coverage['dog'] <= 0.3") == [("dog", (1,), 0.1, 0.3)]
    assert found("max accuracy s.t. 0.2 >= each(coverage, head)") == [
        (name, (k,), None, 0.2) for k, name in enumerate(NAMES[:3])
    ]
    part = find_coverage_bounds(read_sentence("mean-recall-ht-coverage", NAMES, COUNTS))[0]
    assert part.measure([0.1, 0.2, 0.6, 0.1]) == pytest.approx(0.3)
    assert part.slack([0.1, 0.2, 0.6, 0.1]) == pytest.approx([0.3 - 0.95 / 4])
    both = find_coverage_bounds(read_sentence("max accuracy s.t. 0.1 <= coverage['dog'] <= 0.3", NAMES, COUNTS))[0]
    assert both.slack([0.0, 0.35, 0.0, 0.65]) == pytest.approx([0.25, -0.05])


@pytest.mark.parametrize(
    "objective",
    [
        "max min(recall)",
        "max mean(recall) s.t. recall >= 0.3",
        "max mean(recall) s.t. coverage['dog'] - coverage['cat'] >= 0",
        "max mean(recall) s.t. coverage[mine] >= 0.1",
        "max nonsense(",
        "TailRecall",
        "os:getcwd",
        "",
    ],
)
def test_nothing_to_draw(objective):
    assert found(objective) == []


def test_no_code_of_the_user_runs(tmp_path, monkeypatch):
    (tmp_path / "intruder.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert found("intruder:Goal") == []
    assert label_multipliers("intruder:Goal", 3, 3) == ["λ 0", "λ 1", "λ 2"]


def test_labels_of_multipliers():
    assert label_multipliers("min-recall", 3, 3) == ["recall['0']", "recall['1']", "recall['2']"]
    assert label_multipliers("min-ht-recall", 3, 2) == ["recall[head]", "recall[tail]"]
    assert label_multipliers("min-recall", 3, 2) == ["λ 0", "λ 1"]
    # The classes of the head are known from labeled counts, which a run in training does not have.
    assert label_multipliers("max accuracy s.t. 0.2 >= each(coverage, head)", 3, 2) == ["λ 0", "λ 1"]
    assert find_limits(read_sentence("max accuracy s.t. 0.2 >= each(coverage, head)", NAMES, None)) == []
    assert found("mean-recall-ht-coverage", counts=None) == []
    assert strip_classes(["recall['a']", "recall['b']"], ["a", "b"]) == (["a", "b"], "recall[class]")
    assert strip_classes(["recall['b']", "recall['a']"], ["a", "b"]) == (["recall['b']", "recall['a']"], "")
    assert strip_classes(["recall[head]"], ["a", "b"]) == (["recall[head]"], "")
