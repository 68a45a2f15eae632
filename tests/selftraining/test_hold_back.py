"""Pseudo-labels are held back where they are wrong on labels that were not learned from."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.data.task import make_task
from csst.models import mlp
from csst.selftraining import METHODS, Setup
from csst.selftraining.hold_back import (
    ENOUGH,
    MEMORY,
    MOST_SHARE,
    PRIOR_LABELS,
    PROMISE,
    WORTHLESS,
    HoldBack,
    estimate_accuracy,
)
from csst.settings import Dual, SelfTrainingSettings, Settings, Training
from csst.training.crossfit import CrossFit
from csst.training.trainer import Trainer
from csst.training.warnings import IN_A_ROW, CollapseDetector
from tests.helpers.estimators import blobs
from tests.helpers.trainers import lines, weights


def test_accuracy_is_counted_on_used_rows_with_a_prior_at_what_is_promised():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    truth = torch.tensor([0, 0, 1, 1, 2, 2])
    used = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.5, 0.0])
    expected = [(right + PRIOR_LABELS * PROMISE) / (n + PRIOR_LABELS) for right, n in ((2, 3), (0.5, 1), (0, 0))]
    assert estimate_accuracy(labels, used, truth, 3).tolist() == pytest.approx(expected)


def make(prior):
    """What holds back the pseudo-labels of unlabeled examples with the labels' class fractions."""
    held = HoldBack(len(prior))
    held.bind(Setup(len(prior), 100, torch.tensor(prior), 10))
    return held


def test_a_class_cannot_teach_many_times_its_examples():
    """Every row is called class 1, which a tenth of the examples have: its weight falls as its share grows."""
    held = make([0.9, 0.1])
    labels = torch.ones(50, dtype=torch.int64)
    for step in range(1, 200):
        held(labels, torch.ones(50))
        held.commit()
        share = 1 - (1 - 1 / MEMORY) ** step
        assert held.share.tolist() == pytest.approx([0.0, share], rel=1e-4)
        assert held.weights.tolist() == pytest.approx([1.0, min(1.0, MOST_SHARE * 0.1 / share)], rel=1e-4)
    assert held(labels, torch.ones(50))[0] < 0.4
    for _ in range(400):  # once it teaches its own examples only, it counts again
        held(torch.arange(50) % 10 // 9, torch.ones(50))
        held.commit()
    assert held.weights.tolist() == [1.0, 1.0]


def test_pseudo_labels_that_were_not_selected_are_not_counted():
    held = make([0.5, 0.5])
    held(torch.ones(50, dtype=torch.int64), torch.zeros(50))
    held.commit()
    assert held.share.tolist() == [0.0, 0.0]


def test_weights_fall_from_one_at_enough_to_none_at_worthless():
    held = make([0.25] * 4)
    assert held.weights.tolist() == [1.0] * 4
    held.learn(torch.tensor([1.0, ENOUGH, (ENOUGH + WORTHLESS) / 2, 0.1]))
    assert held.weights.tolist() == pytest.approx([1.0, 1.0, 0.5, 0.0])
    used = held(torch.tensor([0, 1, 2, 3, 2]), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5]))
    assert used.tolist() == pytest.approx([1.0, 0.0, 0.5, 0.0, 0.25])


def test_a_teacher_is_judged_by_the_labels_and_the_selection_it_uses():
    """Four rows of two classes: two are confident, one of them wrongly; two are not used, however wrong."""
    made = METHODS["csst-balanced"].selftraining(SelfTrainingSettings(), Setup(2, 4, torch.tensor([0.5, 0.5]), 10))
    probs = torch.tensor([[0.99, 0.01], [0.99, 0.01], [0.6, 0.4], [0.3, 0.7]])
    accuracy = made.measure_accuracy(probs.log(), torch.tensor([0, 1, 1, 0]), csst.Gain(torch.ones(2)))
    assert accuracy.tolist() == pytest.approx([(1 + 2 * PROMISE) / 4, PROMISE])
    made.hold_back.learn(accuracy)
    expected = ((1 + 2 * PROMISE) / 4 - WORTHLESS) / (ENOUGH - WORTHLESS)
    used = made.pseudo_labels(probs.log(), torch.arange(4), csst.Gain(torch.ones(2)))[1]
    assert used.tolist() == pytest.approx([expected, expected, 0.0, 0.0])


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_of_the_paper_hold_nothing_back(name):
    setup = Setup(3, 20, torch.full((3,), 1 / 3), 10)
    made = METHODS[name].selftraining(SelfTrainingSettings(), setup)
    assert (made is not None and made.hold_back is not None) == (name == "csst-balanced")
    made = METHODS[name].selftraining(SelfTrainingSettings(hold_back="off"), setup)
    assert made is None or made.hold_back is None


