"""Numbers that go wrong: a loss that is none, multipliers and pseudo-labels that collapse, the scaler of fp16."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
import torch

import csst
from csst.runs.begin import assemble
from csst.runs.execute import execute
from csst.runs.folder import Run
from csst.settings import Hardware
from csst.training.engine import Engine
from csst.training.records import RunningMeans
from csst.training.trainer import Trainer
from csst.training.warnings import CollapseDetector
from tests.helpers.runs import QUICK
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.mark.parametrize(("method", "place"), [("csst", "loss"), ("csst", "weights"), ("erm", "loss")])
def test_a_loss_that_is_no_number_names_step_examples_and_checkpoint(tmp_path, monkeypatch, method, place):
    plain, draw, drawn = Trainer._labeled_loss, Trainer._loss, []

    def spoiled(self, *rows):
        result = plain(self, *rows)
        return (
            torch.where(torch.tensor(self.step == 23 and place == "loss"), float("nan"), result.detach()) + 0 * result
        )

    def seen(self, batch):
        if self.step == 23:
            drawn.append((batch.y, batch.index))
            if place == "weights":  # as after a step that was too long
                next(self.model.parameters()).data.fill_(float("nan"))
        return draw(self, batch)

    made = replace(QUICK, method=method)
    labels = assemble(made).task.labeled.labels
    monkeypatch.setattr(Trainer, "_labeled_loss", spoiled)
    monkeypatch.setattr(Trainer, "_loss", seen)
    with pytest.raises(csst.InputError) as error:
        execute(made, tmp_path / "run", checkpoint_seconds=0)
    message = str(error.value)
    assert "at step 23, on" in message
    assert ("the loss became nan" if place == "loss" else "the loss is not finite") in message
    labeled = [int(i) for i in re.search(r"labeled examples \[([^\]]*)\]", message)[1].split(",")]
    assert labels[labeled].tolist() == drawn[0][0].tolist()
    if method == "csst":
        unlabeled = [int(i) for i in re.search(r"unlabeled \[([^\]]*)\]", message)[1].split(",")]
        assert unlabeled == drawn[0][1].tolist()
    assert f"{tmp_path / 'run' / 'checkpoint.pt'} (step 20)" in message
    state = Run(tmp_path / "run").checkpoint()["trainer"]
    assert state["step"] == 20
    assert all(torch.isfinite(value).all() for value in state["model"].values())


def test_a_checkpoint_is_never_made_of_a_broken_loss():
    tally = RunningMeans()
    tally.add(2, steps=torch.ones(()), labeled_loss=torch.tensor(float("inf")))
    with tally.track_batch(5, torch.arange(100), None):
        tally.track_loss(torch.tensor(float("inf")))
    with pytest.raises(csst.InputError, match=r"at step 5, on labeled examples .*100 in all\]: the loss became inf"):
        tally.state_dict()
    with pytest.raises(csst.InputError, match="at step 5"):
        tally.read_and_restart()


def test_the_sums_between_two_updates_survive_a_checkpoint():
    one, two, other = RunningMeans(), RunningMeans(), RunningMeans()
    for tally in (one, two):
        tally.add(4, steps=torch.ones(()), labeled_loss=torch.tensor(0.5), unlabeled=torch.tensor(3.0))
    state = two.state_dict(lambda values: 2 * values)  # two processes that saw the same
    assert state["examples"] == 8
    two.load_state_dict(state)
    other.load_state_dict(state, is_main=False)
    assert list(two.sums) == list(other.sums) == list(one.sums)
    assert two.sums["labeled_loss"] + other.sums["labeled_loss"] == 1.0
    assert (two.examples, other.examples) == (8, 0)


def test_the_scaler_of_sixteen_bits_is_in_the_checkpoint(tmp_path):
    from lightning_fabric.plugins.precision import MixedPrecision

    def engine():
        made = Engine(Hardware(threads=1))
        made.fabric.strategy._precision = MixedPrecision("16-mixed", "cpu")
        return made

    one, two = engine(), engine()
    scaler = one.fabric.strategy.precision.scaler
    scaler.scale(torch.ones(()))
    scaler.update(128.0)
    assert one.state_dict()["scale"] == 128.0
    run = Run.create(tmp_path / "run", {})
    run.save("checkpoint.pt", {"engine": one.state_dict()})
    two.load_state_dict(run.load("checkpoint.pt")["engine"])
    assert two.fabric.strategy.precision.scaler.get_scale() == 128.0
    assert "engine" in Trainer._PARTS


def record(step, used=0.5, score=0.5, multipliers=(0.5, 0.5)):
    return {"step": step, "used": used, "score": score, "multipliers": list(multipliers)}


def seen(records, shared=(True, True), steps=1000):
    detector = CollapseDetector(("recall['a']", "recall['b']"), list(shared), steps)
    return [note for one in records for note in detector.update(one)]


def test_each_collapse_is_said_once_with_advice():
    loose = [record(0), *(record(n, used=0.95, score=0.3) for n in range(1, 20))]
    strict = [record(0), *(record(n, used=0.001) for n in range(1, 20))]
    alone = [record(n, multipliers=(0.005, 0.995)) for n in range(20)]
    for records, says in ((loose, "lower tau"), (strict, "raise tau"), (alone, "lower dual.step_size")):
        notes = seen(records)
        assert len(notes) == 1
        assert says in notes[0]
    assert "recall['b'] has held 99.5%" in seen(alone)[0]
    assert len(seen([*alone, *strict])) == 2


def test_no_advice_contradicts_an_earlier_one():
    loose = [record(0), *(record(n, used=0.95, score=0.3) for n in range(1, 20))]
    strict = [record(n, used=0.001) for n in range(500, 520)]
    for records, first in (([*loose, *strict], "lower tau"), ([*strict, *loose], "raise tau")):
        one, two = seen(records)
        assert first in one
        assert "leave tau" in two
        assert "lower tau" not in two
        assert "raise tau" not in two


def test_what_is_no_collapse_is_not_said():
    assert not seen([record(n, used=0.0) for n in range(100)])  # the first half of training: nothing is trusted yet
    assert seen([record(n, used=0.0) for n in range(490, 520)])
    assert not seen([record(n, used=None) for n in range(490, 520)])
    assert not seen([record(n, used=0.95, score=0.45) for n in range(50)])
    assert not seen([record(n, multipliers=(0.0, 5.0)) for n in range(20)], shared=(False, False))
    assert not seen([record(n, multipliers=(0.0, 0.995)) for n in range(20)], shared=(False, True))
    back = [record(n, multipliers=(0.005, 0.995) if n % 5 else (0.5, 0.5)) for n in range(100)]
    assert not seen(back)


def test_a_collapse_is_said_while_training_and_not_again_after_resuming(tmp_path):
    """A dual step that is far too long: all weight on one class."""
    bad = replace(QUICK, dual=replace(QUICK.dual, step_size=200.0, schedule="constant", steps_per_update=2))
    told = []

    def stop(trainer, record):
        told.extend(str(w.message) for w in given if "lower dual.step_size" in str(w.message))
        if told:
            raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            execute(bad, tmp_path / "run", on_record=stop, checkpoint_seconds=0)
    assert len(told) == 1
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        metrics = execute(bad, tmp_path / "run", resume=True)
    assert not [w for w in given if "lower dual.step_size" in str(w.message)]
    assert sum("lower dual.step_size" in note for note in metrics["warnings"]) == 1
