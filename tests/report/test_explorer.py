"""The explorer of a page: what it shows is the frontier, in a real browser moved by keys; sentences give points."""

from __future__ import annotations

import csv
import io
import json
import shlex
import time
from dataclasses import replace

import numpy as np
import pytest

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.fitting.metrics import describe_trades
from csst.report import report_page
from csst.report.explorer import add_run_point, build_explorer, find_commands, has_gain, select_evenly
from csst.report.render import render
from csst.report.run_view import read_run
from csst.rules.candidates import fit_pooled, sharpness
from csst.rules.frontier import trace_frontier
from csst.rules.soft_objective import SoftObjective
from tests.helpers import toys
from tests.helpers.browser import BROWSER, Browser
from tests.report.samples import write_run

in_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on this machine"),
]
NAMES = ["common", "=rare", "<b>last</b>, really"]
EVEN = np.full(3, 1 / 3)
READ = """(() => {
  const section = document.querySelector(".explorer"), text = node => node.textContent;
  const rows = Array.from(section.querySelectorAll(".classes tbody tr")).filter(row => !row.hidden);
  return {
    way: section.querySelector("input[name=way]:checked").value,
    at: Number(section.querySelector("input[type=range]").value),
    last: Number(section.querySelector("input[type=range]").max),
    numbers: Object.fromEntries(Array.from(section.querySelectorAll("dd"), dd => [dd.dataset.name, Number(text(dd))])),
    sentence: text(section.querySelector(".sentence-of-point")),
    whose: text(section.querySelector(".whose")),
    hidden: section.querySelector(".all-classes").offsetHeight === 0,
    commands: Array.from(section.querySelectorAll(".commands pre"), text),
    classes: rows.map(row => Array.from(row.cells, text)),
    confusion: Array.from(section.querySelectorAll(".confusion tbody tr"), row => Array.from(row.cells, text)),
    dots: section.querySelectorAll("circle").length,
    here: Array.from(section.querySelectorAll("circle")).findIndex(dot => dot.classList.contains("here")),
    overflow: document.documentElement.scrollWidth - innerWidth,
    injected: document.querySelectorAll("b").length,
  };
})()"""


@pytest.fixture(scope="module")
def evidence():
    x, labels = toys.sample(400, seed=1)
    return HeldOutScores.from_probs(
        toys.probs(x), labels, toys.probs(toys.sample(1500, seed=2)[0]), train_prior=toys.PRIOR
    )


@pytest.fixture(scope="module")
def folder(evidence, tmp_path_factory):
    """A run whose frontier is that of the evidence."""
    place = tmp_path_factory.mktemp("explored") / "run"
    folder = write_run(place, NAMES, updates=0, posthoc=True, objective="max min(recall)")
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    objective = csst.objective("max min(recall)").bind(3, NAMES)
    metrics["adjusted"]["trades"] = describe_trades(trace_frontier(evidence, EVEN, objective))
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    return folder


def count_rates(evidence: HeldOutScores, sentence: str) -> np.ndarray:
    """The rates of a sentence's rule by counting: labels, and unlabeled rows worth 20 of them, (3, 3)."""
    smooth = SoftObjective(csst.objective(sentence).bind(3), EVEN, sharpness(evidence))
    candidate = fit_pooled(smooth, evidence)
    decided, soft = candidate.decide(evidence.scores), candidate.decide(evidence.unlabeled_scores)
    rates = np.zeros((3, 3))
    for k in range(3):
        for j in range(3):
            labels = ((evidence.labels == k) & (decided == j)).sum()
            fraction = evidence.posterior[soft == j, k].sum() / evidence.posterior[:, k].sum()
            rates[k, j] = (labels + 20 * fraction) / ((evidence.labels == k).sum() + 20)
    return rates


