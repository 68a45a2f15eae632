"""Cases in which two methods must coincide, step for step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from csst.selftraining import Hard, KLThreshold, Method
from csst.settings import SelfTrainingSettings
from tests.helpers.trainers import SMALL, lines, trainer, weights


@pytest.mark.parametrize("soft", [False, True])
def test_csst_for_accuracy_is_fixmatch(soft):
    """With G = I, KL ≤ -log 0.2 is confidence ≥ 0.2 for hard labels, and the losses are cross-entropies."""
    selection = {"tau": 100.0, "confidence": 0} if soft else {"tau": -math.log(0.2), "confidence": 0.2}
    settings = replace(SMALL, selftraining=SelfTrainingSettings(**selection))
    pair = ("csst-uda", "uda") if soft else ("csst-fixmatch", "fixmatch")
    ours, theirs = (trainer(name, "accuracy", settings) for name in pair)
    records = lines(ours.run())
    assert records == lines(theirs.run())
    assert all(torch.equal(a, b) for a, b in zip(weights(ours), weights(theirs), strict=True))
    assert soft or any(0 < record["used"] < 1 for record in records[1:]), "some labels are used, and some are not"


def test_csst_with_a_diagonal_gain_is_csst_without_kl():
    settings = replace(SMALL, selftraining=SelfTrainingSettings(tau=-math.log(0.15), confidence=0.15))
    first, two = (trainer(name, "min-recall", settings) for name in ("csst-fixmatch", "csst-no-kl"))
    records = lines(first.run())
    assert records == lines(two.run())
    assert any(0 < record["used"] < 1 for record in records[1:]), "some labels are used, and some are not"


def test_with_weight_zero_csst_is_csl():
    """Labeled and unlabeled draws come from separate streams, so pseudo-labels without weight change nothing."""

    def play(name, weight):
        trusting = SelfTrainingSettings(unlabeled_weight=weight, tau=1e6)
        training = trainer(name, "mean-recall-coverage", replace(SMALL, selftraining=trusting))
        return training, list(training.run())

    (ours, mine), (csl, theirs), (heeding, _) = play("csst", 0.0), play("csl", 0.0), play("csst", 1.0)
    assert all(record.used == 1 and record.unlabeled_loss > 0 for record in mine[1:])  # there was something to ignore
    for a, b in zip(weights(ours), weights(csl), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.multipliers.value, csl.multipliers.value)
    assert [r.recall for r in mine] == [r.recall for r in theirs]
    assert any((a - b).abs().max() > 0.01 for a, b in zip(weights(heeding), weights(csl), strict=True))


def test_selecting_nothing_is_csl():
    nothing = Method("none", "objective", lambda s: Hard(), lambda s: lambda t, p, g, i: torch.zeros(len(p)))
    ours, csl = trainer(nothing), trainer("csl")
    list(ours.run()), list(csl.run())
    for a, b in zip(weights(ours), weights(csl), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_csl_for_accuracy_is_erm_and_for_mean_recall_is_la():
    for goal, baseline in (("accuracy", "erm"), ("mean-recall", "la")):
        first, two = trainer("csl", goal), trainer(baseline, goal)
        assert lines(first.run()) == lines(two.run())


def test_a_huge_tau_uses_everything_and_zero_nothing():
    for tau, used in ((1e6, 1.0), (0.0, 0.0)):
        row = Method("kl", "objective", lambda s: Hard(), lambda s: KLThreshold(s.tau))
        settings = replace(SMALL, selftraining=SelfTrainingSettings(tau=tau))
        assert list(trainer(row, settings=settings).run())[-1].used == used
