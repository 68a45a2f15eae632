"""What a run stores of its decision rule: a deterministic one, or a lottery where that is allowed and better."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from csst.cli import main
from csst.errors import InputError
from csst.language import objective
from csst.posthoc import DecisionRule, Randomised, rule_from_dict
from csst.recipes import changed, recipe
from csst.recipes.restore import Classifier
from csst.recipes.results import posthoc

PRIOR = torch.tensor([0.6, 0.4], dtype=torch.float64)
NAMED = "--finish randomised may use a lottery between rules."


def finished(randomised, signal=0.0):
    """20 validation and 10 test examples that look alike, but for the signal."""
    outputs = {}
    for part, size in (("validation", 20), ("test", 10)):
        labels = (torch.arange(size) >= 0.6 * size).long()
        outputs[part] = (torch.tensor([0.4, 0.0]) + signal * torch.nn.functional.one_hot(labels, 2), labels)
    return json.loads(json.dumps(posthoc(outputs, objective("max min(recall)"), PRIOR, 0, randomised=randomised)))


def test_a_lottery_only_where_it_is_allowed_and_the_sentence_says_which():
    plain, lottery = finished(False), finished(True)
    assert isinstance(rule_from_dict(plain["rule"]), DecisionRule)
    assert plain["sentence"].endswith(NAMED)
    assert plain["validation"]["min_recall"] == 0
    rule = rule_from_dict(lottery["rule"])
    assert isinstance(rule, Randomised)
    assert f"a lottery between {len(rule.rules)} rules" in lottery["sentence"]
    assert NAMED not in lottery["sentence"]
    assert lottery["test"]["min_recall"] == pytest.approx(0.5, abs=0.01)


def test_nothing_is_said_of_a_lottery_that_is_no_better():
    for randomised in (False, True):
        found = finished(randomised, signal=5.0)
        assert isinstance(rule_from_dict(found["rule"]), DecisionRule)
        assert NAMED not in found["sentence"]
        assert "a lottery" not in found["sentence"]


def test_the_recipe_knows_the_ways_to_finish():
    for one in ("none", "posthoc", "randomised"):
        assert changed(recipe("toy"), {"finish": one}).finish == one
    with pytest.raises(InputError, match="finish must be none, posthoc or randomised; found 'lottery'"):
        changed(recipe("toy"), {"finish": "lottery"})


def test_a_restored_lottery_draws_the_same_each_time():
    rule = rule_from_dict(finished(True)["rule"])
    made = Classifier(recipe("toy"), torch.nn.Identity(), ("a", "b"), "array", (2,), rule=rule)
    probs = torch.softmax(torch.tensor([0.4, 0.0]).double(), 0).expand(50, 2)
    first, second = made.predict(probs), made.predict(probs)
    assert torch.equal(first, second)
    assert set(first.tolist()) == {0, 1}


def test_a_run_that_decides_by_lot_predicts_the_same_twice(tmp_path):
    labels = np.tile([0, 0, 0, 1, 1], 60)
    labels[:100] = -1
    np.savez(tmp_path / "data.npz", x=np.ones((300, 2), dtype=np.float32), y=labels)
    run, words = tmp_path / "run", ["--training.steps", "5", "--method", "erm", "--finish", "randomised"]
    assert main(["train", "array", "--data.path", str(tmp_path / "data.npz"), *words, "--out", str(run)]) == 0
    stored = json.loads((run / "metrics.json").read_text())["posthoc"]
    assert stored["rule"]["kind"] == "randomised"
    assert "a lottery between" in stored["sentence"]
    for name in ("one", "two"):
        assert main(["predict", str(run), str(tmp_path / "data.npz"), "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert {line.split(",")[1] for line in (tmp_path / "one").read_text().splitlines()[1:]} == {"0", "1"}
