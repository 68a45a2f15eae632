"""Methods side by side: the grid, its presets, its tables; the decision rule as part of a run."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

import csst
from csst.cli import main
from csst.comparison.compare import compare
from csst.comparison.rows import Row, make_rows
from csst.comparison.summary import Outcome, tabulate
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import read_outputs
from csst.fitting.model_file import MODEL
from csst.recipes import recipe
from csst.report.comparison_tables import as_csv, cells, markdown
from csst.rules import rule_from_dict
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.comparisons import make_line
from tests.helpers.runs import FAST
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def test_compare_runs_everything_once_on_the_same_splits(short, tmp_path):
    seen = []
    short = replace(short, training=replace(short.training, steps=10))
    chosen = make_rows(["csl", "csst"], ["min-recall"])
    first = compare(short, chosen, [0, 1], tmp_path, 1, "fit", lambda name, at, of: seen.append((name, at, of)))
    assert [name for name, _, _ in seen] == [
        "csl-min-recall-0",
        "csst-min-recall-0",
        "csl-min-recall-1",
        "csst-min-recall-1",
    ]
    assert [at for _, at, _ in seen] == [1, 2, 3, 4]
    assert len({m["split_hash"] for outcome in first for m in outcome.metrics}) == 2  # one per seed
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    again = compare(short, chosen, [0, 1], tmp_path, 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")} == times
    assert [o.metrics for o in again] == [o.metrics for o in first]
    with pytest.raises(InputError, match="other settings"):
        compare(replace(short, training=replace(short.training, lr=0.01)), chosen, [0, 1], tmp_path, 1)


def test_a_failing_run_does_not_stop_the_others(short, tmp_path):
    bad = replace(short, training=replace(short.training, lr=1e30))  # diverges
    with pytest.raises(InputError, match=r"2 of 2 runs failed, such as csl-min-recall-0: .*not finite"):
        compare(bad, make_rows(["csl", "erm"], ["min-recall"]), [0], tmp_path, 1)


@pytest.mark.slow  # small: processes that end badly, in test_compare_care.py
def test_parallel_runs_give_the_same_numbers(short, tmp_path):
    chosen = make_rows(["csl", "csst"], ["min-recall"])
    one = compare(short, chosen, [0], tmp_path / "one", 1, "none")
    two = compare(short, chosen, [0], tmp_path / "two", 2, "none")
    assert [o.metrics[0]["test"] for o in one] == [o.metrics[0]["test"] for o in two]


def outcome(label: str, objective: str, tests: list[dict], finished: list[dict] | None = None) -> Outcome:
    metrics = []
    for at, test in enumerate(tests):
        one = {"test": test, "objective": objective, "seconds": 10.0 + at, "labeled_counts": [8] * 9 + [2]}
        one["seed"] = 3 + at
        metrics.append({**one, **({"adjusted": {"test": finished[at]}} if finished else {})})
    return Outcome(Row(label, label, objective), metrics, [Path("x")] * len(tests))


def numbers(mean: float, low: float, coverage: float, slack: list[float] | None = None) -> dict:
    values = {"mean_recall": mean, "min_recall": low, "min_coverage": coverage, "constraint_slack": slack or []}
    return {**values, "objective_value": low, "recall": [low, mean]}


def test_the_table_says_mean_std_and_n():
    made = outcome(
        "csst", "max min(recall)", [numbers(0.5, 0.2, 0.1), numbers(0.7, 0.4, 0.3)], [numbers(0.6, 0.5, 0.2)] * 2
    )
    table = tabulate([made])
    assert [line.rule for line in table] == ["", "rule"]
    shown = cells(table)
    assert shown[0] == ["method", "objective value", "mean recall", "min recall", "min coverage", "seconds"]
    assert shown[1] == ["csst", "0.300 ± 0.141", "0.600 ± 0.141", "0.300 ± 0.141", "0.200 ± 0.141", "10.5"]
    assert shown[2][:3] == ["csst + rule", "0.500 ± 0.000", "0.600 ± 0.000"]
    other = outcome("erm", "max mean(recall)", [numbers(0.1, 0.2, 0.3, [0.1, -0.1])] * 2)
    two = cells(tabulate([made, other]))
    assert two[0][1] == "objective"
    column = two[0].index("constraints")
    assert [row[column] for row in two[1:]] == ["–", "–", "missed"]
    kept = cells([make_line("a", [0.1, 0.1], [[0.0], [-0.1]])])
    assert kept[1][kept[0].index("constraints")] == "met 1 of 2"
    assert "| csst + rule |" in markdown(table)
    assert "Mean ± std over 2 seeds." in markdown(table)
    assert "## max mean(recall)" in markdown(tabulate([made, other]))


def test_seeds_and_hardware_are_columns_where_they_differ_and_in_the_caption_where_not():
    alike = [make_line("a", [0.1, 0.2]), make_line("b", [0.1, 0.3])]
    assert not {"n", "hardware"} & set(cells(alike)[0])
    assert "Mean ± std over 2 seeds. Hardware: a machine, 1 thread." in markdown(alike)
    apart = [make_line("a", [0.1]), make_line("b", [0.1, 0.3], hardware="1 × a GPU")]
    shown = cells(apart)
    assert [row[-2:] for row in shown] == [["n", "hardware"], ["1", "a machine, 1 thread"], ["2", "1 × a GPU"]]
    assert "Mean ± std over 1 to 2 seeds." in markdown(apart)
    assert "Hardware:" not in markdown(apart)


def test_head_and_tail_columns_are_computed_from_the_confusion():
    confusion = torch.eye(10) * 10
    confusion[9] = 0
    confusion[9, 0] = 10  # the tail class is never right
    test = {**numbers(0.9, 0.0, 0.0), "confusion": confusion.tolist()}
    table = tabulate([outcome("csst", "max min(recall[head], recall[tail])", [test])])
    assert table[0].is_grouped
    assert table[0].values("min_recall") == [0.0]
    assert table[0].values("min_coverage") == [0.0]
    assert cells(table)[0][3] == "min head–tail recall"
    confusion[9, 9], confusion[9, 0], confusion[0, 0], confusion[0, 1] = 10, 0, 0, 10
    better = {**numbers(0.9, 0.0, 0.0), "confusion": confusion.tolist()}
    lowest = tabulate([outcome("csst", "max min(recall[head], recall[tail])", [better])])[0].values("min_recall")
    assert lowest == pytest.approx([8 / 9])  # one of nine head classes is always missed


def test_csv_has_a_line_per_seed_and_no_formula():
    made = outcome("=cmd()", "max min(recall)", [numbers(0.5, 0.2, 0.1), numbers(0.7, 0.4, 0.3)])
    read = list(csv.reader(as_csv(tabulate([made])).splitlines()))
    assert len(read) == 3
    assert read[1][0] == "'=cmd()"
    columns = {name: [row[at] for row in read[1:]] for at, name in enumerate(read[0])}
    assert [float(value) for value in columns["min_recall"]] == [0.2, 0.4]
    assert [float(value) for value in columns["objective_value"]] == [0.2, 0.4]
    assert columns["seed"] == ["3", "4"]
    assert columns["measured_on"] == ["test", "test"]


def test_the_command_writes_all_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "digits", "--methods", "erm,csst", "--seeds", "1", "--jobs", "1", "--out", "c", *FAST]) == 0
    printed = capsys.readouterr().out
    assert "csst + rule" in printed
    stored = json.loads(Path("c/compare.json").read_text())
    rows_by_name = {(row["method"], row["rule"]): row for row in stored["rows"]}
    assert set(rows_by_name) == {(method, rule) for method in ("erm", "csst") for rule in ("", "rule")}
    values = [row["objective_value"]["mean"] for row in stored["rows"]]
    assert values == sorted(values, reverse=True)
    run = json.loads(Path("c/csst-min-recall-0/metrics.json").read_text())
    assert rows_by_name["csst", ""]["min_recall"]["values"] == [run["test"]["min_recall"]]
    assert rows_by_name["csst", "rule"]["min_recall"]["values"] == [run["adjusted"]["test"]["min_recall"]]
    environment = json.loads(Path("c/csst-min-recall-0/environment.json").read_text())
    assert rows_by_name["csst", ""]["hardware"] == [f"{environment['processor']}, 1 thread"]
    assert "| csst + rule |" in Path("c/compare.md").read_text()
    assert len(Path("c/compare.csv").read_text().splitlines()) == 5
    page = Path("c/compare.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") >= 3
    for words, sentence in (
        (["--preset", "seeds", "--methods", "erm"], "leave out --methods"),
        (["--methods", "ermm"], "did you mean 'erm'"),
        (["--seeds", "0"], "--seeds must be at least 1"),
    ):
        assert main(["compare", "digits", "--out", "d", *words, *FAST]) == 2
        assert sentence in capsys.readouterr().err


def test_finishing_a_run_stores_the_rule_and_predict_uses_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--rule", "fit", "--out", "r", "--method", "fixmatch", *FAST]) == 0
    assert "+ rule" in capsys.readouterr().out
    metrics = json.loads(Path("r/metrics.json").read_text())
    finished = metrics["adjusted"]
    logits, labels = read_outputs("r").parts["test"]
    probs = torch.softmax(logits.double(), 1)
    rule = rule_from_dict(finished["rule"])
    recall = csst.Confusion.from_predictions(labels, rule.predict(probs), 10).recall
    assert finished["test"]["recall"] == pytest.approx(recall.tolist())
    assert finished["frontier"]
    assert finished["sentence"]
    task = recipe("digits").data
    test = replace(task, validation=20, test=30, labeled=40).load(0).test
    np.savez("new.npz", x=test.inputs.numpy())
    assert main(["predict", "r", "new.npz", "-o", "out.csv"]) == 0
    with open("out.csv", newline="") as file:
        predicted = [int(row["label"]) for row in csv.DictReader(file)]
    assert predicted == rule.predict(probs).tolist()
    assert main(["frontier", "r", "--objective", "mean-recall-coverage"]) == 0
    printed = capsys.readouterr().out
    assert "as trained" in printed
    assert "coverage" in printed
    assert "<svg" in Path("r/frontier.html").read_text()


def test_the_rule_is_for_the_last_model_and_the_rest_for_the_selected_one(tmp_path, short):
    """Selection on validation would flatter cross-fitting on validation, and it looks at undecided models only."""
    made = replace(short, rule="fit", training=replace(short.training, steps=200, lr=0.5))
    metrics = execute(made, tmp_path / "r")
    assert metrics["selected_step"] < 200, "this run was chosen because its last model is not the selected one"
    plain = execute(replace(made, rule="none"), tmp_path / "plain")
    assert metrics["test"] == plain["test"]
    state, run = Run.open(tmp_path / "r").checkpoint(), Run.open(tmp_path / "r")
    assert state is not None
    kept = load_tensors(run.path(MODEL).read_bytes())
    average = state["trainer"]["ema"]
    assert all(torch.equal(kept[f"last.{name}"], value) for name, value in average.items())
    assert any(not torch.equal(kept[f"last.{name}"], kept[f"selected.{name}"]) for name in average)
    fitted = FittedModel.load(tmp_path / "r")
    test = made.data.load(0).test
    ended = fitted.logits(test.inputs)
    torch.testing.assert_close(ended, read_outputs(tmp_path / "r").parts["test"][0])
    predicted = fitted.predict(test.inputs)
    recall = csst.Confusion.from_predictions(test.labels, predicted, 3).recall
    assert metrics["adjusted"]["test"]["recall"] == pytest.approx(recall.tolist())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished run on digits with a decision rule."""
    folder = tmp_path_factory.mktemp("digits") / "r"
    assert main(["train", "digits", "--rule", "fit", "--out", str(folder), "--method", "erm", *FAST]) == 0
    return folder


