"""A signal to stop: saved at the next step, said with the command that goes on, and nothing lost. Disks that refuse."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

import csst
from csst.cli import main
from csst.runs.execute import execute
from csst.runs.folder import CHECKPOINT, Run
from csst.training import interruption
from csst.training.interruption import Interrupted, defer_signals, pending_signal, step_boundary
from csst.training.trainer import Trainer
from tests.helpers.runs import QUICK, compared, same
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

WORDS = ["toy", "--training.steps", "60", "--dual.steps_per_update", "10", "--data.labeled", "60"]
WORDS += ["--data.unlabeled", "120", "--data.validation", "40", "--data.test", "60"]


@pytest.fixture(scope="module")
def whole_command(tmp_path_factory):
    """The folder of the command's run that nobody stops."""
    folder = tmp_path_factory.mktemp("command") / "whole"
    assert main(["train", *WORDS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nobody stops."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    execute(QUICK, folder)
    return folder


@pytest.fixture
def signal_at(monkeypatch):
    """Send this process a signal in the middle of a given step; only the first time it is met."""

    def arrange(step, number, times=1):
        plain, sent = Trainer._loss, []

        def loss(self, batch):
            if self.step == step and len(sent) < times:
                sent.append(step)
                os.kill(os.getpid(), number)
            return plain(self, batch)

        monkeypatch.setattr(Trainer, "_loss", loss)

    return arrange


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_step_and_names_the_command_that_goes_on(
    whole_command, tmp_path, capsys, signal_at, number, code
):
    signal_at(33, number)
    assert main(["train", *WORDS, "--out", str(tmp_path / "it's cut")]) == code
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"{number.name} at step 34" in message
    state = Run(tmp_path / "it's cut").checkpoint()
    assert (state["trainer"]["step"], state["trainer"]["updated_at"]) == (34, 30)
    again = shlex.split(message.split("continue with: csst ")[1])
    assert again[-1] == "--resume"
    assert main(again) == 0
    assert same(compared(whole_command), compared(tmp_path / "it's cut"))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_signal_under_compare_does_the_same(tmp_path, capsys, signal_at):
    words = ["compare", *WORDS, "--methods", "csst", "--seeds", "1", "--rules", "none", "--jobs", "1"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    signal_at(33, signal.SIGTERM)
    assert main([*words, "--out", str(tmp_path / "cut")]) == 143
    message = capsys.readouterr().err.splitlines()[-1]
    assert main(shlex.split(message.split("continue with: csst ")[1])) == 0
    runs = [tmp_path / name / "csst-min-recall-0" for name in ("whole", "cut")]
    assert same(*map(compared, runs))


def test_the_same_signal_twice_does_not_wait():
    with defer_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert pending_signal() == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)  # another one: what a terminal and a parent send may both arrive
        with pytest.raises(KeyboardInterrupt) as stop:
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            step_boundary()
        interruption._pending_number = None
    assert not isinstance(stop.value, Interrupted)
    assert pending_signal() is None
    step_boundary()


def test_training_in_a_thread_leaves_signals_alone(tmp_path):
    before, done = signal.getsignal(signal.SIGTERM), []
    thread = threading.Thread(target=lambda: done.append(execute(QUICK, tmp_path / "run")))
    thread.start()
    thread.join()
    assert done
    assert signal.getsignal(signal.SIGTERM) is before


def test_child_processes_are_told(monkeypatch):
    told = []

    class Child:
        def terminate(self):
            told.append("terminate")

    monkeypatch.setattr(multiprocessing, "active_children", lambda: [Child(), Child()])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as stop, interruption.forward_signals():
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.value.name == "SIGTERM"
    assert told == ["terminate", "terminate"]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_parallel_runs_of_a_comparison_are_told(tmp_path):
    """SIGTERM to the one process that a user sees: its children save, too, and none is left behind."""
    words = ["compare", *WORDS, "--training.steps", "100000", "--methods", "csst,erm", "--seeds", "1", "--jobs", "2"]
    command = [sys.executable, "-m", "csst", *words, "--out", str(tmp_path / "runs")]
    runs = [tmp_path / "runs" / f"{method}-min-recall-0" for method in ("csst", "erm")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None and not all((run / "journal.jsonl").exists() for run in runs):
            time.sleep(0.05)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        message = process.communicate(timeout=60)[1]
    assert process.returncode == 143, message
    assert "continue with: csst compare" in message
    assert all(Run(run).checkpoint()["trainer"]["step"] > 0 for run in runs)
    sizes = [(run / "journal.jsonl").stat().st_size for run in runs]
    time.sleep(0.3)
    assert sizes == [(run / "journal.jsonl").stat().st_size for run in runs]


@pytest.mark.parametrize("at", [0, 30])
def test_a_full_disk_is_a_sentence_and_the_checkpoint_before_stays(whole, tmp_path, at):
    """A limit on the size of files stands for the disk: the write fails in the middle."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(trainer, record):
        if record.step == at:
            resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, limits[1]))  # a checkpoint has about 26,000 bytes

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(csst.InputError, match=r"checkpoint.pt cannot be written \(File too large\).*--resume"):
            execute(QUICK, tmp_path / "cut", on_record=fill, checkpoint_seconds=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not (tmp_path / "cut" / f"{CHECKPOINT}.partial").exists()
    assert Run(tmp_path / "cut").checkpoint()["trainer"]["step"] == at
    execute(QUICK, tmp_path / "cut", resume=True)
    assert same(compared(whole), compared(tmp_path / "cut"))


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["train", *WORDS, "--out", str(tmp_path / "file" / "run")]) == 2
    assert "cannot be written" in capsys.readouterr().err

    def refuse(*given):
        raise OSError(30, "Read-only file system")

    made = Run.create(tmp_path / "run", QUICK.as_dict())
    monkeypatch.setattr(os, "fsync", refuse)
    for write in (lambda: made.append({"step": 0}), lambda: made.save(CHECKPOINT, {}), lambda: made.rewind(-1)):
        with pytest.raises(csst.InputError, match="Read-only file system"):
            write()


def test_resume_without_a_run_begins_and_of_a_finished_one_changes_nothing(tmp_path):
    short = replace(QUICK, training=replace(QUICK.training, steps=20))
    execute(short, tmp_path / "run", resume=True)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    execute(short, tmp_path / "run", resume=True)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
