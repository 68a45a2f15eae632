"""Rows of a comparison that are no method of a network, rows with several rules, and who prints."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from csst.cli import main
from csst.cli.baselines import BASELINES, fit_classifier, fit_forest, fit_logistic
from csst.comparison.compare import RunsFailed, compare, count_parallel_runs
from csst.comparison.rows import Row
from csst.comparison.summary import read_hardware, tabulate
from csst.errors import InputError
from csst.fitting.metrics import read_outputs
from csst.recipes import recipe
from csst.report.comparison_tables import as_json, cells
from csst.rules import rule_from_dict
from csst.runs.folder import environment
from tests.helpers.comparisons import make_line
from tests.helpers.runs import FAST
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def nearest_mean(rows, labels, unlabeled, objective, seed):
    """A classifier of ten words, which says what it was called with."""
    nearest_mean.called = rows.shape, np.bincount(labels).tolist(), unlabeled.shape, objective, seed
    means = np.stack([rows[labels == c].mean(0) for c in range(labels.max() + 1)])
    return lambda new: ((new[:, None] - means[None]) ** 2).sum(2).argmin(1)


def test_a_row_is_anything_that_fits_on_the_same_task(short, tmp_path):
    chosen = [Row("means", "means", "min-recall", fit=nearest_mean), Row("erm", "erm", "min-recall")]
    outcomes = compare(short, chosen, [3], tmp_path, 1, "none")
    task = short.data.load(3)
    counts = (task.train_counts + torch.bincount(task.validation.labels)).tolist()
    rows = len(task.labeled) + len(task.validation)
    assert nearest_mean.called == ((rows, 2), counts, (len(task.unlabeled), 2), "min-recall", 3)
    means, network = (outcome.metrics[0] for outcome in outcomes)
    assert means["split_hash"] == network["split_hash"]
    assert means["labeled_counts"] == counts
    inputs, labels = task.labeled.inputs, task.labeled.labels
    inputs, labels = torch.cat([inputs, task.validation.inputs]), torch.cat([labels, task.validation.labels])
    predict = nearest_mean(inputs.numpy(), labels.numpy(), task.unlabeled.numpy(), "", 0)
    correct = torch.from_numpy(predict(task.test.inputs.numpy())) == task.test.labels
    recall = [float(correct[task.test.labels == c].double().mean()) for c in range(3)]
    assert means["test"]["recall"] == pytest.approx(recall)
    table = tabulate(outcomes)
    assert [(line.name, line.results[0].seed, line.used) for line in table] == [("means", 3, None), ("erm", 3, None)]
    stamp = (tmp_path / "means-min-recall-3" / "metrics.json").stat().st_mtime_ns
    compare(short, chosen, [3], tmp_path, 1, "none")
    assert (tmp_path / "means-min-recall-3" / "metrics.json").stat().st_mtime_ns == stamp  # not fitted again


def test_what_cannot_be_fitted_gets_a_sentence(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.arange(40) % 2)
    base = recipe("array")
    base = replace(base, data=replace(base.data, path=str(tmp_path / "a.npz")))
    row = Row("means", "means", "min-recall", fit=nearest_mean)
    with pytest.raises(RunsFailed, match="learns from all labels, so only a test set can judge it"):
        compare(base, [row], [0], tmp_path / "c", 1)
    lines = [json.dumps({"text": f"w{n % 2} v{n}", "label": str(n % 2)}) for n in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    texts = recipe("text")
    data = replace(texts.data, path=str(tmp_path / "t.jsonl"), test_path=str(tmp_path / "t.jsonl"))
    with pytest.raises(RunsFailed, match="takes numbers, and these inputs are texts: add --encoder words --frozen"):
        compare(replace(texts, data=data, encoder="", frozen=False), [row], [0], tmp_path / "d", 1)
    found = compare(replace(texts, data=data), [row], [0], tmp_path / "e", 1)  # on embeddings
    assert found[0].metrics[0]["unlabeled_count"] == 0


@pytest.mark.slow  # `make demo` has these rows, too
def test_what_people_use_and_our_learners_are_methods_of_the_command(tmp_path, capsys):
    words = ["--methods", ",".join([*BASELINES, "erm"]), "--seeds", "1", "--jobs", "1", "--rules", "none"]
    assert main(["compare", "digits", *words, "--out", str(tmp_path), *FAST]) == 0
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "compare.csv").read_text().splitlines())}
    assert set(rows) == {*BASELINES, "erm"}
    assert all(0 < float(rows[name]["mean_recall"]) < 1 for name in BASELINES)
    assert rows["forest"]["mean_recall"] != rows["linear"]["mean_recall"]
    page = (tmp_path / "compare.html").read_text()
    assert all(f"<summary>{name}</summary>" in page for name in rows)
    assert "logistic-regression" in capsys.readouterr().out


def test_a_comparison_shows_the_rules_that_a_run_chose_among(short, tmp_path):
    outcomes = compare(short, [Row("erm", "erm", "min-recall")], [0, 1], tmp_path, 1)
    table = tabulate(outcomes, ["fit", "argmax", "closed-form", "calibrated", "pooled"])
    assert [line.name for line in table] == [
        "erm",
        "erm + rule",
        "erm + argmax",
        "erm + closed form",
        "erm + calibrated",
        "erm + pooled",
    ]
    for n, metrics in enumerate(outcomes[0].metrics):
        fitted = next(line for line in table if line.rule == "rule")
        chosen = next(line for line in table if line.rule == metrics["adjusted"]["chosen"])
        assert chosen.results[n].values == fitted.results[n].values  # refitted from what the run kept
        scores, labels = read_outputs(outcomes[0].folders[n]).parts["test"]
        rule = rule_from_dict(metrics["adjusted"]["rule"])
        counts = rule.counts(torch.softmax(scores.double(), 1), labels)
        assert chosen.results[n].recall == pytest.approx((counts.diag() / counts.sum(1)).tolist())
    assert len({line.mean("mean_recall") for line in table[2:]}) > 1  # the candidates differ
    with pytest.raises(InputError, match="rules of a comparison are fit, argmax, closed-form"):
        tabulate(outcomes, ["closed form"])


def test_help_lists_what_the_command_takes_and_nothing_it_refuses(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "digits", "--help"])
    text = capsys.readouterr().out
    for word in ("--seeds", "--methods", "--rules", "--objective ", "--training.steps"):
        assert f"\n  {word}" in text, word
    for word in ("--seed ", "--method ", "--rule ", "--learner "):
        assert f"\n  {word}" not in text, word
    with pytest.raises(SystemExit):
        main(["train", "digits", "--help"])
    assert "\n  --seed " in capsys.readouterr().out


def test_settings_of_a_run_can_be_compared(tmp_path, capsys):
    """A run's recipe.yaml names its method, seed and rule, which a comparison has its own words for."""
    assert main(["train", "digits", "--seed", "4", "--out", str(tmp_path / "r"), "--rule", "fit", *FAST]) == 0
    words = ["--config", str(tmp_path / "r" / "recipe.yaml"), "--methods", "erm", "--seeds", "1", "--rules", "none"]
    assert main(["compare", *words, "--jobs", "1", "--out", str(tmp_path / "c")]) == 0
    assert (tmp_path / "c" / "erm-min-recall-0" / "metrics.json").is_file()