def check(shown: dict, evidence: HeldOutScores) -> None:
    """What the page shows is what the sentence that it shows does."""
    rates = count_rates(evidence, shown["sentence"])
    recall, coverage = np.diag(rates), rates.mean(0)
    precision = recall / 3 / coverage
    expected = {"mean recall": recall.mean(), "lowest recall": recall.min(), "lowest coverage": coverage.min()}
    expected |= {"lowest precision": precision.min(), "accuracy": recall.mean()}
    assert shown["numbers"] == {name: pytest.approx(value, abs=5.1e-4) for name, value in expected.items()}
    columns = list(zip(*shown["classes"], strict=True))
    assert list(columns[0]) == NAMES
    for column, values in ((2, recall), (4, precision), (5, coverage)):
        assert [float(cell) for cell in columns[column]] == pytest.approx(list(values), abs=6e-4)
    for k, row in enumerate(shown["confusion"]):
        assert row[0] == NAMES[k]
        assert [float(cell or 0) for cell in row[1:]] == pytest.approx(list(rates[k]), abs=6e-3)
        other = max((j for j in range(3) if j != k), key=lambda j: rates[k, j])
        assert shown["classes"][k][6] == NAMES[other]
        assert float(shown["classes"][k][7]) == pytest.approx(rates[k, other], abs=6e-4)


