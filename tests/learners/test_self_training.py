"""Rounds of self-training: who labels whom, which labels are trusted, and when a round is kept."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from csst import CSSTClassifier
from csst.estimation.calibration import Calibration
from csst.estimation.shift import estimate_prior
from csst.learners.linear import Linear
from csst.learners.portfolio import LabeledRows, _Scored, fit_portfolio, keep_better
from csst.learners.self_training import SelfTrained, label_rows
from tests.learners.samples import Spy, gaussians, numbered, soften, table_of

LABELS = np.array([0, 0, 0, 1, 1, 2])


def sure(model, ids):
    """Certain of the class that the number ends in, but for every fourth row."""
    return np.where((ids % 4 == 0)[:, None], 0.0, 9.0 * np.eye(3)[ids % 3])


def test_a_half_is_labeled_by_who_has_not_learned_from_it():
    spy = Spy(sure)
    SelfTrained(spy, numbered(40, start=100), 2, 0.1).fit(numbered(6), LABELS, seed=3)
    first, *students = spy.fits
    assert first.learned.tolist() == list(range(6))
    assert len(students) == 4
    halves = [set(first.asked[0]), set(first.asked[1])]
    assert halves[0] | halves[1] == set(range(100, 140))
    assert not halves[0] & halves[1]
    for at, student in enumerate(students):
        learned = set(student.learned.tolist()) - set(range(6))
        assert learned <= halves[at % 2]
        assert learned == {i for i in halves[at % 2] if i % 4}, "only what the teacher is sure of is used"
        assert all(label == i % 3 for i, label in zip(student.learned[6:], student.labels[6:], strict=True))
    for at in (0, 1):  # in the second round, each half is asked of the other's student
        assert set(students[at].asked[0]) == halves[1 - at]


def test_pseudo_labels_are_under_the_unlabeled_rows_own_balance():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(60, 3)) * 2 + np.array([0.0, 1.0, 0.0])
    start = np.array([0.6, 0.3, 0.1])
    balance = estimate_prior(scores, start)
    guess, trusted = label_rows(scores, start, 0.2)
    for i in range(60):
        logs = soften([[scores[i, k] + np.log(balance[k]) for k in range(3)]])[0]
        assert guess[i] == int(np.argmax(logs))
        assert trusted[i] == (-max(logs) <= 0.2)
    assert 0 < trusted.sum() < 60


def test_students_are_averaged_under_the_labels_balance():
    X, y = gaussians(160)
    learner = SelfTrained(Linear(table_of(X)), X[40:], 1, 0.3)
    model = learner.fit(X[:40], y[:40])
    prior = np.bincount(y[:40]) / 40
    np.testing.assert_allclose(model.prior, prior)
    logs = [student.model.log_probs(X) - np.log(student.prior.numpy()) for student in model.students]
    wanted = soften((logs[0] + logs[1]) / 2 + np.log(prior))
    np.testing.assert_allclose(model.log_probs(X), wanted, atol=1e-9)
    assert any(np.abs(student.prior.numpy() - prior).max() > 0.01 for student in model.students)
    assert learner.name == "linear, self-trained"
    sparse = csr_matrix(X)
    assert np.isfinite(
        SelfTrained(Linear(table_of(X)), sparse[40:], 1, 0.3).fit(sparse[:40], y[:40]).log_probs(sparse)
    ).all()


def scored(name, losses):
    return _Scored(Spy(None, name), np.zeros((len(losses), 2)), Calibration.identity(2), np.asarray(losses))


def test_a_round_is_kept_only_if_it_helps_by_more_than_its_error():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=100)
    noise = (noise - noise.mean()) / noise.std(ddof=1)  # its mean has a standard error of 0.1
    plain = scored("plain", np.ones(100))
    assert keep_better(plain, scored("taught", 1 - 0.11 + noise)).learner.name == "taught"
    assert keep_better(plain, scored("taught", 1 - 0.09 + noise)).learner.name == "plain"
    assert keep_better(plain, scored("taught", np.ones(100))).learner.name == "plain"


def test_within_a_fold_only_its_own_models_teach():
    labels = np.tile([0, 1, 2], 12)
    spy = Spy(lambda model, ids: 3.0 * np.eye(3)[ids % 3])
    fit_portfolio([[spy]], LabeledRows(numbered(36), labels), numbered(30, start=60), rounds=1, tau=0.5)
    held_of = [set(range(36)) - set(model.learned[model.learned < 36].tolist()) for model in spy.fits]
    for model, held in zip(spy.fits, held_of, strict=True):
        asked = {i for rows in model.asked for i in rows if i < 36}
        assert asked <= held, "a labeled row was scored by a model that learned from it"


@pytest.mark.parametrize("rounds", [0, 1])
def test_rounds_are_a_setting(rounds):
    X, y = gaussians(240, apart=2.5)
    labels = np.where(np.arange(240) < 40, y, -1)
    clf = CSSTClassifier(
        learner="linear", settings={"rounds": rounds, "selftraining": {"tau": 0.3}} if rounds else None
    )
    clf.fit(X, labels)
    assert (clf.predict(X) == y).mean() > 0.7
