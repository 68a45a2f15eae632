"""The decision rule as part of a run: fitted at once or later, stored, predicted with, and measured again."""

from __future__ import annotations

import csv
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

import csst
from csst.cli import main
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import read_outputs
from csst.fitting.model_file import MODEL
from csst.recipes import recipe
from csst.rules import rule_from_dict
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.runs import FAST
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pages):
    """The folder of a finished run on digits with a decision rule."""
    folder = tmp_path_factory.mktemp("digits") / "r"
    assert main(["train", "digits", "--rule", "fit", "--out", str(folder), "--method", "erm", *FAST]) == 0
    return folder


@pytest.fixture
def own_run(trained, tmp_path, monkeypatch):
    """A copy of that run as folder r of the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "r")


def without_time(metrics: dict) -> dict:
    return {key: value for key, value in metrics.items() if key != "seconds"}


def test_finish_is_checked(short):
    with pytest.raises(InputError, match="rule must be one of none, fit"):
        replace(short, rule="later")


def test_without_finish_nothing_is_fitted(short, tmp_path):
    assert "adjusted" not in execute(short, tmp_path / "r")


def test_finishing_a_run_stores_the_rule_and_predict_uses_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--rule", "fit", "--out", "r", "--method", "fixmatch", *FAST]) == 0
    assert "+ rule" in capsys.readouterr().out
    metrics = Run("r").metrics()
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
        predicted = [int(row["prediction"]) for row in csv.DictReader(file)]
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


def test_the_last_model_without_a_rule_is_stored(short, tmp_path):
    result = execute(replace(short, rule="fit"), tmp_path)["adjusted"]
    assert set(result["unadjusted"]) == {"validation", "test"}
    assert result["chosen"] in ("argmax", "closed form", "calibrated", "pooled")
    assert set(result["candidates"]) == {"argmax", "closed form", "calibrated", "pooled"}
    assert math.isfinite(result["unadjusted"]["test"]["mean_recall"])


@pytest.mark.usefixtures("own_run")
def test_predict_follows_whatever_rule_the_run_holds():
    """A rule that only ever says class 3, so that ignoring it cannot go unnoticed."""
    metrics = Run("r").metrics()
    metrics["adjusted"]["rule"]["offset"] = [1000.0 if j == 3 else 0.0 for j in range(10)]
    Run("r").write_metrics(metrics)
    np.savez("new.npz", x=recipe("digits").data.load(0).test.inputs[:20].numpy())
    assert main(["predict", "r", "new.npz", "-o", "out.csv"]) == 0
    with open("out.csv", newline="") as file:
        assert {row["prediction"] for row in csv.DictReader(file)} == {"3"}


@pytest.mark.usefixtures("own_run")
def test_evaluate_measures_the_finished_model_again(capsys):
    assert main(["evaluate", "r"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    metrics = Run("r").metrics()
    metrics["adjusted"]["test"]["confusion"][0][0] += 1
    Run("r").write_metrics(metrics)
    assert main(["evaluate", "r"]) == 1
    assert "differs from metrics.json" in capsys.readouterr().out


@pytest.mark.usefixtures("own_run")
def test_training_writes_its_page_and_intervals():
    assert "<svg" in Path("r/report.html").read_text()
    metrics = Run("r").metrics()
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
    metrics = Run("r").metrics()
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


def test_class_shares_are_estimated_from_a_part_of_many_unlabeled_examples(short, tmp_path, monkeypatch):
    monkeypatch.setattr("csst.fitting.network_fit.UNLABELED_ROWS", 50)
    metrics = execute(short, tmp_path / "r")
    assert metrics["validation"]["estimate"]["unlabeled"] == 50
    assert metrics["prior"]["unlabeled_estimate"] == metrics["validation"]["estimate"]["unlabeled_prior"]
    assert len(read_outputs(tmp_path / "r").unlabeled) == 50


def test_a_run_can_be_finished_later_and_the_training_is_not_repeated(short, tmp_path):
    plain = execute(short, tmp_path / "later")
    journal = (tmp_path / "later" / "journal.jsonl").read_bytes()
    finishing = replace(short, rule="fit")
    at_once = execute(finishing, tmp_path / "once")
    later = execute(finishing, tmp_path / "later", resume=True)
    assert without_time(later) == without_time(at_once)
    assert later["seconds"] == pytest.approx(plain["seconds"], abs=5)
    assert (tmp_path / "later" / "journal.jsonl").read_bytes() == journal
    assert "rule: fit" in (tmp_path / "later" / "recipe.yaml").read_text()
    assert execute(finishing, tmp_path / "later", resume=True) == later
    assert without_time(execute(short, tmp_path / "later", resume=True)) == without_time(plain)
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (tmp_path / "later" / name).unlink(missing_ok=True)
    with pytest.raises(InputError, match="no longer has a checkpoint"):
        execute(finishing, tmp_path / "later", resume=True)


def test_stopped_while_finished_in_another_way_a_run_goes_on(short, tmp_path, monkeypatch, capsys):
    finishing = replace(short, rule="fit")
    known = execute(finishing, tmp_path)

    def stopped(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(
            "csst.fitting.fitted_model.pack_outputs", stopped
        )  # the model is written by then, metrics.json is not
        with pytest.raises(KeyboardInterrupt):
            execute(short, tmp_path, resume=True)
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 2), np.float32))
    assert main(["predict", str(tmp_path), str(tmp_path / "x.npz"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "is not complete: continue it" in capsys.readouterr().err  # never a model without its rule
    assert without_time(execute(finishing, tmp_path, resume=True)) == without_time(known)


def test_the_deployment_prior_can_be_changed_later(short, tmp_path):
    first = execute(replace(short, rule="fit"), tmp_path / "run")
    later = replace(short, rule="fit", deployment_prior="0.8,0.1,0.1")
    second = execute(later, tmp_path / "run", resume=True)
    assert first["adjusted"]["estimate"]["prior"] == pytest.approx([1 / 3] * 3)
    assert second["adjusted"]["estimate"]["prior"] == pytest.approx([0.8, 0.1, 0.1])
    assert second["validation"]["confusion"] == first["validation"]["confusion"]
    with pytest.raises(InputError, match="deployment_prior is validation, labeled, unlabeled, uniform or one number"):
        replace(short, deployment_prior="even")


def test_one_validation_example_per_class_is_enough_for_a_rule(short, tmp_path):
    few = replace(short, rule="fit", data=replace(short.data, validation=1))
    result = execute(few, tmp_path / "run")
    assert result["adjusted"]["estimate"]["n"] == [1, 1, 1]
    assert "its 95% interval is" in result["warnings"][-1] or "its 95% interval is" in " ".join(result["warnings"])


def test_arrays_without_unlabeled_examples_train_methods_that_need_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 2
    np.savez("mine.npz", x=np.random.default_rng(0).normal(labels[:, None], 1.0, (60, 2)).astype(np.float32), y=labels)
    words = ["--data.path", "mine.npz", "--training.steps", "10", "--training.labeled_batch", "8"]
    words += ["--learner", "network"]
    assert main(["train", "array", "--method", "csl", "--out", "c", *words]) == 0
    assert Run("c").metrics()["unlabeled_count"] == 0
    capsys.readouterr()
    assert main(["train", "array", "--method", "csst", "--out", "d", *words]) == 2
    assert "csst-fixmatch needs unlabeled examples; there are none: use csl, la or erm" in capsys.readouterr().err
