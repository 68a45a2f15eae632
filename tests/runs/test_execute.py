"""A run's folder: what is in it, that it resumes to the bit, and that a kill at any moment loses nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import platform
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
import yaml

import csst
from csst.cli import main
from csst.errors import InputError
from csst.estimation import expectation
from csst.fitting.metrics import KeptEvidence
from csst.recipes import from_dict, recipe
from csst.recipes.recipe import refuse_unused_settings
from csst.runs.execute import execute, return_freed_memory
from csst.runs.folder import Run
from csst.settings import Hardware
from tests.helpers.runs import QUICK, Stop, compared, same
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def test_the_folder_holds_everything(tmp_path):
    metrics = execute(QUICK, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert Run(tmp_path / "run").metrics() == metrics
    top = {"method", "objective", "seed", "steps", "seconds", "split_hash"}
    assert top <= metrics.keys()
    for part in ("validation", "test"):
        assert {
            "accuracy", "mean_recall", "min_recall", "min_coverage", "recall", "precision", "coverage", "confusion",
            "objective_value", "constraint_slack",
        } <= metrics[part].keys()  # fmt: skip
        counts = torch.tensor(metrics[part]["confusion"])
        c = csst.Confusion.from_counts(counts)
        assert metrics[part]["min_recall"] == float(c.recall.min()) == metrics[part]["objective_value"]
    assert from_dict(run.recipe()) == QUICK
    assert {"torch", "python", "threads", "command"} <= json.loads(run.path("environment.json").read_text()).keys()
    journal = run.journal()
    assert [r["step"] for r in journal] == list(range(0, 61, 10))
    for key in ("labeled_loss", "used", "recall", "coverage", "multipliers", "payoff", "lr", "examples_per_second"):
        assert journal[-1][key] is not None
    assert sum(metrics["prior"]["unlabeled_estimate"]) == pytest.approx(1)
    assert metrics["split_hash"] == QUICK.data.load(0).split_hash != QUICK.data.load(1).split_hash


def test_test_examples_are_not_touched_before_the_end(tmp_path, monkeypatch):
    """Selection never sees them: scrambled test labels change the test numbers and nothing else."""
    module = sys.modules["csst.runs.begin"]
    execute(QUICK, tmp_path / "one")
    load_task = module.load_task

    def load_scrambled(recipe):
        task = load_task(recipe)
        return replace(task, test=replace(task.test, labels=task.test.labels.flip(0)))

    monkeypatch.setattr(module, "load_task", load_scrambled)
    execute(QUICK, tmp_path / "two")
    (journal, metrics, state), (journal2, metrics2, state2) = compared(tmp_path / "one"), compared(tmp_path / "two")
    assert journal == journal2
    assert same(state, state2)
    assert metrics["validation"] == metrics2["validation"]
    assert metrics["test"] != metrics2["test"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("undisturbed") / "whole"
    execute(QUICK, folder)
    return folder


def stop_at(step, recipe, folder):
    """Carry out a recipe up to a step, with a checkpoint there."""

    def stop(trainer, record):
        if record.step == step:
            raise Stop

    with pytest.raises(Stop):
        execute(recipe, folder, on_record=stop, checkpoint_seconds=0)


@pytest.mark.parametrize("at", [0, 20, 50, 60])
def test_resuming_is_bit_identical(whole, tmp_path, at):
    stop_at(at, QUICK, tmp_path / "cut")
    execute(QUICK, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(whole), compared(tmp_path / "cut"))


def test_a_kill_without_any_checkpoint_or_with_a_torn_journal_starts_where_it_can(whole, tmp_path):
    def stop(trainer, record):
        if record.step == 40:
            raise Stop

    with pytest.raises(Stop):
        execute(QUICK, tmp_path / "cut", on_record=stop)  # checkpoints only every 30 s: none yet
    with (tmp_path / "cut" / "journal.jsonl").open("a") as journal:
        journal.write('{"step": 50, "rec')
    execute(QUICK, tmp_path / "cut", resume=True)
    assert same(compared(whole), compared(tmp_path / "cut"))


def write_until_stalled(folder, written, stalled):
    """Carry out a recipe; in the middle of the write of a checkpoint, after so many whole ones, wait to be killed."""
    write = Run.write
    checkpoints = []

    def stall(run, name, content, **options):
        if name == "checkpoint.pt":
            if len(checkpoints) == written:
                (run.folder / (name + ".partial")).write_bytes(content[: len(content) // 2])
                stalled.set()
                time.sleep(60)
            checkpoints.append(name)
        write(run, name, content, **options)

    Run.write = stall
    execute(QUICK, folder, checkpoint_seconds=0)


@pytest.mark.parametrize("written", [0, 3])
def test_a_sigkill_in_the_middle_of_a_checkpoint_write_loses_nothing(whole, tmp_path, written):
    fork = multiprocessing.get_context("fork")  # nothing to import again
    stalled = fork.Event()
    process = fork.Process(target=write_until_stalled, args=(tmp_path / "cut", written, stalled))
    process.start()
    assert stalled.wait(60)
    process.kill()
    process.join(60)
    assert (tmp_path / "cut" / "checkpoint.pt.partial").exists()
    assert (tmp_path / "cut" / "checkpoint.pt").exists() == (written > 0)
    execute(QUICK, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(whole), compared(tmp_path / "cut"))


WRITER = """
import sys
from csst.estimation import expectation
from csst.recipes import from_dict
from csst.runs.execute import execute
import yaml
expectation.DRAWS = int(sys.argv[3])  # as in the process of the tests
execute(from_dict(yaml.safe_load(open(sys.argv[1]))), sys.argv[2], resume=True, checkpoint_seconds=0)
"""


def writer(recipe, folder) -> list[str]:
    """The command that carries out a recipe in folder/cut, in a process of its own."""
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.as_dict()))
    places = [str(folder / name) for name in ("recipe.yaml", "cut")]
    return [sys.executable, "-c", WRITER, *places, str(expectation.DRAWS)]


@pytest.mark.slow
def test_sigkills_at_arbitrary_moments_lose_nothing(tmp_path):
    slower = replace(QUICK, training=replace(QUICK.training, steps=600))
    execute(slower, tmp_path / "whole")
    command = writer(slower, tmp_path)
    kills = 0
    for after in (0.0, 0.15, 0.3):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            journal, before = tmp_path / "cut" / "journal.jsonl", len(Run(tmp_path / "cut").journal())
            while process.poll() is None and not (journal.exists() and len(Run(tmp_path / "cut").journal()) > before):
                time.sleep(0.01)
            time.sleep(after)
            kills += process.poll() is None
            process.kill()
    assert kills > 0
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert same(compared(tmp_path / "whole"), compared(tmp_path / "cut"))


def test_a_folder_is_never_overwritten_and_never_resumed_with_other_settings(tmp_path):
    execute(QUICK, tmp_path / "run")
    with pytest.raises(csst.InputError, match="already holds a run"):
        execute(QUICK, tmp_path / "run")
    assert execute(QUICK, tmp_path / "run", resume=True)["steps"] == 60  # finished: nothing to do
    with pytest.raises(csst.InputError, match="seed: 0 → 1"):
        execute(replace(QUICK, seed=1), tmp_path / "run", resume=True)


def test_a_run_of_a_version_that_lacked_a_setting_is_resumed(whole, tmp_path):
    stop_at(20, QUICK, tmp_path / "cut")
    settings = yaml.safe_load((tmp_path / "cut" / "recipe.yaml").read_text())
    del settings["folds"]
    del settings["dual"]["update"]
    settings["selection"]["keep"] = "best"  # what this run's length makes of "auto", as it was written once
    (tmp_path / "cut" / "recipe.yaml").write_text(yaml.safe_dump(settings))
    execute(QUICK, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(whole), compared(tmp_path / "cut"))
    with pytest.raises(InputError, match="folds: 0 → 3"):
        execute(replace(QUICK, folds=3), tmp_path / "cut", resume=True)
    with pytest.raises(InputError, match=r"dual\.update: gradient → fixed"):
        execute(replace(QUICK, dual=replace(QUICK.dual, update="fixed")), tmp_path / "cut", resume=True)


def test_loading_a_checkpoint_runs_no_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "boom"),))

    run = Run.create(tmp_path / "run", QUICK.as_dict())
    run.path("checkpoint.pt").write_bytes(pickle.dumps({"trainer": Bomb()}))
    with pytest.raises(csst.InputError, match="cannot be read as a checkpoint"):
        run.load("checkpoint.pt")
    torch.save({"trainer": Bomb()}, run.path("checkpoint.pt"))
    with pytest.raises(csst.InputError, match="cannot be read as a checkpoint"):
        run.load("checkpoint.pt")
    assert not (tmp_path / "boom").exists()


def test_a_large_tau_collapses_the_coverage_objective_and_is_noticed(tmp_path):
    """The feedback loop of the paper's method: keep it visible."""
    bad = replace(
        recipe("toy"),
        objective="mean-recall-coverage",
        selftraining=replace(recipe("toy").selftraining, tau=0.7),
        dual=replace(recipe("toy").dual, step_size=1.0, schedule="constant", steps_per_update=10),
        training=replace(recipe("toy").training, steps=400),
    )
    with pytest.warns(UserWarning, match="lower tau"):
        metrics = execute(bad, tmp_path / "run")
    assert any("lower tau" in note for note in metrics["warnings"])
    journal = Run(tmp_path / "run").journal()
    assert journal[-1]["used"] > 0.9
    assert journal[-1]["value"] < max(r["value"] for r in journal) - 0.1


