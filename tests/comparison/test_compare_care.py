"""What a comparison refuses before any work, what it keeps when runs fail, and what its table says of what."""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import csst.cli.compare as command
from csst.cli import main
from csst.comparison.compare import RunsFailed, compare
from csst.comparison.rows import Row, make_rows
from csst.comparison.summary import sort_rows, tabulate
from csst.errors import InputError
from csst.report.comparison_tables import as_csv, cells
from csst.runs.execute import execute
from csst.training.evaluation import constraints_met
from tests.helpers.comparisons import make_line
from tests.helpers.runs import FAST
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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--methods", "fixmach,csst"], "did you mean 'fixmatch'"),
        (["--objectives", "min-recall,mean-recall"], "objective"),
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


def test_objectives_that_differ_in_a_sign_or_late_have_folders_of_their_own():
    long = "max mean(recall) s.t. " + ", ".join(f"recall[{c}] >= 0.1" for c in range(20))
    said = [
        "max accuracy s.t. recall[0] >= 0.5",
        "max accuracy s.t. recall[0] <= 0.5",
        long,
        long + ", recall[0] >= 0.2",
    ]
    folders = [row.folder for row in make_rows(["csst"], said)]
    assert len(set(folders)) == 4
    assert max(map(len, folders)) <= 100
    assert Row("crest+", "crest+", "min-recall").folder == "crest+-min-recall"


def test_what_did_not_fail_is_kept_and_shown(short, tmp_path, capsys, monkeypatch):
    bad = Row("bad", "erm", "min-recall", {"training": {"lr": 1e30}})
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed, such as bad-min-recall-0: .*not finite") as caught:
        compare(short, [bad, Row("csl", "csl", "min-recall")], [0], tmp_path, 1, "none")
    assert [outcome.row.label for outcome in caught.value.outcomes] == ["csl"]

    def failing(*given):
        raise caught.value

    monkeypatch.setattr(command, "compare", failing)
    assert main(["compare", "toy", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "1 of 2 runs failed" in said.err
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


def test_the_sentence_ranks_by_the_objective_and_its_constraints():
    free = [make_line("a", [0.2]), make_line("b", [0.7], rule="rule"), make_line("c", [0.3])]
    assert [line.name for line in sort_rows(free)] == ["b + rule", "c", "a"]
    sentence = command.describe_winner(free)
    assert sentence.startswith("For 'goal', b + rule has the highest value (0.700; next c, 0.300).")
    assert "Measured on the test set." in sentence
    level = command.describe_winner([make_line("a", [0]), make_line("b", [0])])
    assert level.startswith("For 'goal', a and b are level (0.000).")
    bound = [make_line("a", [0.9, 0.9], [[-0.1], [0.0]]), make_line("b", [0.4, 0.4], [[0.0], [0.1]])]
    assert [line.name for line in sort_rows(bound)] == ["b", "a"]
    assert "b meets the constraints and has the highest value (0.400; next a, 0.900, missing them by 0.050)" in (
        command.describe_winner(bound)
    )
    assert "a misses the constraints least, by 0.050 on average (0.900)" in command.describe_winner(bound[:1])


def test_a_share_at_its_bound_meets_it():
    assert constraints_met([0.1, 38 / 400 - 0.095 - 1e-17]) is True
    assert constraints_met([0.1, -1e-6]) is False
    assert constraints_met([]) is None


def test_groups_and_classes_in_one_table_are_told_apart():
    one, grouped = make_line("a", [0.2]), make_line("a", [0.2], is_grouped=True)
    assert cells([one])[0][3] == "min recall"
    assert cells([grouped])[0][3] == "min head–tail recall"
    assert cells([one, grouped])[0][3] == "min (head–tail where asked) recall"


def test_the_table_says_how_much_was_used(short, tmp_path):
    table = tabulate(compare(short, make_rows(["erm", "csst"], ["min-recall"]), [0], tmp_path, 1, "none"))
    last = json.loads((tmp_path / "csst-min-recall-0" / "journal.jsonl").read_text().splitlines()[-1])
    assert [line.used for line in table] == [None, last["used"]]
    shown = cells(table)
    column = shown[0].index("used")
    assert [row[column] for row in shown[1:]] == ["–", f"{last['used']:.0%}"]
    assert f",{last['used']:.6f}," in as_csv(table)


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
    said = " ".join(capsys.readouterr().out.split())
    assert "validation set, for lack of a test set (optimistic" in said
    assert "Measured on the validation set, for lack of a test set" in Path("c/compare.md").read_text()
    assert {row["measured_on"] for row in json.loads(Path("c/compare.json").read_text())["rows"]} == {"validation"}
    assert ",validation," in Path("c/compare.csv").read_text()


def test_the_page_of_a_comparison_has_settings_and_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--methods", "erm,csl", "--seeds", "1", "--jobs", "1", "--rules", "none", "--out", "c", *FAST]
    assert main(["compare", "digits", *words]) == 0
    page = Path("c/compare.html").read_text()
    assert page.count("<summary>Settings</summary>") == page.count("<summary>Environment</summary>") == 2
    assert "Settings that differ" in page
    assert page.count('<details class="run">') == 2


def without_time(metrics: dict) -> dict:
    return {key: value for key, value in metrics.items() if key != "seconds"}


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


def test_one_validation_example_per_class_is_enough_for_a_rule(short, tmp_path):
    few = replace(short, rule="fit", data=replace(short.data, validation=1))
    found = execute(few, tmp_path / "run")
    assert found["adjusted"]["estimate"]["n"] == [1, 1, 1]
    assert "its 95% interval is" in found["warnings"][-1] or "its 95% interval is" in " ".join(found["warnings"])


def test_the_deployment_prior_can_be_changed_later(short, tmp_path):
    first = execute(replace(short, rule="fit"), tmp_path / "run")
    later = replace(short, rule="fit", deployment_prior="0.8,0.1,0.1")
    second = execute(later, tmp_path / "run", resume=True)
    assert first["adjusted"]["estimate"]["prior"] == pytest.approx([1 / 3] * 3)
    assert second["adjusted"]["estimate"]["prior"] == pytest.approx([0.8, 0.1, 0.1])
    assert second["validation"]["confusion"] == first["validation"]["confusion"]
    with pytest.raises(InputError, match="deployment_prior is validation, labeled, unlabeled, uniform or one number"):
        replace(short, deployment_prior="even")


def test_the_last_model_without_a_rule_is_stored(short, tmp_path):
    found = execute(replace(short, rule="fit"), tmp_path)["adjusted"]
    assert set(found["unadjusted"]) == {"validation", "test"}
    assert found["chosen"] in ("argmax", "closed form", "calibrated", "pooled")
    assert set(found["candidates"]) == {"argmax", "closed form", "calibrated", "pooled"}
    assert math.isfinite(found["unadjusted"]["test"]["mean_recall"])


def test_arrays_without_unlabeled_examples_train_methods_that_need_none(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 2
    np.savez("mine.npz", x=np.random.default_rng(0).normal(labels[:, None], 1.0, (60, 2)).astype(np.float32), y=labels)
    words = ["--data.path", "mine.npz", "--training.steps", "10", "--training.labeled_batch", "8"]
    words += ["--learner", "network"]
    assert main(["train", "array", "--method", "csl", "--out", "c", *words]) == 0
    assert json.loads(Path("c/metrics.json").read_text())["unlabeled_count"] == 0
    capsys.readouterr()
    assert main(["train", "array", "--method", "csst", "--out", "d", *words]) == 2
    assert "csst-fixmatch needs unlabeled examples; there are none: use csl, la or erm" in capsys.readouterr().err
