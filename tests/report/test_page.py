"""The page: what it says and shows, that it is one safe file of bounded size."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml

from csst import InputError
from csst.report import comparison_page, report_page
from csst.report.figures.matrix import average_blocks, draw_confusion
from csst.report.figures.svg import rank_colors, shorten
from csst.report.run_tables import format_number, format_signed, tabulate_differing_settings, tabulate_runs
from csst.report.run_view import read_run, read_runs, view_run
from csst.theory.dual import dual_diagnostics
from tests.report.samples import XSS, confusion, draw_figures, measured, write_run

VOID = {"meta", "link", "br", "img", "input", "hr"}
LOADING = ("src", "href", "xlink:href", "data", "action", "poster", "srcset")


class Read(HTMLParser):
    """The elements of a page with their attributes, and the text of each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.text.setdefault(tag, []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def labels(self) -> list[str]:
        return [str(attrs["aria-label"]) for attrs in self.all("svg")]


def one(figures: list[str], word: str) -> str:
    found = [label for label in figures if word in label]
    assert len(found) == 1, (word, figures)
    return found[0]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "<b>run</b>"
    written = write_run(folder, XSS, posthoc=True, warnings=("<u>tau</u> is large",), method="<i>m</i>")
    with draw_figures():
        return report_page([written])


def test_every_figure_is_there_and_says_what_it_shows(hostile):
    labels = Read(hostile).labels
    assert len(labels) == 8
    one(labels, "test recall of every class")
    one(labels, "Confusion matrix on test, 6 classes")
    one(labels, "multiplier λ")
    one(labels, "validation recall over")
    one(labels, "Pseudo-labels used, and their accuracy")
    assert "miss the bound" in one(labels, "Coverage on test against the bound")
    one(labels, "validation coverage over")
    assert "min recall up to 0.60" in one(labels, "Frontier of decision rules")
    assert all(attrs["role"] == "img" for attrs in Read(hostile).all("svg"))


def test_names_of_the_user_are_text_and_nothing_else(hostile):
    read = Read(hostile)
    names = {tag for tag, _ in read.elements}
    assert not names & {"img", "b", "iframe", "object", "embed"}
    assert [attrs for _, attrs in read.elements if any(key.startswith("on") for key in attrs)] == []
    assert len(read.all("script")) == 1
    words = "".join(read.text["text"])
    for shown in ("<img src=x onerro…", "</script><script>…", "$x_1^{2$", "_hidden", "a\"b'c&d", "漢字 é"):
        assert shown in words, shown
    assert any("<img src=x onerror=alert(1)>" in cell for cell in read.text["td"])
    assert "<u>tau</u> is large" in read.text["li"]
    assert "made-up: max mean(recall) s.t. coverage >= 0.95/K" in read.text["h1"]


@pytest.mark.usefixtures("real_figures")
def test_square_brackets_survive(tmp_path):
    folder = write_run(tmp_path / "run", ["<b>[head]", "[/]", "{{ 7 * 7 }}"], posthoc=True, warnings=("[red]x[/red]",))
    read = Read(report_page([folder]))
    for name in ("<b>[head]", "[/]", "{{ 7 * 7 }}"):
        assert name in read.text["td"]
        assert any(name in text for text in read.text["text"])
    assert "[red]x[/red]" in read.text["li"]
    assert "b" not in {tag for tag, _ in read.elements}


def test_nothing_is_loaded_and_the_policy_says_so(hostile):
    read = Read(hostile)
    for tag, attrs in read.elements:
        for key in LOADING:
            assert re.match(r"#|data:", attrs.get(key) or "#"), (tag, attrs)
    style = "".join(read.text["style"]) + " ".join(attrs.get("style") or "" for _, attrs in read.elements)
    assert "@import" not in style
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", style))
    policy = next(str(a["content"]) for a in read.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline'; script" not in policy.split("img-src")[1]


def test_ids_are_unique_and_every_reference_has_its_target(hostile):
    ids = re.findall(r'\sid="([^"]*)"', hostile)
    assert len(ids) == len(set(ids)) > 20
    used = set(re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', hostile))
    assert {a or b for a, b in used} == set(ids)


def test_figures_follow_the_colors_of_the_page(hostile):
    svgs = re.findall(r"<svg.*?</svg>", hostile, re.DOTALL)
    tags = " ".join(re.findall(r"<[^>]*>", " ".join(svgs)))
    assert not re.search(r"#0000[ef]|#000000|#ffffff|fill: white|stroke: black|font: ", tags)
    assert "currentColor" in tags
    for name in set(re.findall(r"var\((--\w+)\)", hostile)):
        assert hostile.count(f"{name}:") == 2, f"{name} needs a value in light and in dark"


def test_the_same_run_gives_the_same_page(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0)
    assert report_page([folder]) == report_page([folder])


@pytest.mark.usefixtures("real_figures")
def test_one_run_in_words_and_numbers(tmp_path):
    folder = write_run(tmp_path / "run", 4)
    metrics = json.loads((folder / "metrics.json").read_text())
    test, page = metrics["test"], report_page([folder])
    worst = test["recall"].index(min(test["recall"]))
    count = metrics["labeled_counts"][worst]
    lowest = f"{test['min_recall']:.3f} (class {worst}, {count} labeled; 95 % interval 0.11 to 0.87)"
    assert f"the mean recall is {test['mean_recall']:.3f} and the lowest class recall {lowest}; the constr" in page
    assert '<button type="button">min recall' not in page
    for part in ("validation", "test"):
        assert f"<td>{part}</td><td>{metrics[part]['mean_recall']:.3f}</td>" in page
    words = Read(page).text["text"]
    for name, labeled in zip(metrics["class_names"], metrics["labeled_counts"], strict=True):
        assert f"{name} ({labeled:,})" in words
    for row in test["confusion"]:
        for cell in row:
            assert cell == 0 or str(cell) in words
    assert "training:\n  steps: 400" in page
    assert "command: csst train made-up --out &#39;a b&#39;" in page


def test_truth_that_is_not_known_and_methods_without_unlabeled_data(tmp_path):
    labels = Read(report_page([write_run(tmp_path / "a", truth=False)])).labels
    assert "accuracy" not in one(labels, "Pseudo-labels used")
    folder = write_run(tmp_path / "b", objective="max min(recall)")
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line | {"used": None}) + "\n" for line in lines))
    labels = Read(report_page([folder])).labels
    assert not any("Pseudo-labels" in label or "bound" in label for label in labels)


