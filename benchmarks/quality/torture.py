"""What a run survives: python -m benchmarks.quality.torture [--kills 50] [--tries 5] [--seed 0]

Training is killed, stopped, starved of disk space and fed with damaged files, then resumed, and its weights,
multipliers, journal and metrics are compared with those of a run that nothing happened to: multipliers by gradient,
solved multipliers, and labels judged out of fold. The same with predictions of a folder of tables. Prints one table.
Children are forked from this process, which has imported everything, so that a try takes a second. Linux only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import csst.runs.folder as runs
from csst.cli import main as run_command
from csst.errors import InputError
from csst.fitting.model_file import MODEL
from csst.recipes import Recipe, recipe
from csst.runs.execute import execute
from csst.runs.folder import CHECKPOINT, Run
from csst.training.records import TIMINGS

TOY = recipe("toy")
SHORT = replace(
    TOY,
    data=replace(TOY.data, labeled=60, unlabeled=120, validation=40, test=60),
    training=replace(TOY.training, steps=200, labeled_batch=16, unlabeled_batch=32),
    dual=replace(TOY.dual, steps_per_update=10),
)
#: what is trained, by its name in the table
KINDS = {
    "": SHORT,
    ", solved multipliers": replace(SHORT, dual=replace(SHORT.dual, update="solve")),
    ", out of fold": replace(SHORT, folds=2),
}
WORDS = ["--data.labeled", "60", "--data.unlabeled", "120", "--data.validation", "40", "--data.test", "60"]
WORDS += ["--training.labeled_batch", "16", "--training.unlabeled_batch", "32", "--dual.steps_per_update", "10"]
Fault = tuple[str, int, int]


# ── What must be the same ──


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def outcome(folder: Path) -> tuple[Any, ...]:
    """The whole game at its end (weights, averages, optimizer, λ, samplers), the model, the journal, the metrics."""
    run = Run.open(folder)
    state, model = run.load(CHECKPOINT), run.path(MODEL).read_bytes()
    assert state is not None
    journal = [{key: value for key, value in record.items() if key not in TIMINGS} for record in run.journal()]
    return state["trainer"], model, journal, {k: v for k, v in run.metrics().items() if k != "seconds"}


# ── Children ──


def forked(what: Callable[..., None], *given: Any) -> Any:
    child = multiprocessing.get_context("fork").Process(target=what, args=given)
    child.start()
    return child


def trained(made: Recipe, folder: Path, on_record: Any = None, said: Path | None = None) -> None:
    warnings.simplefilter("ignore")
    try:
        execute(made, folder, resume=True, checkpoint_seconds=0, on_record=on_record)
    except InputError as error:
        if said is not None:
            said.write_text(str(error))
        os._exit(2)


def stalled(made: Recipe, folder: Path, place: str, at: int, told: Any) -> None:
    """Train, and stay in the middle of the `at`-th write of a kind until killed."""
    seen = [0]

    def here() -> None:
        seen[0] += 1
        if seen[0] == at:
            told.set()
            time.sleep(600)

    fsync, rename, append = os.fsync, os.replace, Run.append

    def slow_fsync(number: int) -> None:
        if CHECKPOINT in os.readlink(f"/proc/self/fd/{number}"):
            size = os.fstat(number).st_size
            if seen[0] + 1 == at:
                os.ftruncate(number, random.randrange(size))  # what a kill in the middle of the write leaves
            here()
        fsync(number)

    def slow_rename(source: Any, target: Any) -> None:
        if place == "between the renames of a checkpoint" and str(source).endswith(".partial"):
            here() if str(target).endswith(CHECKPOINT) else None
        rename(source, target)

    def torn_append(self: Run, record: dict[str, Any]) -> None:
        if seen[0] + 1 == at:
            line = json.dumps(record)
            with self.path("journal.jsonl").open("a") as journal:
                journal.write(line[: random.randrange(1, len(line))])
        here()
        append(self, record)

    if place == "in a checkpoint write":
        os.fsync = slow_fsync
    elif place == "in a journal write":
        runs.Run.append = torn_append  # type: ignore[method-assign]
    else:
        os.replace = slow_rename
    trained(made, folder)


def undisturbed(base: Path, kind: str) -> tuple[tuple[Any, ...], float]:
    """What a kind of run ends with if nothing happens to it, and the seconds that it takes."""
    folder, begun = base / f"whole{list(KINDS).index(kind)}", time.perf_counter()
    forked(trained, KINDS[kind], folder).join()
    return outcome(folder), time.perf_counter() - begun


def resumed(made: Recipe, folder: Path, whole: tuple[Any, ...]) -> bool:
    child = forked(trained, made, folder)
    child.join()
    return child.exitcode == 0 and same(outcome(folder), whole)


def kills(base: Path, whole: tuple[Any, ...], seconds: float, tries: int, place: str, kind: str = "") -> Fault:
    survived = number = 0
    while number < tries:
        folder = base / f"{place}-{number}".replace(" ", "-")
        if place == "at a random moment":
            child = forked(trained, KINDS[kind], folder)
            child.join(random.uniform(0, seconds))
        else:
            told = multiprocessing.get_context("fork").Event()
            child = forked(stalled, KINDS[kind], folder, place, random.randint(1, 20), told)
            assert told.wait(120), place
        child.kill()
        child.join()
        if child.exitcode == -signal.SIGKILL:  # else it had ended already, and this was no try
            number += 1
            survived += resumed(KINDS[kind], folder, whole)
        shutil.rmtree(folder, ignore_errors=True)
    return f"SIGKILL {place}{kind}", tries, survived


def killed_predictions(base: Path, tries: int) -> Fault:
    """Predictions of a folder of tables, file by file, are killed and asked for again."""
    table = base / "table.csv"
    table.write_text("size,kind\n" + "".join(f"{i % 17},{('cat', 'dog')[i % 17 > 8]}\n" for i in range(200)))
    run, parts = base / "table-run", base / "parts"
    command(["train", "array", "--data.path", str(table), "--data.label", "kind", "--learner", "linear"], run)
    parts.mkdir()
    for number in range(20):
        (parts / f"{number}.csv").write_text("size\n" + "".join(f"{i * number % 17}\n" for i in range(20_000)))

    def predict(out: Path) -> None:
        if run_command(["predict", str(run), str(parts), "-o", str(out)]) != 0:
            os._exit(1)

    def read(out: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(out.rglob("*.csv"))}

    begun = time.perf_counter()
    forked(predict, base / "predicted").join()
    seconds, whole, survived, number = time.perf_counter() - begun, read(base / "predicted"), 0, 0
    while number < tries:
        out = base / f"predicted-{number}"
        child = forked(predict, out)
        child.join(random.uniform(0, seconds))
        child.kill()
        child.join()
        if child.exitcode == -signal.SIGKILL:
            number += 1
            again = forked(predict, out)
            again.join()
            survived += again.exitcode == 0 and read(out) == whole
        shutil.rmtree(out, ignore_errors=True)
    return "SIGKILL of predictions of a folder, then again", tries, survived


# ── Signals, through the command itself ──


def signals(base: Path, verb: str, number: signal.Signals, tries: int) -> Fault:
    survived, words = 0, [verb, "toy", *WORDS, "--training.steps", "1500"]
    words += ["--checkpoint_seconds", "1000"] if verb == "train" else ["--methods", "csst,erm", "--seeds", "1"]
    words += [] if verb == "train" else ["--jobs", "2", "--rules", "none"]
    runs_in = [""] if verb == "train" else ["csst-min-recall-0", "erm-min-recall-0"]
    whole = base / f"whole-{verb}"
    if not whole.exists():
        command(words, whole)
    for at in range(tries):
        folder = base / f"{verb}-{number.name}-{at}"
        started = [sys.executable, "-m", "csst", *words, "--out", str(folder)]
        with subprocess.Popen(started, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
            journal, after = folder / runs_in[0] / "journal.jsonl", random.randint(1, 60)
            while process.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < after):
                time.sleep(0.005)
            process.send_signal(number)
            said = process.communicate()[1]
        if process.returncode != 128 + number or "continue with: csst" not in said:
            continue
        again = shlex.split(said.split("continue with: csst ")[1].splitlines()[0])
        stopped = Run(folder / runs_in[0]).checkpoint()
        done = subprocess.run([sys.executable, "-m", "csst", *again], capture_output=True).returncode
        alike = all(same(outcome(folder / name), outcome(whole / name)) for name in runs_in) if not done else False
        survived += stopped is not None and alike
    return f"{number.name} to csst {verb}", tries, survived


def command(words: list[str], folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "csst", *words, "--out", str(folder)], check=True, capture_output=True)


# ── Disks ──


def full_disk(base: Path, whole: tuple[Any, ...], tries: int) -> Fault:
    survived, place = 0, base / "disk"
    place.mkdir()
    number = 0
    while number < tries:
        size = random.randrange(16, 104)  # a run needs about 100
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)], check=True)
        try:
            said = base / "disk.said"
            child = forked(trained, SHORT, place / "run", None, said)
            child.join()
            if child.exitcode == 0:  # there was room, so this was no try
                continue
            number += 1
            told = child.exitcode == 2 and "No space left" in said.read_text()
            before = Run(place / "run").checkpoint() if (place / "run").exists() else None
            subprocess.run(["mount", "-o", "remount,size=10m", str(place)], check=True)
            kept = before is None or before["trainer"]["step"] >= 0
            survived += told and kept and resumed(SHORT, place / "run", whole)
        finally:
            subprocess.run(["umount", str(place)], check=True)
    return "disk full (tmpfs), then space again", tries, survived


def read_only(base: Path, whole: tuple[Any, ...], tries: int) -> Fault:
    """The folder becomes read-only for the user who trains, in the middle of training."""
    survived, place = 0, base / "shelf"
    place.mkdir()
    for number in range(tries):
        folder, at = place / f"run{number}", random.randrange(0, 200, 10)
        child = forked(_locked, folder, at)
        child.join()
        told = child.exitcode == 2
        folder.chmod(0o755)
        survived += told and resumed(SHORT, folder, whole)
    return "folder becomes read-only, then writable", tries, survived


def _locked(folder: Path, at: int) -> None:
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    os.chown(folder.parent, 65534, 65534)
    os.setuid(65534)

    def lock(trainer: Any, record: Any) -> None:
        if record.step == at:
            folder.chmod(0o555)

    trained(SHORT, folder, lock)


# ── Damaged files ──


def damaged(base: Path, whole: tuple[Any, ...], tries: int, how: str) -> Fault:
    survived = 0
    for number in range(tries):
        folder, at = base / f"{how}-{number}".replace(" ", "-"), random.randrange(20, 190, 10)
        child = forked(trained, SHORT, folder, _stop_at(at))
        child.join()
        path = folder / CHECKPOINT
        data = bytearray(path.read_bytes())
        if how == "truncated checkpoint":
            data = data[: random.randrange(len(data))]
        else:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            state = Run(folder).checkpoint()
        named = any(str(path) in str(warning.message) for warning in given)
        good = state is not None and state["trainer"]["step"] < at
        survived += named and good and resumed(SHORT, folder, whole)
    return how, tries, survived


def _stop_at(step: int) -> Any:
    def stop(trainer: Any, record: Any) -> None:
        if record.step == step:
            os._exit(0)

    return stop


# ── Several processes ──


def killed_rank(base: Path, tries: int) -> Fault:
    """One of two ranks is killed; torchrun starts both again, and they end as two that nobody killed."""
    words = ["train", "toy", *WORDS, "--training.steps", "1500", "--resume", "--checkpoint_seconds", "0"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--max-restarts", "2", "-m", "csst", *words, "--out"]
    subprocess.run([*torchrun, str(base / "ranks-whole")], check=True, capture_output=True)
    whole, survived = outcome(base / "ranks-whole"), 0
    for number in range(tries):
        folder = base / f"ranks-{number}"
        with subprocess.Popen([*torchrun, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            journal, after = folder / "journal.jsonl", random.randint(2, 60)
            while job.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < after):
                time.sleep(0.005)
            victims = children(job.pid)
            os.kill(random.choice(victims), signal.SIGKILL)
            code = job.wait()
        survived += len(victims) == 2 and code == 0 and same(outcome(folder), whole)
    return "SIGKILL of one of two torchrun ranks, --max-restarts", tries, survived


def children(parent: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(place.parent.name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--tries", type=int, default=5, help="of everything but the kills")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    torch.set_num_threads(1)
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        trained(SHORT, base / "warm")  # whatever is imported late is imported before the children are forked
        whole, seconds = undisturbed(base, "")

        def done(fault: Fault) -> None:
            faults.append(fault)
            print(f"{fault[0]}: {fault[2]} of {fault[1]}", file=sys.stderr, flush=True)

        few = given.tries
        inside = ("in a checkpoint write", "between the renames of a checkpoint", "in a journal write")
        shares = [given.kills - 3 * (given.kills // 5), *[given.kills // 5] * 3]
        for place, tries in zip(("at a random moment", *inside), shares, strict=True):
            done(kills(base, whole, seconds, tries, place))
        for kind in list(KINDS)[1:]:
            whole_of_kind, seconds_of_kind = undisturbed(base, kind)
            for place in ("at a random moment", "in a checkpoint write"):
                done(kills(base, whole_of_kind, seconds_of_kind, given.kills // 5, place, kind))
        done(killed_predictions(base, given.kills // 5))
        for number in (signal.SIGTERM, signal.SIGINT):
            done(signals(base, "train", number, few))
            done(signals(base, "compare", number, max(1, few // 2)))
        if os.getuid() == 0:
            done(full_disk(base, whole, few))
            done(read_only(base, whole, few))
        for how in ("truncated checkpoint", "checkpoint with a flipped bit"):
            done(damaged(base, whole, 2 * few, how))
        done(killed_rank(base, max(1, few // 2)))
    width = max(len(fault[0]) for fault in faults)
    faults = [fault for fault in faults if fault[1]]
    print(f"| {'fault':<{width}} | tries | survived | lost |")
    print(f"|{'-' * (width + 2)}|-------|----------|------|")
    for fault, tries, survived in faults:
        print(f"| {fault:<{width}} | {tries:>5} | {survived:>8} | {tries - survived:>4} |")
    sys.exit(any(tries != survived for _, tries, survived in faults))


if __name__ == "__main__":
    main()
