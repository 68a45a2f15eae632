"""Two real processes under torchrun: the same λ on both, and the trajectory of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from csst.runs.folder import Run
from csst.training.engine import Engine

PLUGIN = """
from dataclasses import replace
from csst.data import Toy
from csst.data.task import identity_view

def task(seed):  # no random views: then one process and two see exactly the same inputs
    made = Toy("toy", labeled=64, unlabeled=128, validation=33, test=40).load(seed)
    return replace(made, weak=identity_view, strong=identity_view)
"""

SCRIPT = """
import atexit, json, sys
import torch.distributed
def left():  # registered first, so called last
    if torch.distributed.is_initialized():
        print("the process group is still there", flush=True)
atexit.register(left)
from csst.models import Model, build
from csst.settings import Dual, Hardware, Settings, Training
from csst.training.trainer import Trainer
from plugin_for_processes import task

made = task(0)
settings = Settings(
    training=Training(steps=40, labeled_batch=16, unlabeled_batch=32, ema=0.9),
    dual=Dual(steps_per_update=10, step_size=0.5),
    hardware=Hardware(threads=1, accumulate=int(sys.argv[2]), strategy=sys.argv[3] if len(sys.argv) > 3 else "ddp"),
)
trainer = Trainer(made, build(Model(hidden=8, depth=1), (2,), 3, 0), "mean-recall-coverage", "csst", settings)
seen, drawn = [], []
draw = trainer.batches.draw
def spy(step, device):
    batch = draw(step, device)
    drawn.append(batch.index.tolist())
    return batch
trainer.batches.draw = spy
for record in trainer.run():
    seen.append({"multipliers": record.multipliers, "gain": trainer.multipliers.gain.matrix.tolist(),
                 "recall": record.recall, "loss": record.labeled_loss, "used": record.used})
weights = [p.tolist() for p in trainer.engine.weights(trainer.model).values()]
sharded = [p.numel() != p.to_local().numel() for p in trainer.model.parameters() if hasattr(p, "to_local")]
with open(f"{sys.argv[1]}-{trainer.engine.rank}.json", "w") as out:
    json.dump({"records": seen, "weights": weights, "drawn": drawn, "processes": trainer.engine.processes,
               "sharded": sharded}, out)
"""

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plugin_for_processes.py").write_text(PLUGIN)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def go(command: list[str], folder) -> str:
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def flat(value) -> list[float]:
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]


def test_two_processes_play_one_game(folder):
    said = go([*TORCHRUN, "script.py", "two", "1"], folder)
    assert "still there" not in said  # gloo's threads may abort a process that ends with them
    go([sys.executable, "script.py", "one", "1"], folder)
    go([sys.executable, "script.py", "parts", "2"], folder)
    names = ("two-0", "two-1", "one-0", "parts-0")
    left, right, one, parts = (json.loads((folder / f"{name}.json").read_text()) for name in names)
    assert left["processes"] == right["processes"] == 2
    assert left["records"] == right["records"]  # λ, G and everything reported, at every update, to the bit
    assert left["weights"] == right["weights"]
    for mine, yours, whole in zip(left["drawn"], right["drawn"], one["drawn"], strict=True):
        if len(set(whole)) == len(whole):  # a batch that spans two rounds may hold an example twice
            assert not set(mine) & set(yours)
        assert sorted(mine + yours) == sorted(whole)
    go([*TORCHRUN, "script.py", "shards", "1", "fsdp"], folder)
    shards, more = (json.loads((folder / f"shards-{rank}.json").read_text()) for rank in (0, 1))
    assert shards["records"] == more["records"]
    assert len(shards["sharded"]) == 4
    assert all(shards["sharded"])
    for other in (left, parts, shards):  # two processes, sharded or not, or one that accumulates, follow one process
        assert flat(other["weights"]) == pytest.approx(flat(one["weights"]), rel=1e-3, abs=1e-5)
        for a, b in zip(other["records"], one["records"], strict=True):
            assert a["recall"] == b["recall"]
            assert a["multipliers"] == pytest.approx(b["multipliers"], abs=1e-9)
            assert a["used"] == pytest.approx(b["used"]) if a["used"] is not None else b["used"] is None


def test_csst_train_under_torchrun_writes_once_and_resumes(folder):
    words = ["train", "custom", "--data.source", "plugin_for_processes:task", "--training.steps", "30"]
    words += ["--training.labeled_batch", "16", "--training.unlabeled_batch", "32", "--dual.steps_per_update", "10"]
    go([sys.executable, "-m", "csst", *words, "--out", "one"], folder)
    go([*TORCHRUN, "-m", "csst", *words, "--out", "two"], folder)
    fsdp = [*words, "--hardware.strategy", "fsdp", "--checkpoint_seconds", "0", "--out", "shards"]
    go([*TORCHRUN, "-m", "csst", *fsdp], folder)
    (folder / "shards" / "metrics.json").unlink()
    go([*TORCHRUN, "-m", "csst", *fsdp, "--resume"], folder)
    assert Run(folder / "shards").metrics()["steps"] == 30
    one, two = Run(folder / "one"), Run(folder / "two")
    assert [r["step"] for r in two.journal()] == [0, 10, 20, 30]
    assert two.metrics()["test"]["confusion"] == one.metrics()["test"]["confusion"]
    (folder / "two" / "metrics.json").unlink()  # as if killed before the end; resumed by another number of processes
    go([sys.executable, "-m", "csst", *words, "--out", "two", "--resume"], folder)
    assert two.metrics()["test"]["confusion"] == one.metrics()["test"]["confusion"]


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
