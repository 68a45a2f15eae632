"""What to be wary of: notes_ has what summary() prints, and Python warns where the command line does."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from csst import CSSTClassifier
from csst.cli import main
from csst.estimation.expectation import describe_minimum
from csst.fitting.metrics import warn_about_balance
from csst.rules import deployment
from tests.helpers.estimators import quick
from tests.learners.samples import gaussians


def other_balance():
    """Unlabeled rows of another class balance than the labels': X, y with -1."""
    X, y = gaussians(400, np.array([0.1, 0.1, 0.8]), apart=2.5)
    labels = np.full(400, -1)
    for k in range(3):
        labels[np.flatnonzero(y == k)[:12]] = k
    return X, labels


def note_balance(clf):
    """The sentence about the class balance, or None: which one is assumed, or that unlabeled rows have another."""
    details = clf.fit_.full_details
    if details.estimate.prior_covariance is None:
        return warn_about_balance(details.estimate, details.train_prior)[1]
    rule = details.adjusted
    labeled = rule.evidence.fractions
    return deployment.note_balance(rule.objective, rule.estimate, labeled, clf.fit_.class_names) or None


@pytest.mark.parametrize("network", [False, True])
def test_the_notes_are_what_the_summary_prints(network):
    X, y = other_balance()
    clf = quick(steps=40, validation=None) if network else CSSTClassifier("max mean(f1)", learner="linear")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, y)
    printed = [line.removeprefix("note: ") for line in clf.summary().splitlines() if line.startswith("note: ")]
    assert clf.notes_ == printed
    assert note_balance(clf) in clf.notes_
    assert note_balance(clf) in [str(warning.message) for warning in caught]
    assert describe_minimum(clf.intervals_, clf.fit_.class_names) in clf.notes_
    assert len(set(clf.notes_)) == len(clf.notes_)


def test_one_unlabeled_row_says_nothing_about_the_balance():
    """Nor does a fold without a label warn of a division by 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        clf = CSSTClassifier(learner="linear").fit(np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]]), ["a", "b", None])
    assert note_balance(clf) is None
    assert not any("balanced" in note for note in clf.notes_)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_python_has_the_notes_of_the_command_line(tmp_path):
    X, y = other_balance()
    np.savez(tmp_path / "mine.npz", x=X, y=y)
    arguments = ["--data.path", str(tmp_path / "mine.npz"), "--learner", "linear", "--out", str(tmp_path / "run")]
    arguments += ["--objective", "max mean(f1)"]
    assert main(["train", "array", *arguments]) == 0
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())["warnings"]
    clf = CSSTClassifier("max mean(f1)", learner="linear").fit(X, y)
    assert "depends on how frequent classes are" in note_balance(clf)
    assert note_balance(clf) in told
    assert sorted(clf.notes_) == sorted(told)


def test_the_same_balance_is_no_reason_to_warn():
    X, y = gaussians(300, np.ones(3) / 3, apart=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = CSSTClassifier(learner="linear").fit(X, np.where(np.arange(300) % 2, y, -1))
    assert note_balance(clf) is None


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_card_of_an_export_has_each_note_once(tmp_path):
    X, y = other_balance()
    clf = CSSTClassifier(learner="linear").fit(X, y)
    _, card = clf.export(tmp_path / "model.safetensors", to="safetensors")
    text = card.read_text()
    for note in clf.notes_:
        assert text.count(note) == 1


def test_no_note_where_scores_hardly_tell_two_classes_apart():
    """EM then takes one class for the other; rows of the same balance must not be called differently balanced."""
    sizes = np.array([320, 36, 44])
    labels = np.repeat([0, 1, 2], sizes)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        shares = sizes / sizes.sum()
        unlabeled = rng.choice(3, 800, p=shares)
        centers = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 0.25]])
        X, X_unlabeled = (centers[each] + rng.normal(size=(len(each), 2)) for each in (labels, unlabeled))
        noise, noise_unlabeled = (rng.normal(size=(len(rows), 60)) for rows in (X, X_unlabeled))
        clf = CSSTClassifier(learner="linear", random_state=seed)
        clf.fit(np.hstack([X, noise]), labels, X_unlabeled=np.hstack([X_unlabeled, noise_unlabeled]))
        assert not any("differently balanced" in note for note in clf.notes_)
