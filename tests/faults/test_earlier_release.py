"""Runs of csst 0.1.0, stored beside this file, are read or refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from csst.cli import main

RUNS = Path(__file__).parent / "release-0.1.0"


@pytest.fixture
def runs(tmp_path):
    return Path(shutil.copytree(RUNS, tmp_path / "runs"))


def test_a_network_is_read_and_evaluates_to_its_own_numbers(runs, capsys):
    np.savez(runs / "new.npz", x=np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32))
    assert main(["predict", str(runs / "network"), str(runs / "new.npz"), "-o", str(runs / "new.csv")]) == 0
    assert len((runs / "new.csv").read_text().splitlines()) == 21
    assert main(["evaluate", str(runs / "network")]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out


def test_its_checkpoint_is_resumed_and_ends_as_it_did(runs):
    folder = runs / "network"
    before = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").unlink()
    assert main(["train", "--config", str(folder / "recipe.yaml"), "--out", str(folder), "--resume"]) == 0
    after = json.loads((folder / "metrics.json").read_text())
    assert after["test"] == before["test"]
    assert after["checksums"] == before["checksums"]  # of model.safetensors, which is written again


def test_a_learner_of_another_format_is_refused_in_one_sentence(runs, capsys):
    np.savez(runs / "new.npz", x=np.ones((2, 4), dtype=np.float32))
    assert main(["predict", str(runs / "linear"), str(runs / "new.npz")]) == 2
    message = capsys.readouterr().err
    assert "it has format 2, and this csst reads 3: fit the model again" in message
    assert message.count("\n") == 1
    assert main(["report", str(runs / "linear")]) == 0  # numbers that were stored can be read
