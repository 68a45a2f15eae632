"""Constraints out of reach of the data are said after a quarter of the training, once, with the nearest bound."""

import warnings

import pytest
import torch

from csst.data import Toy
from csst.fitting.fit import fit
from csst.learners.network import Network
from csst.models import mlp
from csst.settings import Dual, Hardware, Selection, Settings, Training
from csst.training import warnings as training_warnings
from csst.training.measurement import Measurer

#: the classes of the toy overlap, so that no rule has a precision and a recall of .97 in the middle
OUT_OF_REACH = "max accuracy s.t. recall[1] >= 0.97, precision[1] >= 0.97"
IN_REACH = "max accuracy s.t. recall[1] >= 0.5"


def train(sentence, folds=0, steps=40):
    torch.manual_seed(0)
    task = Toy().load(0)
    training = Training(steps=steps, labeled_batch=32, unlabeled_batch=32, lr=0.05, ema=0.8)
    settings = Settings(
        training=training, dual=Dual(5, schedule="linear"), selection=Selection("last"), hardware=Hardware(threads=1)
    )
    learner = Network(lambda: mlp(task.input_shape, task.classes), "csst", settings, folds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit(task, learner, sentence, fits_rule=False)
    return fitted, [str(w.message) for w in caught if "so far" in str(w.message)]


@pytest.mark.parametrize("folds", [0, 2])
def test_constraints_out_of_reach_are_said_once_and_early(folds):
    _, notes = train(OUT_OF_REACH, folds)
    assert len(notes) == 1
    assert notes[0].startswith(
        "at step 10 no decision rule on the network so far meets all constraints, estimated from"
    )
    assert "the nearest is 0." in notes[0]
    assert "instead of 0.97" in notes[0]


@pytest.mark.parametrize("sentence", [IN_REACH, "max min(recall)"])
def test_constraints_in_reach_are_not(sentence):
    assert train(sentence)[1] == []


def test_asking_changes_nothing(monkeypatch):
    warned = train(OUT_OF_REACH)[0]
    monkeypatch.setattr(training_warnings, "EARLY", 2.0)
    silent, notes = train(OUT_OF_REACH)
    assert notes == []
    for record, other in zip(warned.details.history, silent.details.history, strict=True):
        assert (record["multipliers"], record["labeled_loss"]) == (other["multipliers"], other["labeled_loss"])
    for name, value in warned.details.weights.items():
        assert torch.equal(value, silent.details.weights[name])


def start(folds=0):
    task = Toy().load(0)
    settings = Settings(training=Training(steps=40, ema=0.8), hardware=Hardware(threads=1))
    return Network(lambda: mlp(task.input_shape, task.classes), "csst", settings, folds).start(task, OUT_OF_REACH, 0)


def test_folds_are_judged_by_the_trainer_that_did_not_see_them(monkeypatch):
    runner = start(folds=2)
    questions = []
    score = Measurer.score

    def spy(self, inputs, index):
        questions.append((self, inputs))
        return score(self, inputs, index)

    monkeypatch.setattr(Measurer, "score", spy)
    training_warnings.ReachCheck(runner).describe(0)
    expected = [(fold.measurer, fold.task.validation.inputs) for fold in runner.folds]
    expected.append((runner.trainer.measurer, runner.trainer.task.unlabeled))
    assert len(questions) == 3
    assert all(a[0] is b[0] and a[1] is b[1] for a, b in zip(questions, expected, strict=True))


def test_a_training_that_is_resumed_later_does_not_ask_again():
    runner = start()
    runner.trainer.step = 20
    assert not training_warnings.ReachCheck(runner).is_pending
    runner.trainer.step = 0
    assert training_warnings.ReachCheck(runner).is_pending
