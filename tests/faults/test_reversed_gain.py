"""A metric of one's own whose gain pays mistakes more than hits: the sentence says which row pays what."""

from __future__ import annotations

import re

import pytest
import torch

import csst
from csst.cli import main
from csst.training.records import RunningMeans
from tests.helpers.runs import FAST
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


class EvenRecall(csst.Objective):
    """Recalls that differ are punished: a class far above the others is worth less when it is right."""

    def utility(self, c):
        return c.recall.mean() - c.recall.std()


def skewed_gain():
    """The gain where one of three classes has nearly all hits."""
    rates = torch.tensor([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])
    prior = torch.ones(3) / 3
    return csst.gain_matrix(EvenRecall(), [], csst.Confusion(rates, prior), prior)


def test_the_row_that_pays_mistakes_is_described():
    gain = skewed_gain()
    assert float(gain.matrix[0].max() / gain.matrix[0, 0]) > 10
    result = gain.describe_reversed(("ape", "bee", "cat"))
    numbers = re.fullmatch(
        r"row of class 'ape': (\S+) for a hit, (\S+) for the answer '(bee|cat)'; 1 of 3 rows in all", result
    )
    scaled = gain.matrix / gain.matrix.max()
    assert float(numbers[1]) == pytest.approx(float(scaled[0, 0]), rel=0.05)
    assert float(numbers[2]) == pytest.approx(float(scaled[0].max()), rel=0.05)
    assert csst.Gain(torch.eye(3)).describe_reversed("abc") == ""
    assert csst.Gain(torch.tensor([[1.0, 0.5], [0.0, 1.0]])).describe_reversed("ab") == ""


@pytest.mark.parametrize("device", ["cpu", "another"])
def test_training_that_breaks_under_such_a_gain_names_the_row_and_the_setting(device):
    """On the CPU the loss itself refuses; elsewhere it is looked at later."""
    tally = RunningMeans(("ape", "bee", "cat"))
    gain = skewed_gain()

    def take_step():
        with tally.track_batch(55, torch.arange(32), torch.arange(64), gain):
            if device == "cpu":
                csst.cost_sensitive_loss(torch.full((8, 3), float("nan")), torch.zeros(8, dtype=torch.long), gain)
            tally.add(8, labeled_loss=torch.tensor(float("nan")))
            tally.track_loss(torch.tensor(float("nan")))
        tally.read_and_restart()

    with pytest.raises(csst.InputError) as error:
        take_step()
    sentence = str(error.value)
    assert sentence.startswith("training failed at step 55: the loss ")
    assert f"pays mistakes more than hits ({gain.describe_reversed(tally.class_names)})" in sentence
    assert "--hardware.clip 1" in sentence
    assert "learning rate" not in sentence
    assert "training.lr" not in sentence
    assert "[" not in sentence, "no list of indices"


def test_a_real_run_says_so_and_the_setting_helps(tmp_path, capsys):
    """The learning rate is high, so that it breaks within a few steps."""
    words = ["train", "digits", "--objective", "tests.faults.test_reversed_gain:EvenRecall", *FAST]
    words += ["--training.lr", "1", "--training.steps", "100"]
    assert main([*words, "--out", str(tmp_path / "broken")]) == 2
    sentence = capsys.readouterr().err
    assert re.search(
        r"pays mistakes more than hits \(row of class '\d': .* --hardware\.clip 1", " ".join(sentence.split())
    )
    assert main([*words, "--out", str(tmp_path / "fine"), "--hardware.clip", "1"]) == 0