def test_parts_that_remember_single_examples_are_not_asked_about_judged_rows():
    setup = Setup(3, 20, torch.full((3,), 1 / 3), 10)
    estimated = SelfTrainingSettings(unlabeled_prior="estimated")
    assert METHODS["csst-flexmatch"].selftraining(estimated, setup).hold_back is None
    assert METHODS["fixmatch"].selftraining(estimated, setup).hold_back is not None


def begin(hold_back, shift=0):
    """A trainer on blobs that are easy to tell apart; validation rows get the label of a class that is `shift` on."""
    X, y = blobs(240)
    task = make_task("blobs", (X[:60], y[:60]), X[120:], (X[60:120], (y[60:120] + shift) % 3))
    torch.manual_seed(0)
    settings = Settings(
        training=Training(60, 16, 32, lr=0.1, ema=0.8),
        selftraining=SelfTrainingSettings(hold_back=hold_back),
        dual=Dual(10, update="fixed"),
    )
    return Trainer(task, mlp((6,), 3, hidden=8, depth=1), "min-recall", "csst-balanced", settings)


def train(hold_back, shift=0):
    made = begin(hold_back, shift)
    return made, list(made.run())


def test_a_teacher_that_is_wrong_is_held_back_and_the_record_says_so():
    made, records = train("auto", shift=1)
    trusting, other_records = train("off", shift=1)
    assert max(records[-1].teacher_accuracy) < WORTHLESS
    assert records[-1].used == 0
    assert other_records[-1].used > 0.5
    assert other_records[-1].teacher_accuracy is None
    assert not torch.equal(weights(made)[0], weights(trusting)[0])


def test_a_teacher_that_is_right_is_followed_to_the_bit():
    made, records = train("auto")
    trusting, other_records = train("off")
    assert records[-1].used > 0.5
    assert all(record.teacher_weights == [1.0] * 3 for record in records)
    assert [record.used for record in records] == [record.used for record in other_records]
    for mine, other in zip(weights(made), weights(trusting), strict=True):
        assert torch.equal(mine, other)


#: loose enough that pseudo-labels are used within fifty steps
LOOSE = SelfTrainingSettings(tau=0.5)


def test_a_run_with_held_back_pseudo_labels_resumes_to_the_bit():
    whole, first, second = (begin("auto", shift=1) for _ in range(3))
    expected = lines(whole.run())
    records = []
    for record in first.run():
        records.append(record)
        if record.step == 30:
            break
    first.train_step()  # between two updates
    second.load_state_dict(first.state_dict())
    assert lines([*records, *second.run()]) == expected
    assert expected[-1]["teacher_accuracy"] != expected[0]["teacher_accuracy"]
    assert torch.equal(whole.selftraining.hold_back.share, second.selftraining.hold_back.share)
    assert whole.selftraining.hold_back.share.max() > 0


def test_a_run_from_before_goes_on_as_if_all_pseudo_labels_were_right():
    held = METHODS["csst-balanced"].selftraining(SelfTrainingSettings(), Setup(2, 4, torch.tensor([0.5, 0.5]), 10))
    state = {name: value for name, value in held.state_dict().items() if "hold_back" not in name}
    held.load_state_dict(state)
    assert held.hold_back.weights.tolist() == [1.0, 1.0]


def test_folds_share_what_their_out_of_fold_rows_say_of_the_teacher():
    def model():
        torch.manual_seed(0)
        return mlp((6,), 3, hidden=8, depth=1)

    X, y = blobs(150)
    X = X + 2 * np.random.default_rng(3).normal(size=X.shape).astype(np.float32)
    task = make_task("blobs", (X[:90], y[:90]), X[90:], (X[:3], y[:3]))
    settings = Settings(training=Training(60, ema=0.8, lr=0.1), selftraining=LOOSE, dual=Dual(10))
    run = CrossFit(task, model, "min-recall", "csst-balanced", settings, seed=0, folds=3)
    records = list(run.run())
    for made in run.trainers:
        assert made.teacher.accuracy == records[-1].teacher_accuracy
    assert records[-1].teacher_accuracy != records[0].teacher_accuracy


def test_unlabeled_data_that_hurts_is_said_once():
    detector = CollapseDetector((), [], 100, ("cat", "dog"))
    record = {"step": 1, "used": 0.5, "score": 0.5, "multipliers": []}
    record |= {"teacher_accuracy": [0.95, 0.6], "teacher_weights": [1.0, 0.25]}
    notes = [detector.update(record) for _ in range(IN_A_ROW + 2)]
    assert [len(element) for element in notes] == [0] * (IN_A_ROW - 1) + [1, 0, 0]
    assert "class 'dog' count 25%" in notes[IN_A_ROW - 1][0]
    assert "about 60% are right" in notes[IN_A_ROW - 1][0]
    detector = CollapseDetector((), [], 100, ("cat", "dog"))
    assert not any(detector.update({**record, "teacher_weights": [1.0, 0.9]}) for _ in range(IN_A_ROW + 2))