def test_an_unfinished_run(tmp_path):
    folder = write_run(tmp_path / "run", 4, finished=False)
    page = report_page([folder])
    assert "is not complete: 400 of 400 steps so far, where the lowest class recall on validation is" in page
    assert len(Read(page).labels) == 6
    (folder / "journal.jsonl").unlink()
    page = report_page([folder])
    assert "is not complete: none of its 400 steps is in the journal" in page
    assert Read(page).labels == []
    both = report_page([folder, write_run(tmp_path / "done", 4)])
    assert "1 of 2 are not complete" in both
    assert "incomplete" in Read(both).text["td"]


def test_runs_without_intervals(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0)
    assert "simultaneous 95% confidence intervals" in report_page([folder])
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["test"]["intervals"]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    assert "confidence" not in report_page([folder])


def test_the_page_says_how_surely_constraints_are_met(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0)
    found = json.loads((folder / "metrics.json").read_text())["test"]["intervals"]["constraints"]
    low, high = (min(one[end] for one in found) for end in ("low", "high"))
    page = report_page([folder])
    assert f"(slack of the tightest: 95 % interval {low:+.3f} to {high:+.3f})" in page
    cells = Read(page).text["td"]
    tightest = sorted(found, key=lambda one: one["slack"])
    at = [cells.index(one["constraint"]) for one in tightest]
    assert at == sorted(at), "the tightest comes first"
    assert cells[at[0] + 1] == f"{tightest[0]['slack']:+.3f}"
    free = write_run(tmp_path / "free", 3, updates=0, objective="max min(recall)")
    assert "Confidence intervals of the constraints" not in report_page([free])


