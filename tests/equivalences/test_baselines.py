"""Cases in which a baseline must coincide with another method, step for step and to the bit."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from csst.settings import SelfTrainingSettings
from tests.helpers.trainers import SMALL, lines, trainer, weights

SETTINGS = replace(
    SMALL,
    training=replace(SMALL.training, steps=20),
    selftraining=SelfTrainingSettings(confidence=0.2, tau=-math.log(0.2), darp_every=3),  # some are selected, some not
)


def same_run(ours, theirs) -> bool:
    mine, yours = lines(ours.run()), lines(theirs.run())
    return mine == yours and all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True))


def test_flexmatch_with_all_classes_learned_is_fixmatch():
    ours, theirs = (trainer(name, "accuracy", SETTINGS) for name in ("flexmatch", "fixmatch"))
    select = ours.selftraining.select
    element = len(select.selected) // 10 * 10
    select.selected[:element] = torch.arange(element) % 10
    assert select.class_thresholds().tolist() == [1.0] * 10
    select.record = lambda *rows: None  # and they stay learned
    assert same_run(ours, theirs)
    assert not same_run(*(trainer(name, "accuracy", SETTINGS) for name in ("flexmatch", "fixmatch")))


def test_csst_flexmatch_for_accuracy_is_flexmatch():
    assert same_run(*(trainer(name, "accuracy", SETTINGS) for name in ("csst-flexmatch", "flexmatch")))


def test_csst_darp_for_accuracy_is_darp():
    assert same_run(*(trainer(name, "accuracy", SETTINGS) for name in ("csst-darp", "darp")))


def test_darp_that_only_warms_up_is_fixmatch():
    late = replace(SETTINGS, selftraining=replace(SETTINGS.selftraining, darp_warmup=1.0))
    assert same_run(trainer("darp", "accuracy", late), trainer("fixmatch", "accuracy", late))
    assert not same_run(*(trainer(name, "accuracy", SETTINGS) for name in ("darp", "fixmatch")))


def test_the_accuracy_reported_is_that_of_the_labels_used():
    """DARP's label need not be the model's own: the truth is compared with what was trained on."""
    training = trainer("darp", "accuracy", replace(SETTINGS, selftraining=SelfTrainingSettings(confidence=0.0)))
    training.selftraining.refine.steps.fill_(10**6)
    training.selftraining.refine.refined[:] = torch.nn.functional.one_hot(training.task.unlabeled_truth, 10)
    training.selftraining.refine.update = lambda *rows: None
    assert [record.pseudo_accuracy for record in training.run()][1:] == [1.0] * 4
