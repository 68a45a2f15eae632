"""Two real processes as torchrun starts them: the same λ on both, and the trajectory of one process."""

from __future__ import annotations

import json
import runpy
import sys

import pytest
import torch

from csst.cli import main
from csst.runs.folder import Run
from csst.training.engine import Engine
from tests.helpers.processes import PLUGIN, TORCHRUN, flat, go, run_twice
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SCRIPT = """
import atexit, json, sys
import torch, torch.distributed
def left():  # registered first, so called last
    if torch.distributed.is_initialized():
        print("the process group is still there", flush=True)
atexit.register(left)
from csst.models import Model, build
from csst.settings import Dual, Hardware, Settings, Training
from csst.training.trainer import Trainer
from plugin_for_processes import task

def play(name, parts, strategy, update="gradient"):
    settings = Settings(
        training=Training(steps=20, labeled_batch=16, unlabeled_batch=32, ema=0.8),
        dual=Dual(steps_per_update=5, step_size=0.5, update=update),
        hardware=Hardware(threads=1, accumulate=int(parts), strategy=strategy),
    )
    network = build(Model(hidden=8, depth=1), (2,), 3, 0)
    trainer = Trainer(task(0), network, "mean-recall-coverage", "csst", settings)
    seen, drawn = [], []
    draw = trainer.batches.draw
    def spy(step, device):
        batch = draw(step, device)
        drawn.append(batch.index.tolist())
        return batch
    trainer.batches.draw = spy
    for record in trainer.run():
        seen.append({"multipliers": record.multipliers, "gain": trainer.multipliers.gain.matrix.tolist(),
                     "recall": record.recall, "trust": record.trust, "loss": record.labeled_loss, "used": record.used})
    weights = [p.tolist() for p in trainer.engine.weights(trainer.model).values()]
    best, kept = trainer.best_model().state_dict(), trainer.best.state
    assert all(torch.equal(best[key], kept[key]) for key in kept)
    best = [p.tolist() for p in best.values()]
    sharded = [p.numel() != p.to_local().numel() for p in trainer.model.parameters() if hasattr(p, "to_local")]
    with open(f"{name}-{trainer.engine.rank}.json", "w") as out:
        json.dump({"records": seen, "weights": weights, "drawn": drawn, "processes": trainer.engine.processes,
                   "sharded": sharded, "best": best}, out)

for words in sys.argv[1].split():
    play(*words.split(","))
if sys.argv[2:]:  # and the same processes run a command
    from csst.cli import main
    sys.exit(main(sys.argv[2:]))
"""
TRAIN = [
    *("train", "custom", "--data.source", "plugin_for_processes:task", "--training.steps", "30"),
    *("--training.labeled_batch", "16", "--training.unlabeled_batch", "32", "--dual.steps_per_update", "10", "--out"),
]


