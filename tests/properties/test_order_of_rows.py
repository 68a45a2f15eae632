"""The order in which rows come changes nothing: not a fold, a tree, a landmark, a batch or a bit of the result."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.tree import DecisionTreeClassifier

from csst import CSSTClassifier
from csst.cli import main
from tests.helpers.estimators import quick
from tests.learners.samples import gaussians

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

X, Y = gaussians(150, np.array([0.5, 0.3, 0.2]), features=5, apart=1.5)
Y = np.where(np.arange(150) % 2, Y, -1)
ORDER = np.random.default_rng(1).permutation(150)
MORE = gaussians(60, features=5, apart=1.5, seed=2)[0]


#: all learners at once, those that are not among them, a classifier of the user's own, and every way to judge
CLASSIFIERS = {
    "auto": CSSTClassifier(),
    "lda": CSSTClassifier(learner="lda"),
    "network": quick(validation=0.3),
    "cross-fitted network": quick(steps=20, validation=None),
    "a tree": CSSTClassifier(learner=DecisionTreeClassifier()),
    "held out": CSSTClassifier(learner="linear", validation=0.3),
    "self-trained": CSSTClassifier(learner="linear", settings={"rounds": 1}),
    "validation set": CSSTClassifier(learner="linear", validation=(MORE, np.arange(60) % 3)),
}


@pytest.mark.parametrize("name", list(CLASSIFIERS))
def test_the_same_model_from_rows_in_another_order(name):
    clf = CLASSIFIERS[name]
    probs = clf.fit(X, Y).predict_proba(MORE)
    expected = clf.fit_.expected.confusion.rates.numpy()
    clf.fit(X[ORDER], Y[ORDER])
    np.testing.assert_array_equal(clf.predict_proba(MORE), probs)
    np.testing.assert_array_equal(clf.fit_.expected.confusion.rates.numpy(), expected)


def test_the_seed_still_matters():
    first, second = (
        CSSTClassifier(learner="linear", random_state=seed).fit(X, Y).predict_proba(MORE) for seed in (0, 1)
    )
    assert (first != second).any()


def test_sparse_rows_and_rows_without_a_label_in_another_order():
    sparse = csr_matrix(np.where(X > 0.5, X, 0))
    clf = CSSTClassifier(learner="kernel")
    probs = clf.fit(sparse, Y, X_unlabeled=csr_matrix(MORE)).predict_proba(MORE)
    turned = csr_matrix(MORE[::-1])
    np.testing.assert_array_equal(clf.fit(sparse[ORDER], Y[ORDER], X_unlabeled=turned).predict_proba(MORE), probs)


@pytest.mark.parametrize("learner", ["linear", "network"])
def test_the_command_line(learner, tmp_path):
    metrics = []
    for number, order in enumerate((np.arange(150), ORDER)):
        np.savez(tmp_path / f"{number}.npz", x=X[order], y=Y[order])
        run = tmp_path / f"run{number}"
        words = ["--data.path", str(tmp_path / f"{number}.npz"), "--learner", learner, "--out", str(run)]
        words += ["--training.steps", "40"] if learner == "network" else []
        assert main(["train", "array", *words]) == 0
        metrics.append(json.loads((run / "metrics.json").read_text()))
    for key in ("validation", "split_hash", "labeled_counts"):
        assert metrics[0][key] == metrics[1][key]