def test_a_differently_balanced_unlabeled_set_is_noticed(tmp_path):
    digits = recipe("digits")
    shifted = replace(
        digits,
        method="la",
        data=replace(digits.data, imbalance=8, unlabeled_reversed=True),
        model=replace(digits.model, name="mlp"),
        training=replace(digits.training, steps=100),
    )
    with pytest.warns(UserWarning, match="differently balanced"):
        metrics = execute(shifted, tmp_path / "run")
    estimate = torch.tensor(metrics["prior"]["unlabeled_estimate"])
    assert estimate[5:].sum() > estimate[:5].sum()  # the labeled part is the other way round


EVERY_LABEL = replace(QUICK, folds=3, rule="fit")


@pytest.fixture(scope="module")
def cross_fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cross-fitted") / "whole"
    execute(EVERY_LABEL, folder)
    return folder


def test_with_folds_every_label_is_learned_from_and_judged_out_of_fold(cross_fitted):
    metrics, task = Run.open(cross_fitted).metrics(), QUICK.data.load(0)
    held = torch.bincount(task.validation.labels, minlength=task.classes)
    assert metrics["labeled_counts"] == (task.train_counts + held).tolist()
    assert torch.tensor(metrics["validation"]["confusion"]).sum(1).tolist() == metrics["labeled_counts"]
    assert torch.tensor(metrics["test"]["confusion"]).sum() == len(task.test)
    assert metrics["adjusted"]["estimate"]["prior"] == pytest.approx((held / held.sum()).tolist()), (
        "as validation has it"
    )
    kept = KeptEvidence.read(cross_fitted)
    assert kept.prior == pytest.approx((held / held.sum()).numpy())
    assert kept.evidence.counts.tolist() == metrics["labeled_counts"]
    assert kept.evidence.is_cross_fitted, "and that is remembered: other networks judge than the one in use"
    assert metrics["split_hash"] == task.split_hash, "so that it stands in one table with runs without folds"