def write_programs(folder):
    (folder / "plugin_for_processes.py").write_text(PLUGIN)
    (folder / "script.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where two processes, and this one, have left what they saw."""
    folder = write_programs(tmp_path_factory.mktemp("processes"))
    games = "two,1,ddp shards,1,fsdp solved-two,1,ddp,solve"
    printed = run_twice("script.py", [games, *TRAIN, "trained-by-two"], folder)
    assert "still there" not in printed  # gloo's threads may abort a process that ends with them
    (folder / "printed.txt").write_text(printed)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(sys, "argv", ["script.py", "one,1,ddp parts,2,ddp solved-one,1,ddp,solve"])
        runpy.run_path(str(folder / "script.py"))
        assert main([*TRAIN, "trained-by-one"]) == 0
    return folder


def read(folder, *names):
    return [json.loads((folder / f"{name}.json").read_text()) for name in names]


def test_two_processes_play_one_game(folder):
    left, right, one = read(folder, "two-0", "two-1", "one-0")
    assert left["processes"] == right["processes"] == 2
    assert left["records"] == right["records"]  # λ, G and everything reported, at every update, to the bit
    assert left["weights"] == right["weights"]
    for mine, yours, whole in zip(left["drawn"], right["drawn"], one["drawn"], strict=True):
        if len(set(whole)) == len(whole):  # a batch that spans two rounds may hold an example twice
            assert not set(mine) & set(yours)
        assert sorted(mine + yours) == sorted(whole)


@pytest.mark.parametrize("name", ["two-0", "shards-0", "parts-0"])
def test_two_processes_sharded_or_not_and_one_that_accumulates_follow_one_process(folder, name):
    other, one = read(folder, name, "one-0")
    assert flat(other["weights"]) == pytest.approx(flat(one["weights"]), rel=1e-3, abs=1e-5)
    for a, b in zip(other["records"], one["records"], strict=True):
        assert a["recall"] == b["recall"]
        assert a["multipliers"] == pytest.approx(b["multipliers"], abs=1e-9)
        assert a["used"] == pytest.approx(b["used"]) if a["used"] is not None else b["used"] is None


def test_two_processes_solve_for_the_gain_that_one_solves_for(folder):
    left, right, one = read(folder, "solved-two-0", "solved-two-1", "solved-one-0")
    assert left["records"] == right["records"]
    assert any(record["trust"] for record in one["records"]), "the gain has moved"
    assert flat(left["weights"]) == pytest.approx(flat(one["weights"]), rel=1e-3, abs=1e-5)
    for a, b in zip(left["records"], one["records"], strict=True):
        assert flat(a["gain"]) == pytest.approx(flat(b["gain"]), rel=1e-3)
        assert a["multipliers"] == pytest.approx(b["multipliers"], rel=1e-2, abs=1e-4)


def test_the_best_model_is_whole_on_every_process(folder):
    first, second, one = read(folder, "shards-0", "shards-1", "one-0")
    assert first["best"] == second["best"]
    assert flat(first["best"]) == pytest.approx(flat(one["best"]), rel=1e-3, abs=1e-5)


def test_one_process_prints_the_table(folder):
    printed = (folder / "printed.txt").read_text()
    assert printed.count("csst-fixmatch for ") == printed.count("results: ") == 1


def test_shards_are_shards_of_one_model(folder):
    shards, more = read(folder, "shards-0", "shards-1")
    assert shards["records"] == more["records"]
    assert len(shards["sharded"]) == 4
    assert all(shards["sharded"])


def test_csst_train_by_two_processes_writes_once_and_one_goes_on(folder, monkeypatch):
    one, two = Run(folder / "trained-by-one"), Run(folder / "trained-by-two")
    assert [r["step"] for r in two.journal()] == [0, 10, 20, 30]
    assert two.metrics()["test"]["confusion"] == one.metrics()["test"]["confusion"]
    (folder / "trained-by-two" / "metrics.json").unlink()  # as if killed before the end
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert main([*TRAIN, "trained-by-two", "--resume"]) == 0
    assert two.metrics()["test"]["confusion"] == one.metrics()["test"]["confusion"]


@pytest.mark.slow
def test_sharded_training_under_torchrun_resumes(tmp_path):
    folder = write_programs(tmp_path)
    command = [*TORCHRUN, "-m", "csst", *TRAIN, "shards", "--hardware.strategy", "fsdp", "--checkpoint_seconds", "0"]
    go(command, folder)
    (folder / "shards" / "metrics.json").unlink()
    go([*command, "--resume"], folder)
    assert Run(folder / "shards").metrics()["steps"] == 30


@pytest.mark.slow
def test_two_processes_cross_fit_as_one_does(tmp_path):
    folder = write_programs(tmp_path)
    more = ["--folds", "3", "--rule", "fit"]
    go([*TORCHRUN, "-m", "csst", *TRAIN, "two", *more], folder)
    go([sys.executable, "-m", "csst", *TRAIN, "one", *more], folder)
    one, two = Run(folder / "one").metrics(), Run(folder / "two").metrics()
    assert one["test"]["confusion"] == two["test"]["confusion"]
    assert one["validation"]["confusion"] == two["validation"]["confusion"]
    assert one["adjusted"]["test"]["confusion"] == two["adjusted"]["test"]["confusion"]


def test_processes_that_disagree_stop():
    """The assertion behind "every process holds the same λ": what the other process sends is made up here."""

    class Fabric:
        world_size, device = 2, torch.device("cpu")

        def __init__(self, other):
            self.other = other

        def all_gather(self, mine):
            return torch.stack([mine, self.other])

    engine = Engine.__new__(Engine)
    engine.fabric = Fabric(torch.tensor([0.5, 0.5]))
    engine.require_same(torch.tensor([0.5, 0.5]), "multipliers")
    with pytest.raises(RuntimeError, match="different multipliers"):
        engine.require_same(torch.tensor([0.5, 0.4]), "multipliers")
