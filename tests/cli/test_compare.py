"""csst compare and csst demo: words, refusals, and the files they write."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from csst.cli import main
from csst.comparison.compare import compare
from csst.comparison.rows import BASELINES, fit_forest, fit_logistic
from tests.helpers.comparisons import nearest_mean
from tests.helpers.runs import FAST
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--methods", "fixmach,csst"], "did you mean 'fixmatch'"),
        (["--objectives", "min-recall,mean-recall"], "did not expect ','"),
        (["--seed", "5"], "no --seed: use --seeds N"),
        (["--method=csst"], "no --method: use --methods"),
        (["--rule", "none"], "no --rule: use --rules"),
        (["--learner", "auto"], "no --learner: use --methods"),
        (
            ["--rules", "fitted"],
            "the rules of a comparison are fit, argmax, closed-form, calibrated, pooled, or none; found 'fitted'",
        ),
        (["--preset", "seeds", "--objective", "mean-recall"], "leave out --objective"),
        (["--objectives", "min-recall", "--objective", "mean-recall"], "leave out --objective"),
    ],
)
def test_wrong_words_are_refused_before_any_run(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "toy", "--out", "c", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("c").exists()


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


def test_the_page_of_a_comparison_has_settings_and_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--methods", "erm,csl", "--seeds", "1", "--jobs", "1", "--rules", "none", "--out", "c", *FAST]
    assert main(["compare", "digits", *words]) == 0
    page = Path("c/compare.html").read_text()
    assert page.count("<summary>Settings</summary>") == page.count("<summary>Environment</summary>") == 2
    assert "Settings that differ" in page
    assert page.count('<details class="run">') == 2


def test_without_a_test_set_every_table_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    known = np.where(np.arange(120) < 20, -1, labels)
    np.savez("mine.npz", x=generator.normal(labels[:, None], 1.0, (120, 2)).astype(np.float32), y=known)
    words = ["--training.steps", "10", "--training.labeled_batch", "8", "--training.unlabeled_batch", "8"]
    given = ["compare", "array", "--data.path", "mine.npz", "--methods", "erm", "--seeds", "1", "--out", "c", *words]
    given += ["--jobs", "1"]
    assert main(given) == 0
    message = " ".join(capsys.readouterr().out.split())
    assert "validation set, for lack of a test set (optimistic" in message
    assert "Measured on the validation set, for lack of a test set" in Path("c/compare.md").read_text()
    assert {row["measured_on"] for row in json.loads(Path("c/compare.json").read_text())["rows"]} == {"validation"}
    assert ",validation," in Path("c/compare.csv").read_text()


def test_settings_of_a_run_can_be_compared(tmp_path, capsys):
    """A run's recipe.yaml names its method, seed and rule, which a comparison has its own words for."""
    assert main(["train", "digits", "--seed", "4", "--out", str(tmp_path / "r"), "--rule", "fit", *FAST]) == 0
    words = ["--config", str(tmp_path / "r" / "recipe.yaml"), "--methods", "erm", "--seeds", "1", "--rules", "none"]
    assert main(["compare", *words, "--jobs", "1", "--out", str(tmp_path / "c")]) == 0
    assert (tmp_path / "c" / "erm-min-recall-0" / "metrics.json").is_file()


@pytest.mark.slow  # `make demo` has these rows, too
def test_what_people_use_and_our_learners_are_methods_of_the_command(tmp_path, capsys):
    names = [*BASELINES, "auto", "linear", "forest"]
    words = ["--methods", ",".join([*names, "erm"]), "--seeds", "1", "--jobs", "1", "--rules", "none"]
    assert main(["compare", "digits", *words, "--out", str(tmp_path), *FAST]) == 0
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "compare.csv").read_text().splitlines())}
    assert set(rows) == {*names, "erm"}
    assert all(0 < float(rows[name]["mean_recall"]) < 1 for name in names)
    assert rows["forest"]["mean_recall"] != rows["linear"]["mean_recall"]
    page = (tmp_path / "compare.html").read_text()
    assert all(f"<summary>{name}</summary>" in page for name in rows)
    assert "logistic-regression" in capsys.readouterr().out


def test_the_demo_is_a_comparison(tmp_path, capsys, monkeypatch):
    seen = {}

    def watch(base, rows, seeds, out, on_run):
        seen.update(base=base, rows=rows)
        few = replace(base, training=replace(base.training, steps=40), model=replace(base.model, name="mlp"))
        quick = [row if row.is_network else replace(row, fit=nearest_mean) for row in rows]
        quick[-1] = replace(quick[-1], learner="linear")
        return compare(few, quick, seeds, out, 1)

    monkeypatch.setattr("csst.cli.demo.compare", watch)
    assert main(["demo", "--seeds", "1", "--out", str(tmp_path)]) == 0
    networks = ["LA", "FixMatch", "CSST, λ by gradient", "csst-balanced, λ solved"]
    labels = ["balanced logistic regression", "class-weighted forest", *networks, "CSSTClassifier()"]
    assert [row.label for row in seen["rows"]] == labels
    assert [row.fit for row in seen["rows"]] == [fit_logistic, fit_forest, *[None] * 5]
    assert seen["rows"][-1].learner == "auto"
    assert seen["base"].data.validation == 5
    text = capsys.readouterr().out
    shown = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    with_rules = [name for network in networks for name in (network, f"{network} + rule")]
    assert shown == [*labels[:2], *with_rules, labels[-1]]  # in this order
    assert "Test set, 168 labels of ten digits" in text
    assert "Asked for the worst class, CSSTClassifier() recalls it at" in text
    assert "csst-balanced, λ solved 0." in text
    assert "The game over the steps" in Path(tmp_path / "compare.html").read_text()