@pytest.mark.usefixtures("real_figures")
def test_several_runs(tmp_path):
    folders = [
        write_run(tmp_path / method, 5, method=method, skill=skill, posthoc=method == "erm")
        for method, skill in (("erm", 0.5), ("csst", 0.9))
    ]
    page = report_page(folders)
    lowest = json.loads((folders[0] / "metrics.json").read_text())["adjusted"]["test"]["min_recall"]
    assert f"Of 2 complete runs, erm has the highest min recall ({lowest:.3f})" in page
    assert "on test, each with its decision rule where it has one." in page
    assert "Recall of 5 classes in 2 rows" in one(Read(page).labels, "Recall of 5 classes")
    tradeoff = re.search(r'<svg role="img" aria-label="Mean recall against.*?</svg>', page, re.DOTALL)
    assert tradeoff
    marks = re.findall(r"<use [^>]*style=\"([^\"]*var\(--run[^\"]*)\"", tradeoff[0])
    assert len(marks) == 3
    assert sum("fill: none" in mark or "fill-opacity: 0" in mark for mark in marks) == 1
    assert "Settings that differ" in page
    assert tabulate_differing_settings(read_runs(folders))[1:] == [["method", "erm", "csst"]]
    table = tabulate_runs(read_runs(folders))
    assert table[0] == ["run", "mean recall", "min recall", "min coverage", "objective", "constraints", "seconds"]
    assert [row[0] for row in table[1:]] == ["erm + rule", "erm, without the rule", "csst"]


def test_many_runs_and_other_classes(tmp_path):
    plain = {"updates": 0, "objective": "max min(recall)"}
    folders = [write_run(tmp_path / f"{n}", 4, method=f"m{n}", **plain) for n in range(10)]
    page = report_page(folders)
    assert "Figures of the first 8 of 10 runs" in page
    assert page.count("<h2>m") == 8
    other = report_page([folders[0], write_run(tmp_path / "other", 3, **plain)])
    assert len([label for label in Read(other).labels if "recall of every class" in label]) == 2


def test_splits_that_differ_are_said(tmp_path):
    folders = [write_run(tmp_path / f"{n}", 3, updates=2, seed=n) for n in range(2)]
    metrics = json.loads((folders[1] / "metrics.json").read_text())
    (folders[1] / "metrics.json").write_text(json.dumps(metrics | {"split_hash": "other"}))
    assert [run.name for run in read_runs(folders)] == ["csst-fixmatch seed 0", "csst-fixmatch seed 1"]
    assert "2 different splits" in report_page(folders)
    assert "different splits" not in report_page([folders[0], write_run(tmp_path / "same", 3, updates=2, seed=2)])


@pytest.mark.usefixtures("real_figures")
def test_many_classes_and_updates_give_a_page_of_bounded_size(tmp_path):
    page = report_page([write_run(tmp_path / "run", 400, updates=40)])
    assert len(page) < 200_000
    read = Read(page)
    assert "Recall of the 400 classes" in read.text["figcaption"]
    one(read.labels, "Confusion matrix on test, 400 classes")
    assert "The 30 classes with the lowest recall" in read.text["summary"]
    assert len(read.all("image")) == 1
    long = report_page([write_run(tmp_path / "long", 4, updates=1500)])
    assert len(long) < 200_000
    assert "of 1,501 updates" in long


@pytest.mark.usefixtures("real_figures")
@pytest.mark.parametrize(("classes", "picture"), [(30, False), (31, True)])
def test_numbers_in_the_confusion_up_to_thirty_classes(tmp_path, classes, picture):
    run = read_run(write_run(tmp_path / "run", classes, updates=0, objective="max min(recall)"))
    assert ("<image" in draw_confusion(run).svg) == picture


def test_blocks_of_a_large_confusion():
    rates = np.random.default_rng(0).dirichlet(np.ones(7), 7)
    blocks = average_blocks(rates, side=3)
    groups = [range(0, 2), range(2, 5), range(5, 7)]
    for i, rows in enumerate(groups):
        for j, columns in enumerate(groups):
            expected = sum(rates[r][c] for r in rows for c in columns) / len(rows)
            assert blocks[i][j] == pytest.approx(expected)
    assert np.allclose(average_blocks(rates), rates)


