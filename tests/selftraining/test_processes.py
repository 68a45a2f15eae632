"""Two real processes under torchrun, and one that cuts its batches: the state and the trajectory of one process."""

from __future__ import annotations

import json
import runpy
import sys

import pytest
import torch

from csst.selftraining.stateful import gather_rows
from tests.helpers.processes import PLUGIN, TORCHRUN, flat, go
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SCRIPT = """
import json, sys
from dataclasses import replace
from csst.models import Model, build
from csst.training.generations import Generations, plan_generation
from csst.selftraining import method
from csst.settings import Dual, Hardware, SelfTrainingSettings, Settings, Training
from csst.training.trainer import Trainer
from plugin_for_processes import task

made = task(0)
settings = Settings(
    training=Training(steps=24, labeled_batch=16, unlabeled_batch=96, ema=0.9),  # some examples twice in a batch
    selftraining=SelfTrainingSettings(
        confidence=0.8, tau=0.2, darp_every=3, crest_generations=2, darp_warmup=0.2, unlabeled_prior="estimated"
    ),
    dual=Dual(steps_per_update=4, step_size=0.5),
    hardware=Hardware(threads=1),
)
def fresh():
    return build(Model(hidden=8, depth=1), (2,), 3, 0)

def trained(name, parts):
    cut = replace(settings, hardware=replace(settings.hardware, accumulate=parts))
    share, setup = plan_generation(cut, method(name), made, 0)
    game = Generations(Trainer(made, fresh(), "mean-recall-coverage", name, share, 0, setup), cut, fresh)
    return game, [[r.step, r.multipliers, r.recall, r.used] for r in game.run()]

for parts in map(int, sys.argv[2:]):
    found = {}
    for name in ("flexmatch", "csst-flexmatch", "darp", "csst-darp", "crest+", "csst-balanced"):
        game, records = trained(name, parts)
        state = {key: value.tolist() for key, value in game.trainer.selftraining.state_dict().items()}
        found[name] = {"records": records, "state": state, "chosen": [game.index.tolist(), game.labels.tolist()],
                       "weights": [p.tolist() for p in game.trainer.engine.weights(game.trainer.model).values()]}
    with open(f"{sys.argv[1]}-{parts}-{game.engine.rank}.json", "w") as out:
        json.dump({"processes": game.engine.processes, "methods": found}, out)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where this process has left what it saw with whole batches and with batches in four parts."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "plugin_for_processes.py").write_text(PLUGIN)
    (folder / "script.py").write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(sys, "argv", ["script.py", "one", "1", "4"])
        runpy.run_path(str(folder / "script.py"))
    return folder


def require_alike(others: dict, one: dict) -> None:
    for name, single in one.items():
        assert len(single["state"]) > 0
        assert len(single["chosen"][0]) > 0 or name != "crest+"
        other = others[name]
        assert other["chosen"] == single["chosen"]
        assert flat(other["weights"]) == pytest.approx(flat(single["weights"]), rel=1e-3, abs=1e-5)
        for key, value in single["state"].items():
            assert flat([other["state"][key]]) == pytest.approx(flat([value]), rel=1e-3, abs=1e-5)
        for a, b in zip(other["records"], single["records"], strict=True):
            assert (a[0], a[2]) == (b[0], b[2])
            assert a[1] == pytest.approx(b[1], abs=1e-9)
            assert a[3] == pytest.approx(b[3]) if b[3] is not None else a[3] is None


def read(path) -> dict:
    return json.loads(path.read_text())


def test_state_and_trajectory_do_not_depend_on_parts(folder):
    require_alike(read(folder / "one-4-0.json")["methods"], read(folder / "one-1-0.json")["methods"])


@pytest.mark.slow
def test_state_and_trajectory_do_not_depend_on_processes(folder):
    go([*TORCHRUN, "script.py", "two", "1"], folder)
    left, right = read(folder / "two-1-0.json"), read(folder / "two-1-1.json")
    assert left["processes"] == right["processes"] == 2
    assert left["methods"] == right["methods"]  # state, weights, records and chosen examples, to the bit
    require_alike(left["methods"], read(folder / "one-1-0.json")["methods"])


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_noted_rows_come_back_in_the_order_of_the_batch(parts):
    rows = torch.arange(22).reshape(11, 2)
    assert torch.equal(gather_rows([rows[number::parts] for number in range(parts)]), rows)


def test_rows_of_several_processes_come_back_in_the_order_of_the_whole_batch(monkeypatch):
    """What the other process sends is made up here; the slow test above has two real ones."""
    rows = torch.arange(24).reshape(12, 2)

    def all_gather(pieces, mine):
        assert torch.equal(mine, rows[0::2])
        for rank, piece in enumerate(pieces):
            piece.copy_(rows[rank::2])

    for name, fake in (("is_initialized", lambda: True), ("get_world_size", lambda: 2), ("all_gather", all_gather)):
        monkeypatch.setattr(torch.distributed, name, fake)
    assert torch.equal(gather_rows([rows[0::2][number::3] for number in range(3)]), rows)