def test_a_cross_fitted_run_resumes_to_the_bit(cross_fitted, tmp_path):
    stop_at(20, EVERY_LABEL, tmp_path / "cut")
    execute(EVERY_LABEL, tmp_path / "cut", resume=True, checkpoint_seconds=0)
    assert same(compared(cross_fitted), compared(tmp_path / "cut"))


def test_a_cross_fitted_run_is_measured_again_on_test_only(cross_fitted, capsys):
    assert main(["evaluate", str(cross_fitted)]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    assert main(["theory", str(cross_fitted)]) == 2
    assert "learned from them (folds 3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "folds is 0, which keeps the validation examples apart, or 2 to 20; found 1"),
        ({"folds": 3, "hardware": Hardware(strategy="fsdp")}, "cross-fitting does not shard its models"),
    ],
)
def test_folds_that_cannot_be_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(QUICK, **change)


def test_a_learner_other_than_a_network_refuses_folds():
    base = recipe("array")
    with pytest.raises(InputError, match="learner auto trains no network, which these settings are for"):
        refuse_unused_settings(base, replace(base, folds=3))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory, and gives it back")
def test_freed_memory_is_given_back():
    """Small pieces freed below one that is still used stay with the process otherwise."""
    pieces = [torch.ones(12_000) for _ in range(2000)]  # 96 MB
    kept = pieces[-1]
    del pieces
    before = resident_bytes()
    return_freed_memory()
    assert before - resident_bytes() > 50_000_000
    assert float(kept.sum()) == 12_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
