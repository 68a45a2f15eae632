"""Runs side by side: every cell once on the same splits, rows of any kind, and what is kept when runs fail."""

from __future__ import annotations

import json
import multiprocessing
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import csst.cli.compare as command
from csst import CSSTClassifier
from csst.cli import main
from csst.comparison.compare import RunsFailed, compare, count_parallel_runs
from csst.comparison.rows import Row, make_rows
from csst.comparison.summary import tabulate
from csst.errors import InputError
from csst.maths.confusion import confusion_counts
from csst.recipes import recipe
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.comparisons import nearest_mean
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

KILLED = """
import os, signal
def task(seed):
    os.kill(os.getpid(), signal.SIGKILL)
"""


REFUSING = """
from csst import InputError
def task(seed):
    raise InputError(f"no data for seed {seed}")
"""


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


@pytest.mark.slow  # small sibling: processes that end badly, below
def test_parallel_runs_give_the_same_numbers(short, tmp_path):
    chosen = make_rows(["csl", "csst"], ["min-recall"])
    one = compare(short, chosen, [0], tmp_path / "one", 1, "none")
    two = compare(short, chosen, [0], tmp_path / "two", 2, "none")
    assert [o.metrics[0]["test"] for o in one] == [o.metrics[0]["test"] for o in two]


def test_rows_of_different_splits_are_never_compared(short, tmp_path):
    chosen = make_rows(["csl", "erm"], ["min-recall"])
    compare(short, chosen, [0], tmp_path, 1, "none")
    run = Run(tmp_path / "erm-min-recall-0")
    run.write_metrics({**run.metrics(), "split_hash": "another"})
    with pytest.raises(RuntimeError, match="different splits"):
        compare(short, chosen, [0], tmp_path, 1, "none")


def test_objectives_that_differ_in_a_sign_or_late_have_folders_of_their_own():
    long = "max mean(recall) s.t. " + ", ".join(f"recall[{c}] >= 0.1" for c in range(20))
    sentences = [
        "max accuracy s.t. recall[0] >= 0.5",
        "max accuracy s.t. recall[0] <= 0.5",
        long,
        long + ", recall[0] >= 0.2",
    ]
    folders = [row.folder for row in make_rows(["csst"], sentences)]
    assert len(set(folders)) == 4
    assert max(map(len, folders)) <= 100
    assert Row("crest+", "crest+", "min-recall").folder == "crest+-min-recall"


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


def test_a_learner_of_a_comparison_is_the_estimator_of_all_labels(tmp_path):
    """It learns from the validation labels, too, and its row is a single line, by its rule."""
    base = recipe("toy")
    base = replace(base, data=replace(base.data, labeled=30, unlabeled=60, validation=10, test=60))
    outcomes = compare(base, make_rows(["linear"], ["min-recall"]), [1], tmp_path, 1)
    task = base.data.load(1)
    rows = np.concatenate([task.labeled.inputs, task.validation.inputs])
    labels = np.concatenate([task.labeled.labels, task.validation.labels])
    model = CSSTClassifier("min-recall", learner="linear", random_state=1).fit(rows, labels, task.unlabeled.numpy())
    counts = confusion_counts(task.test.labels, torch.from_numpy(model.predict(task.test.inputs.numpy())), 3)
    (line,) = tabulate(outcomes)
    assert line.name == "linear"
    assert line.results[0].recall == pytest.approx((counts.diag() / counts.sum(1)).tolist())
    assert outcomes[0].metrics[0]["labeled_counts"] == np.bincount(labels).tolist()


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
    result = compare(replace(texts, data=data), [row], [0], tmp_path / "e", 1)  # on embeddings
    assert result[0].metrics[0]["unlabeled_count"] == 0


def test_a_failing_run_does_not_stop_the_others(short, tmp_path):
    bad = replace(short, training=replace(short.training, lr=1e30))  # diverges
    with pytest.raises(InputError, match=r"2 of 2 runs failed, such as csl-min-recall-0: .*not finite"):
        compare(bad, make_rows(["csl", "erm"], ["min-recall"]), [0], tmp_path, 1)


def test_what_did_not_fail_is_kept_and_shown(short, tmp_path, capsys, monkeypatch):
    bad = Row("bad", "erm", "min-recall", {"training": {"lr": 1e30}})
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed, such as bad-min-recall-0: .*not finite") as caught:
        compare(short, [bad, Row("csl", "csl", "min-recall")], [0], tmp_path, 1, "none")
    assert [outcome.row.label for outcome in caught.value.outcomes] == ["csl"]

    def failing(*given):
        raise caught.value

    monkeypatch.setattr(command, "compare", failing)
    assert main(["compare", "toy", "--out", str(tmp_path)]) == 2
    message = capsys.readouterr()
    assert "1 of 2 runs failed" in message.err
    assert "| csl |" in (tmp_path / "compare.md").read_text()


def test_whatever_a_run_raises_the_others_go_on(short, tmp_path, monkeypatch):
    def sometimes(recipe, folder, resume):
        if recipe.seed == 0:
            raise ZeroDivisionError("of a plugin")
        return execute(recipe, folder, resume)

    monkeypatch.setattr("csst.comparison.compare.execute", sometimes)
    with pytest.raises(RunsFailed, match=r"1 of 2 .*ZeroDivisionError: of a plugin") as caught:
        compare(short, make_rows(["erm"], ["min-recall"]), [0, 1], tmp_path, 1, "none")
    assert [m["seed"] for m in caught.value.outcomes[0].metrics] == [1]


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (KILLED, r"2 of 2 runs failed.*a process was killed, perhaps for lack of memory"),
        (REFUSING, r"2 of 2 runs failed, such as erm-min-recall-[01]: no data for seed [01]"),
    ],
)
def test_what_goes_wrong_in_a_process_of_its_own_is_told_in_a_sentence(plugin, says, tmp_path, monkeypatch):
    from csst.recipes import recipe

    (tmp_path / "a_plugin_that_fails.py").write_text(plugin)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "a_plugin_that_fails", raising=False)
    fork = multiprocessing.get_context("fork")  # nothing to import again: nothing is trained
    monkeypatch.setattr(multiprocessing, "get_context", lambda name: fork)
    base = recipe("custom")
    base = replace(base, data=replace(base.data, source="a_plugin_that_fails:task"))
    with pytest.raises(InputError, match=says):
        compare(base, make_rows(["erm"], ["min-recall"]), [0, 1], tmp_path / "c", 2, "none")


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