@pytest.fixture
def own_run(trained, tmp_path, monkeypatch):
    """A copy of that run as folder r of the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "r")


@pytest.mark.usefixtures("own_run")
def test_evaluate_measures_the_finished_model_again(capsys):
    assert main(["evaluate", "r"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    metrics = json.loads(Path("r/metrics.json").read_text())
    metrics["adjusted"]["test"]["confusion"][0][0] += 1
    Path("r/metrics.json").write_text(json.dumps(metrics))
    assert main(["evaluate", "r"]) == 1
    assert "differs from metrics.json" in capsys.readouterr().out


@pytest.mark.usefixtures("own_run")
def test_training_writes_its_page_and_intervals():
    assert "<svg" in Path("r/report.html").read_text()
    metrics = json.loads(Path("r/metrics.json").read_text())
    measured = metrics["test"]["intervals"]
    assert measured["min_recall"]["low"] <= metrics["test"]["min_recall"] <= measured["min_recall"]["high"]
    assert measured["constraints"] == []
    expected = metrics["validation"]["intervals"]["min_recall"]
    assert expected["low"] <= expected["estimate"] <= expected["high"]
    assert "unlabeled rows" in metrics["validation"]["estimate"]["basis"]


def test_constraints_have_intervals_and_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--rule", "fit", "--objective", "max mean(recall) s.t. coverage >= 0.05, recall[3] >= 0.2"]
    assert main(["train", "digits", "--out", "r", *FAST, *words]) == 0
    metrics = json.loads(Path("r/metrics.json").read_text())
    for part in (metrics["validation"], metrics["test"], metrics["adjusted"]["test"], metrics["adjusted"]):
        entries = part["intervals"]["constraints"]
        if part in (metrics["test"], metrics["adjusted"]["test"]):  # counted, and not estimated
            assert [one["slack"] for one in entries] == part["constraint_slack"]
        assert all(one["low"] <= one["slack"] <= one["high"] for one in entries)
        assert len({one["constraint"] for one in entries}) == 11
        assert "recall[3]" in entries[-1]["constraint"]
    assert "Confidence intervals of the constraints" in Path("r/report.html").read_text()


def test_an_unfinished_run_has_no_frontier(tmp_path, capsys):
    assert main(["frontier", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


def test_finish_is_checked(short):
    with pytest.raises(InputError, match="rule must be one of none, fit"):
        replace(short, rule="later")


def test_without_finish_nothing_is_fitted(short, tmp_path):
    assert "adjusted" not in execute(short, tmp_path / "r")


def test_class_shares_are_estimated_from_a_part_of_many_unlabeled_examples(short, tmp_path, monkeypatch):
    monkeypatch.setattr("csst.fitting.fit.UNLABELED_ROWS", 50)
    metrics = execute(short, tmp_path / "r")
    assert metrics["validation"]["estimate"]["unlabeled"] == 50
    assert metrics["prior"]["unlabeled_estimate"] == metrics["validation"]["estimate"]["unlabeled_prior"]
    assert len(read_outputs(tmp_path / "r").unlabeled) == 50


@pytest.mark.usefixtures("own_run")
def test_predict_follows_whatever_rule_the_run_holds():
    """A rule that only ever says class 3, so that ignoring it cannot go unnoticed."""
    path = Path("r/metrics.json")
    metrics = json.loads(path.read_text())
    metrics["adjusted"]["rule"]["offset"] = [1000.0 if j == 3 else 0.0 for j in range(10)]
    path.write_text(json.dumps(metrics))
    np.savez("new.npz", x=recipe("digits").data.load(0).test.inputs[:20].numpy())
    assert main(["predict", "r", "new.npz", "-o", "out.csv"]) == 0
    with open("out.csv", newline="") as file:
        assert {row["label"] for row in csv.DictReader(file)} == {"3"}


def test_rows_of_different_splits_are_never_compared(short, tmp_path):
    chosen = make_rows(["csl", "erm"], ["min-recall"])
    compare(short, chosen, [0], tmp_path, 1, "none")
    path = tmp_path / "erm-min-recall-0" / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_hash": "another"}))
    with pytest.raises(RuntimeError, match="different splits"):
        compare(short, chosen, [0], tmp_path, 1, "none")