def test_comparison_page_as_other_commands_call_it(tmp_path):
    result = {"class_names": ["a", "b"], "labeled_counts": [9, 1], "split_hash": "h", "seed": 0, "unlabeled_count": 5}
    result |= {"method": "erm", "objective": "max min(recall)", "recipe": "r", "steps": 1, "selected_step": 0}
    counts = confusion(np.random.default_rng(0), 2, 0.9)
    runs = {name: {"metrics": result | {"test": measured(counts, None)}, "journal": []} for name in "xy"}
    page = comparison_page("T <1>", "S <2>.", [["method", "n"], ["x <3>", "1.0 ± 0.1"]], runs)
    read = Read(page)
    assert "T <1>" in read.text["h1"]
    assert {"S <2>.", "The figures show one run of each row of the table, seed 0."} <= set(read.text["p"])
    assert {"x <3>", "1.0 ± 0.1"} <= set(read.text["td"])
    assert len(read.labels) == 4
    assert len(Read(comparison_page("T", "S", [["a"], ["b"]], runs, detailed=0)).labels) == 2


def test_a_run_from_disk_and_from_memory_is_the_same(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=5, posthoc=True, warnings=("w",))
    metrics, environment = (json.loads((folder / name).read_text()) for name in ("metrics.json", "environment.json"))
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    content = {"metrics": metrics, "journal": journal, "recipe": recipe}
    content |= {"environment": environment, "folder": folder}
    assert view_run("x", **content) == read_run(folder, "x")
    disk, memory = (comparison_page("T", "S", [["a"], ["b"]], {"x": run}) for run in (folder, content))
    assert disk == memory


def test_warnings_about_the_multipliers_are_shown(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=40)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    for n, line in enumerate(lines):
        line["multipliers"] = [0.9, 0.05, 0.05] if n % 2 else [0.05, 0.05, 0.9]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    labels = list(json.loads((folder / "metrics.json").read_text())["multipliers"])
    warnings = dual_diagnostics(lines, labels)["warnings"]
    assert warnings
    assert set(warnings) <= set(Read(report_page([folder])).text["li"])


def test_small_words():
    assert shorten("a\n b\u202ec\x00 " + "d" * 50, 10) == "a b c ddd…"
    assert [format_number(value) for value in (0.5, 0.0123, 0.00064123, 0.0, None)] == [
        "0.500",
        "0.012",
        "0.00064",
        "0.000",
        "–",
    ]
    assert [format_signed(value) for value in (0.5, -0.0123, 0.00064123, 0.0)] == [
        "+0.500",
        "-0.012",
        "+0.00064",
        "+0.000",
    ]
    colors = rank_colors([5, 100, 20], 3)
    assert colors == [rank_colors(None, 3)[n] for n in (2, 0, 1)]


def test_the_class_table_has_the_lowest(tmp_path):
    folder = write_run(tmp_path / "run", 40, updates=0, objective="max min(recall)")
    recall = json.loads((folder / "metrics.json").read_text())["test"]["recall"]
    table = report_page([folder]).split("<summary>The 30 classes with the lowest recall</summary>")[1]
    rows = re.findall(r"<tr><td>class (\d+)</td><td>[\d,]+</td><td>([\d.]+)</td>", table)
    lowest = sorted(range(40), key=lambda c: (recall[c], c))[:30]
    assert rows == [(str(c), f"{recall[c]:.3f}") for c in lowest]


def test_a_lone_surrogate_can_be_written(tmp_path):
    folder = write_run(tmp_path / "run", 2, updates=2)
    text = (folder / "metrics.json").read_text().replace("class 1", "\\ud800x")
    (folder / "metrics.json").write_text(text)
    assert report_page([folder]).encode("utf-8")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.json", "{", "metrics.json cannot be read"),
        ("metrics.json", "[]", "must hold names and values; found list"),
        ("metrics.json", '{"method": "x"}', "holds no results"),
        ("recipe.yaml", "a: [", "recipe.yaml cannot be read"),
        ("environment.json", "7", "must hold names and values; found int"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    folder = write_run(tmp_path / "run", 2, updates=2)
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=message):
        report_page([folder])