@pytest.fixture(scope="module")
def browser(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("browser")
    (place / "page.html").write_text(report_page([folder]), encoding="utf-8")
    with Browser(place / "page.html", place / "profile") as browser:
        yield browser
        assert browser.errors == []


class TestInABrowser:
    pytestmark = in_browser

    def test_keys_move_along_every_way_and_the_numbers_are_those_of_the_frontier(self, browser, evidence):
        browser.evaluate("document.querySelector('.explorer input[name=way]').focus()")
        stored = json.loads(browser.evaluate("document.querySelector('.explorer').dataset.explorer"))
        ways, seen = [], []
        for _ in stored["ways"]:
            shown = browser.evaluate(READ)
            ways.append(shown["way"])
            assert (shown["sentence"], shown["whose"]) == ("max min(recall)", "(this run's own)")
            assert shown["last"] > 0
            browser.press("Tab")
            assert browser.evaluate("document.activeElement.type") == "range"
            browser.press("Home")
            for at in range(shown["last"] + 1):
                shown = browser.evaluate(READ)
                assert (shown["at"], shown["here"], shown["dots"]) == (at, at, shown["last"] + 1)
                assert bool(shown["whose"]) == (shown["sentence"] == "max min(recall)")
                check(shown, evidence)
                seen.append(tuple(shown["numbers"].values()))
                browser.press("ArrowRight")
            browser.evaluate("document.querySelector('.explorer input[name=way]:checked').focus()")
            browser.press("ArrowDown")
        assert ways == list(stored["ways"])
        assert len(set(seen)) > 6

    def test_a_class_trades_its_recall_for_its_precision(self, browser, folder):
        trades = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["adjusted"]["trades"]
        browser.evaluate("document.querySelector('.explorer input[value=class]').click()")
        browser.evaluate("document.querySelector('.explorer select').focus()")
        browser.press("End")
        shown = browser.evaluate(READ)
        assert (shown["sentence"], shown["hidden"]) == ("max min(recall)", True)
        own = {name: trades["best"][name][2] for name in ("recall", "precision", "coverage")}
        assert shown["numbers"] == pytest.approx(own, abs=6e-4)
        browser.evaluate("document.querySelector('.explorer input[type=range]').focus()")
        browser.press("Home")
        points = [point for point in trades["classes"]["2"] if point["recall"] >= own["recall"]]
        for point in points:
            shown = browser.evaluate(READ)
            name = "'<b>last</b>, really'"
            assert shown["sentence"] == f"max recall[{name}] s.t. precision[{name}] >= {point['asked']:g}"
            assert shown["numbers"] == pytest.approx({name: point[name] for name in own}, abs=6e-4)
            assert f"--objective {shlex.quote(shown['sentence'])}" in shown["commands"][0]
            csst.objective(shown["sentence"]).bind(3, NAMES)
            browser.press("ArrowRight")
        assert len(points) > 2
        browser.evaluate("document.querySelector('.explorer input[value=\"lowest recall\"]').click()")
        assert browser.evaluate(READ)["hidden"] is False

    def test_each_way_gives_up_mean_recall_for_its_number(self, browser):
        browser.evaluate("document.querySelector('.explorer input[value=\"lowest recall\"]').click()")
        browser.evaluate("document.querySelector('.explorer input[type=range]').focus()")
        browser.press("Home")
        first = browser.evaluate(READ)["numbers"]
        browser.press("End")
        last = browser.evaluate(READ)["numbers"]
        assert last["mean recall"] < first["mean recall"]
        assert last["lowest recall"] > first["lowest recall"] + 0.02
        assert browser.evaluate(READ)["sentence"].startswith("max")

    def test_filter_and_download(self, browser):
        browser.evaluate("document.querySelector('.explorer input[type=range]').focus()")
        browser.press("Home")
        browser.evaluate("URL.createObjectURL = blob => { window.saved = blob; return 'data:,'; }")
        browser.evaluate("HTMLAnchorElement.prototype.click = function () { window.file = this.download; }")
        browser.evaluate("document.querySelector('.explorer input[type=search]').focus()")
        browser.type("R")
        shown = browser.evaluate(READ)
        assert [row[0] for row in shown["classes"]] == NAMES[1:]
        assert [row[0] for row in shown["confusion"]] == NAMES[1:]
        browser.press("Tab")
        browser.press("Enter")
        table = list(csv.reader(io.StringIO(browser.evaluate("window.saved.text()"))))
        assert table[0][:3] == ["class", "labeled", "recall"]
        assert [row[0] for row in table[1:]] == ["'=rare", NAMES[2]]
        assert [row[2] for row in table[1:]] == [row[2] for row in shown["classes"]]
        assert browser.evaluate("window.file") == "classes.csv"
        assert (shown["injected"], shown["overflow"]) == (0, 0)
        browser.evaluate(
            "(() => { const box = document.querySelector('.explorer input[type=search]'); box.value = '';"
            " box.dispatchEvent(new Event('input')); })()"
        )

    @pytest.mark.parametrize("classes", [100, 1000])
    def test_many_classes_stay_usable(self, folder, tmp_path, classes):
        names, trades = [f"class {n}" for n in range(classes)], made_up_trades(classes)
        run = replace(with_trades(read_run(folder), trades), class_names=names, class_counts=[7] * classes)
        page = render("frontier.html", title="Many", sentence="", drawing=None, explorer=build_explorer(run))
        assert len(page) < 1_000_000
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        with Browser(tmp_path / "page.html", tmp_path / "profile", width=390) as browser:
            browser.evaluate("document.querySelector('.explorer input[type=range]').focus()")
            start = time.perf_counter()
            browser.press("End")
            shown = browser.evaluate(READ)
            assert time.perf_counter() - start < 5
            point = trades["ways"]["lowest recall"][-1]
            assert [float(row[2]) for row in shown["classes"]] == pytest.approx(point["recall"], abs=6e-4)
            assert shown["classes"][5][6] == f"class {point['taken_for'][5]}"
            assert (shown["confusion"], shown["overflow"]) == ([], 0)
            browser.evaluate("document.querySelector('.explorer input[type=search]').focus()")
            browser.type("class 99")
            assert len(browser.evaluate(READ)["classes"]) == (1 if classes == 100 else 11)
            assert browser.errors == []


def made_up_trades(classes: int) -> dict:
    rng = np.random.default_rng(0)

    def point(n: int) -> dict:
        recall = rng.uniform(0.02 * n, 1, classes).round(4)
        numbers = {"mean_recall": 0.9 - 0.01 * n, "min_recall": 0.02 * n, "min_coverage": 0.1, "accuracy": 0.5}
        numbers |= {"min_precision": 0.1, "sentence": f"max {n + 1}*min(recall)", "recall": recall.tolist()}
        rest = {key: rng.random(classes).round(4).tolist() for key in ("precision", "coverage", "taken_for_rate")}
        return {**numbers, **rest, "taken_for": rng.integers(0, classes, classes).tolist()}

    ways = {name: [point(n) for n in range(11)] for name in ("lowest recall", "coverage", "precision")}
    return {"basis": "estimated from nothing", "best": point(3), "ways": ways}


def test_the_stored_points_are_those_of_the_frontier(evidence):
    frontier = trace_frontier(evidence, EVEN, csst.objective("max min(recall)").bind(3))
    stored = describe_trades(frontier)
    assert stored["best"]["sentence"] == "max min(recall)"
    for name, points in frontier.trades.items():
        means = [point.mean_recall for point in points]
        assert means == sorted(means, reverse=True)
        for point, kept in zip(points, stored["ways"][name], strict=True):
            assert kept["rates"] == np.round(count_rates(evidence, kept["sentence"]), 4).tolist()
            assert kept["min_precision"] == point.min_precision == pytest.approx(min(kept["precision"]), abs=1e-4)
    # What the slider shows rises; bounds need not: a lower one may leave room for a full margin, a higher one for half.
    precisions = [point.min_precision for point in frontier.trades["precision"]]
    assert len(precisions) > 2
    assert precisions == sorted(precisions)


def test_more_classes_keep_the_largest_mistake_only(monkeypatch, evidence):
    monkeypatch.setattr("csst.fitting.metrics.WHOLE_RATES", 2)
    kept = describe_trades(trace_frontier(evidence, EVEN, steps=2))["ways"]["lowest recall"][0]
    rates = count_rates(evidence, kept["sentence"])
    np.fill_diagonal(rates, -1)
    assert "rates" not in kept
    assert kept["taken_for"] == rates.argmax(1).tolist()
    assert kept["taken_for_rate"] == np.round(rates.max(1), 4).tolist()


def test_commands_of_a_point(folder):
    run = read_run(folder)
    predict, train = find_commands(run, "max a")
    assert predict == ["csst", "predict", str(folder), "NEW", "-o", "out.csv", "--objective", "max a"]
    assert train[:3] == ["csst", "train", "made-up"]
    assert train[3:] == ["--objective", "max a", "--rule", "fit", "--out", f"{folder}-other"]
    words = ["python", "train", "array", "--objective=max b", "--rule", "none", "--resume", "--seed", "3"]
    run.environment["command"] = words
    assert find_commands(run, "s")[1][:5] == ["csst", "train", "array", "--seed", "3"]
    run.environment["command"] = ["notebook"]
    assert len(find_commands(run, "s")) == 1


def test_some_points_of_a_way_with_both_ends():
    points = [{"n": n} for n in range(11)]
    assert select_evenly(points, 11) == points
    assert [point["n"] for point in select_evenly(points, 4)] == [0, 3, 7, 10]
    assert [point["n"] for point in select_evenly(points, 2)] == [0, 10]


def with_trades(run, trades):
    return replace(run, rule=replace(run.rule, trades=trades))


def test_a_way_of_one_point_is_not_shown(folder):
    run = read_run(folder)
    ways, classes = run.rule.trades["ways"], run.rule.trades["classes"]
    single = {**run.rule.trades, "ways": {**ways, "coverage": ways["coverage"][:1]}, "classes": {"1": classes["1"][:1]}}
    explorer = build_explorer(with_trades(run, single))
    assert explorer is not None
    assert "coverage" not in explorer.ways
    assert (explorer.classes, json.loads(explorer.content)["classes"]) == ([], {})
    no_way = {**run.rule.trades, "ways": {name: points[:1] for name, points in ways.items()}}
    only_classes = build_explorer(with_trades(run, no_way))
    assert only_classes is not None
    assert (only_classes.ways, [k for k, _ in only_classes.classes]) == ([], [int(k) for k in classes])
    assert build_explorer(with_trades(run, {**no_way, "classes": {}})) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.6, 0.607], True), ([0.6, 0.602], False), ([0.5], False), ([0.0, 0.0], False), ([], False)],
)
def test_a_number_that_hardly_grows_has_no_slider(values, expected):
    assert has_gain([{"min_recall": value} for value in values], "min_recall") is expected


def test_the_own_point_stands_where_its_mean_recall_is():
    points = [{"sentence": name, "numbers": [number]} for name, number in (("a", 0.9), ("b", 0.7))]
    own = {"sentence": "mine", "numbers": [0.8]}
    added = add_run_point(points, own)
    assert ([point["sentence"] for point in added["points"]], added["start"]) == (["a", "mine", "b"], 1)
    assert add_run_point(points, {**own, "sentence": "b"}) == {"points": points, "start": 1}
    assert add_run_point(points, None) == {"points": points, "start": 0}


def test_pages_without_a_frontier_have_no_explorer(tmp_path, folder):
    assert build_explorer(read_run(folder)) is not None
    other = write_run(tmp_path / "plain", 3, updates=0)
    assert build_explorer(read_run(other)) is None
    assert 'class="explorer"' not in report_page([folder, other])