def test_of_several_processes_one_writes_and_prints(short, tmp_path, capsys, monkeypatch):
    row = Row("means", "means", "min-recall", fit=nearest_mean)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert count_parallel_runs(short) == 1
    monkeypatch.setenv("RANK", "1")
    assert compare(short, [row], [0], tmp_path, 1) == []
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("csst.cli.compare.compare", lambda *args: [])
    assert main(["compare", "toy", "--out", str(tmp_path / "c")]) == 0
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "c").exists()


def test_hardware_is_what_the_run_used(tmp_path):
    (tmp_path / "recipe.yaml").write_text("hardware: {accelerator: auto}")
    known = {"processor": "a CPU", "gpu": "A5000", "processes": 4, "threads": 2}
    (tmp_path / "environment.json").write_text(json.dumps(known))
    assert read_hardware(tmp_path) == "4 × A5000"
    assert read_hardware(tmp_path, uses_gpu=False) == "a CPU, 8 threads"
    (tmp_path / "recipe.yaml").write_text("hardware: {accelerator: cpu}")
    assert read_hardware(tmp_path) == "a CPU, 8 threads"
    assert read_hardware(tmp_path / "nothing") == ""
    assert environment()["processor"]


def test_the_demo_is_a_comparison(tmp_path, capsys, monkeypatch):
    seen = {}

    def watch(base, rows, seeds, out, on_run):
        seen.update(base=base, rows=rows)
        few = replace(base, training=replace(base.training, steps=20))
        quick = [replace(row, fit=nearest_mean) if row.fit else row for row in rows]
        return compare(few, quick, seeds, out, 1)

    monkeypatch.setattr("csst.cli.demo.compare", watch)
    assert main(["demo", "--seeds", "1", "--out", str(tmp_path)]) == 0
    networks = ["LA", "FixMatch", "CSST, λ by gradient", "csst-balanced, λ solved"]
    labels = ["balanced logistic regression", "class-weighted forest", *networks, "CSSTClassifier()"]
    assert [row.label for row in seen["rows"]] == labels
    assert [row.fit for row in seen["rows"]] == [fit_logistic, fit_forest, *[None] * 4, fit_classifier]
    assert seen["base"].data.validation == 5
    text = capsys.readouterr().out
    shown = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    with_rules = [name for network in networks for name in (network, f"{network} + rule")]
    assert shown == [*labels[:2], *with_rules, labels[-1]]  # in this order
    assert "Test set, 168 labels of ten digits" in text
    assert "Asked for the worst class, CSSTClassifier() recalls it at" in text
    assert "csst-balanced, λ solved 0." in text
    assert "The game over the steps" in Path(tmp_path / "compare.html").read_text()


def test_of_many_classes_the_five_lowest_recalls_are_shown():
    few = make_line("few", [0.2, 0.4])
    assert "5 lowest recalls" not in cells([few])[0]
    recalls = [[0.1 * c for c in range(11)], [0.0] * 11]
    results = [replace(result, recall=recall) for result, recall in zip(few.results, recalls, strict=True)]
    many = replace(few, results=results)
    head, row = cells([many])
    # The mean of 0 to .4 is .2 with one seed and 0 with the other.
    assert row[head.index("5 lowest recalls")].startswith("0.100 ± 0.141")
    stored = json.loads(as_json([many], {}))["rows"][0]["five_lowest_recalls"]
    assert stored["values"] == pytest.approx([0.2, 0.0])
