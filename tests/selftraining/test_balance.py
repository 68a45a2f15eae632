"""Unlabeled examples of another class balance: labels, gain and loss in plain loops, a whole training, every door."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.cli import main
from csst.data.task import make_task
from csst.models import Model, build
from csst.runs.folder import Run
from csst.selftraining import METHODS, Confidence, Either, Hard, KLThreshold, Method, Setup, UnlabeledBalance
from csst.settings import Dual, SelfTrainingSettings, Settings, Training
from csst.training.crossfit import CrossFit
from csst.training.trainer import Trainer
from tests.helpers.estimators import nest
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

K, TAU, CONFIDENCE = 3, 0.2, 0.7
LABELED, UNLABELED = [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]
GAINS = {
    "identity": [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]],
    "diagonal": [[0.5, 0, 0], [0, 1.2, 0], [0, 0, 4.0]],
    "steep": [[0.2, 0, 0], [0, 4.0, 0], [0, 0, 1.0]],
    "full": [[1.0, 0.2, 0.4], [0.1, 2.0, 0.3], [0.0, 0.5, 3.0]],
}


def posteriors(rows: int = 60) -> list[list[float]]:
    """Class probabilities under the labeled prior."""
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(2 * torch.randn(rows, K, generator=generator, dtype=torch.float64), 1).tolist()


def under(matrix: list[list[float]], p: list[float]) -> list[float]:
    """norm(G^T p)."""
    raw = [sum(p[i] * matrix[i][j] for i in range(K)) for j in range(K)]
    return [value / sum(raw) for value in raw]


def own_probs(p: list[float]) -> list[float]:
    """q, proportional to p pi_u / pi_L."""
    raw = [p[k] * UNLABELED[k] / LABELED[k] for k in range(K)]
    return [value / sum(raw) for value in raw]


def own_gain(matrix: list[list[float]]) -> list[list[float]]:
    """G_u = diag(pi_L / pi_u) G."""
    return [[LABELED[i] / UNLABELED[i] * matrix[i][j] for j in range(K)] for i in range(K)]


def make(name: str, settings: SelfTrainingSettings):
    made = METHODS[name].selftraining(settings, Setup(K, 60, torch.tensor(LABELED, dtype=torch.float64), 10))
    if made.balance is not None:
        made.balance.learn(torch.tensor(UNLABELED), torch.tensor(LABELED))
    return made


@pytest.mark.parametrize("gain", GAINS)
def test_labels_selection_and_loss_of_csst_balanced_in_plain_loops(gain):
    matrix, rows = GAINS[gain], posteriors()
    made = make("csst-balanced", SelfTrainingSettings(tau=TAU))
    softmaxes, strong = [under(matrix, p) for p in rows], torch.randn(60, K, dtype=torch.float64)
    logits = torch.tensor(softmaxes, dtype=torch.float64).log()
    loss, used = made(logits, strong, torch.arange(60), csst.Gain(torch.tensor(matrix, dtype=torch.float64)))
    target, _ = made.pseudo_labels(logits, torch.arange(60), csst.Gain(torch.tensor(matrix, dtype=torch.float64)))
    labels, wanted, total, moved = [], [], 0.0, 0
    by_softmax_alone, by_probabilities_alone = 0, 0
    theirs = own_gain(matrix)
    for p, softmax, s in zip(rows, softmaxes, strong.tolist(), strict=True):
        q = own_probs(p)
        label = max(range(K), key=lambda k: q[k])
        best = under(theirs, [float(k == label) for k in range(K)])
        divergence = sum(b * math.log(b / m) for b, m in zip(best, softmax, strict=True) if b > 0)
        labels.append(label)
        is_close, is_certain = divergence <= TAU, q[label] >= math.exp(-TAU)
        by_softmax_alone += is_close and not is_certain
        by_probabilities_alone += is_certain and not is_close
        wanted.append(is_close or is_certain)
        moved += label != max(range(K), key=lambda k: softmax[k])
        shifted = [s[k] - math.log(matrix[k][k]) for k in range(K)]
        normalizer = math.log(sum(math.exp(value) for value in shifted))
        mixing = [matrix[label][k] / matrix[k][k] for k in range(K)]
        total -= wanted[-1] * sum(mixing[k] * (shifted[k] - normalizer) for k in range(K))
    assert target.tolist() == labels
    assert used.bool().tolist() == wanted
    assert float(loss) == pytest.approx(total / 60, rel=1e-6)
    assert 5 < sum(wanted) < 55
    assert moved > 5, "the labels are not the largest softmaxes"
    assert by_probabilities_alone > 0
    assert by_softmax_alone > 0 or gain != "steep", "only a steep gain lifts what the probabilities doubt"


@pytest.mark.parametrize("name", ["fixmatch", "uda"])
def test_the_confidence_rule_looks_at_the_corrected_probabilities(name):
    made = make(name, SelfTrainingSettings(confidence=CONFIDENCE, temperature=0.5, unlabeled_prior="estimated"))
    logits = torch.tensor(posteriors(), dtype=torch.float64).log()
    target, used = made.pseudo_labels(logits, torch.arange(60), csst.Gain(torch.eye(K)))
    corrected = [own_probs(p) for p in posteriors()]
    assert used.bool().tolist() == [max(q) >= CONFIDENCE for q in corrected]
    assert used.bool().tolist() != [max(p) >= CONFIDENCE for p in posteriors()]
    if name == "uda":
        sharp = torch.tensor(corrected) ** 2
        torch.testing.assert_close(target.float(), (sharp / sharp.sum(1, keepdim=True)), rtol=1e-5, atol=1e-6)
    else:
        assert target.tolist() == [max(range(K), key=lambda k: q[k]) for q in corrected]


@pytest.mark.parametrize("gain", GAINS)
def test_under_their_own_gain_unlabeled_examples_ask_for_the_same_softmax(gain):
    matrix = torch.tensor(GAINS[gain], dtype=torch.float64)
    balance = UnlabeledBalance(torch.tensor(LABELED))
    balance.learn(torch.tensor(UNLABELED), torch.tensor(LABELED))
    theirs = balance.gain(csst.Gain(matrix))
    expected = torch.tensor(LABELED)[:, None] * matrix
    torch.testing.assert_close(torch.tensor(UNLABELED)[:, None] * theirs.matrix, expected, rtol=1e-6, atol=1e-8)
    for p in posteriors(10):
        s = torch.tensor([under(GAINS[gain], p)], dtype=torch.float64).log().requires_grad_()
        csst.cost_sensitive_loss(s, torch.tensor([own_probs(p)], dtype=torch.float64), theirs).sum().backward()
        torch.testing.assert_close(s.grad, torch.zeros_like(s), rtol=0, atol=1e-6)


def test_at_the_labels_own_balance_fixmatch_is_unchanged():
    logits, strong = torch.tensor(posteriors()).log(), torch.randn(60, K)
    setup, gain = Setup(K, 60, torch.tensor(LABELED, dtype=torch.float64), 10), csst.Gain(torch.eye(K))
    plain, corrected = (
        METHODS["fixmatch"].selftraining(SelfTrainingSettings(confidence=CONFIDENCE, unlabeled_prior=prior), setup)
        for prior in ("labeled", "estimated")
    )
    loss, used = plain(logits, strong, torch.arange(60), gain)
    other, others = corrected(logits, strong, torch.arange(60), gain)
    assert torch.equal(used, others)
    torch.testing.assert_close(loss, other)


def test_the_gain_follows_what_is_learned_and_what_is_loaded():
    gain, balance = csst.Gain(torch.eye(K)), UnlabeledBalance(torch.tensor(LABELED))
    first = balance.gain(gain)
    assert balance.gain(gain) is first
    torch.testing.assert_close(first.matrix, torch.eye(K))
    other = UnlabeledBalance(torch.tensor(LABELED))
    other.learn(torch.tensor(UNLABELED), torch.tensor(LABELED))
    balance.load_state_dict(other.state_dict())
    torch.testing.assert_close(balance.gain(gain).entries, torch.tensor(LABELED) / torch.tensor(UNLABELED))
    assert balance.gain(csst.Gain(2 * torch.eye(K))).entries[0] == pytest.approx(2 * LABELED[0] / UNLABELED[0])


def reversed_task(seed: int = 0):
    """Three Gaussians in a plane; unlabeled examples have the opposite balance of the labeled ones."""
    rng, means = np.random.default_rng(seed), np.array([[0, 0], [2.5, 0], [0, 2.5]])

    def draw(counts):
        y = np.repeat(np.arange(3), counts)
        return torch.from_numpy(means[y] + rng.normal(size=(len(y), 2))).float(), torch.from_numpy(y)

    unlabeled, truth = draw([30, 90, 280])
    return make_task("reversed", draw([56, 18, 6]), unlabeled, draw([20] * 3), draw([200] * 3), unlabeled_truth=truth)


SETTINGS = Settings(
    training=Training(steps=120, labeled_batch=16, unlabeled_batch=32, lr=0.05, ema=0.9),
    dual=Dual(steps_per_update=20, step_size=0.25),
)
TRUE_BALANCE = torch.tensor([30, 90, 280]) / 400


def far(prior) -> float:
    return float((torch.as_tensor(prior) - TRUE_BALANCE).abs().sum() / 2)


@pytest.mark.parametrize("rates", ["validation", "pooled"])
def test_a_training_finds_the_balance_and_keeps_it(rates):
    task = reversed_task()
    settings = csst.Settings(training=SETTINGS.training, dual=Dual(steps_per_update=20, step_size=0.25, rates=rates))
    trainer = Trainer(task, build(Model(hidden=8, depth=1), (2,), 3, 0), "min-recall", "csst-balanced", settings, 0)
    records = list(trainer.run())
    assert far(task.train_prior) > 0.6
    assert far(records[-1].unlabeled_prior) < 0.2, "as well as 60 validation labels can tell"
    assert records[-1].unlabeled_prior == trainer.selftraining.state_dict()["balance.prior"].tolist()
    plain = Trainer(task, build(Model(hidden=8, depth=1), (2,), 3, 0), "min-recall", "csst", settings, 0)
    assert plain.update_multipliers().unlabeled_prior is None


def test_resuming_between_two_estimates_is_bit_identical():
    def start():
        model = build(Model(hidden=8, depth=1), (2,), 3, 0)
        return Trainer(reversed_task(), model, "min-recall", "csst-balanced", SETTINGS, 0)

    whole, cut, resumed = start(), start(), start()
    for trainer in (whole, cut):
        trainer.update_multipliers()
        for _ in range(60):
            trainer.train_step()
        trainer.update_multipliers()
        for _ in range(10):
            trainer.train_step()
    assert far(cut.teacher.balance.prior) < 0.4 < far(cut.task.train_prior), "there is something to lose"
    resumed.load_state_dict(cut.state_dict())
    for trainer in (whole, resumed):
        for _ in range(10):
            trainer.train_step()
    assert torch.equal(whole.teacher.balance.prior, resumed.teacher.balance.prior)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.update_multipliers().unlabeled_prior == resumed.update_multipliers().unlabeled_prior


def test_the_multipliers_follow_counts_unless_told_otherwise():
    trainer = Trainer(reversed_task(), build(Model(hidden=8, depth=1), (2,), 3, 0), "min-recall", "csst-balanced")
    measurement = trainer.measurer.measure(trainer.watched, trainer.balance_rows)
    confusion = trainer.estimate_confusion(measurement)
    assert torch.equal(confusion.rates, csst.Confusion.from_counts(measurement.counts).rates)


def test_csst_balanced_is_csst_with_the_setting_and_labels_that_are_certain_either_way():
    task = reversed_task()
    corrected = replace(SETTINGS, selftraining=SelfTrainingSettings(unlabeled_prior="estimated"))
    own_row = Method(
        "own",
        "objective",
        lambda settings: Hard(),
        lambda settings: Either(KLThreshold(settings.tau), Confidence(math.exp(-settings.tau), undoes_gain=True)),
    )
    runs = []
    for method, settings in (("csst-balanced", SETTINGS), (own_row, corrected), ("csst-fixmatch", corrected)):
        trainer = Trainer(task, build(Model(hidden=8, depth=1), (2,), 3, 0), "min-recall", method, settings, 0)
        runs.append([[r.unlabeled_prior, r.multipliers, r.used, r.unlabeled_loss] for r in trainer.run()])
    assert runs[0] == runs[1]
    assert runs[0][2][2] > runs[2][2][2] + 0.1, "early, few labels are certain by the softmax alone"


def test_folds_share_one_estimate():
    def model():
        return build(Model(hidden=8, depth=1), (2,), 3, 0)

    game = CrossFit(reversed_task(), model, "min-recall", "csst-balanced", SETTINGS, 0, 2)
    last = list(game.run())[-1]
    assert far(last.unlabeled_prior) < 0.2
    for trainer in game.trainers:
        assert trainer.teacher.balance.prior.tolist() == last.unlabeled_prior
        torch.testing.assert_close(trainer.teacher.balance.labeled, trainer.task.train_prior.float())


def test_the_method_is_behind_every_door(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["--training.steps", "20", "--dual.steps_per_update", "10"]
    assert main(["train", "toy", "--method", "csst-balanced", *few, "--out", "run"]) == 0
    journal = list(Run("run").journal())
    assert len(journal[-1]["unlabeled_prior"]) == 3
    task = reversed_task()
    x, y = task.labeled.inputs.numpy(), task.labeled.labels.numpy()
    small = nest(steps=40, hidden=8, depth=1, labeled_batch=16, unlabeled_batch=16)
    model = csst.CSSTClassifier(method="csst-balanced", learner="network", settings=small)
    model.fit(x, y, X_unlabeled=task.unlabeled.numpy())
    assert model.fit_.learner_name == "network, csst-balanced"
    assert sum(model.history_[-1]["unlabeled_prior"]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("csst")])
@pytest.mark.parametrize("gain", GAINS)
def test_an_untilted_teacher_labels_by_the_class_probabilities_behind_the_softmax(name, gain):
    """At the labels' own balance: the gain shapes the loss and the selection, not the label."""
    matrix, rows = GAINS[gain], posteriors()
    setup = Setup(K, 60, torch.tensor(LABELED, dtype=torch.float64), 10)
    settings = SelfTrainingSettings(tau=TAU, teacher="untilted")
    untilted, tilted = (
        METHODS[name].selftraining(element, setup) for element in (settings, SelfTrainingSettings(tau=TAU))
    )
    logits = torch.tensor([under(matrix, p) for p in rows], dtype=torch.float64).log()
    asked = (logits, torch.arange(60), csst.Gain(torch.tensor(matrix, dtype=torch.float64)))
    target = untilted.pseudo_labels(*asked)[0]
    labels = target.argmax(1) if target.is_floating_point() else target
    assert labels.tolist() == [max(range(K), key=lambda k, p=p: p[k]) for p in rows]
    assert (untilted.estimated_balance is None) == (name != "csst-balanced")
    other = tilted.pseudo_labels(*asked)[0]
    moved = (other.argmax(1) if other.is_floating_point() else other) != labels
    assert bool(moved.any()) == (gain != "identity" and name != "csst-balanced")


def test_an_untilted_teacher_estimates_no_balance():
    settings = Settings(
        training=Training(20, 16, 32), selftraining=SelfTrainingSettings(teacher="untilted"), dual=Dual(10)
    )
    training = Trainer(reversed_task(), build(Model(hidden=8, depth=1), (2,), 3, 0), "min-recall", "csst", settings)
    assert training.balance_rows is None
    assert [record.unlabeled_prior for record in training.run()] == [None] * 3
