"""Estimators that may give no answer, and sentences with costs: what predict, score and summary give."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import csst
from csst.fitting.fitted_model import FittedModel
from tests.helpers.exports import onnx

SENTENCE = "max min(recall) s.t. abstain <= 0.15"


@pytest.fixture(scope="module")
def rows():
    """Iris with noise, and the class of every third row."""
    X, y = load_iris(return_X_y=True)
    X = X + np.random.default_rng(0).normal(size=X.shape) * 0.6
    return X, y, np.where(np.arange(150) % 3 == 0, y, -1)


@pytest.fixture(scope="module")
def fitted(rows):
    X, _, labels = rows
    return csst.CSSTClassifier(SENTENCE, learner="linear").fit(X, labels)


def test_no_answer_is_minus_one_for_integers(rows, fitted):
    X, y, _ = rows
    predictions = fitted.predict(X)
    assert predictions.dtype == y.dtype
    has_answer = predictions != -1
    assert 0.02 < 1 - has_answer.mean() < 0.3
    assert (predictions[has_answer] == y[has_answer]).mean() > (predictions == y).mean()
    assert fitted.decision_function(X).shape == (150, 4)
    assert fitted.predict_proba(X).shape == (150, 3)


def test_the_score_is_of_what_is_answered(rows, fitted):
    X, y, _ = rows
    predictions = fitted.predict(X)
    recalls = [(predictions[(y == k) & (predictions >= 0)] == k).mean() for k in range(3)]
    miss = max(0.0, (predictions == -1).mean() - 0.15)
    assert fitted.score(X, y) == pytest.approx(min(recalls) - 10 * (miss if miss > 1e-3 else 0))
    assert "no answer for" in fitted.summary()


def test_no_answer_is_none_for_names_or_what_is_asked(rows):
    X, _, labels = rows
    names = np.array(["a", "b", "c", None], dtype=object)[labels]
    predictions = csst.CSSTClassifier(SENTENCE, learner="linear").fit(X, names).predict(X)
    assert set(predictions.tolist()) == {"a", "b", "c", None}
    clf = csst.CSSTClassifier(SENTENCE, learner="linear", abstain_value="ask").fit(X, names)
    assert set(clf.predict(X).tolist()) == {"a", "b", "c", "ask"}
    assert np.isfinite(clf.score(X, names))
    with pytest.raises(csst.InputError, match="cannot be a class"):
        csst.CSSTClassifier(SENTENCE, learner="linear", abstain_value="a").fit(X, names)


def test_a_rule_on_a_model_of_ones_own_may_abstain(rows):
    X, y, labels = rows
    clf = csst.PostHocClassifier(LogisticRegression(), SENTENCE, random_state=0).fit(X, labels)
    predictions = clf.predict(X)
    assert set(np.unique(predictions)) == {-1, 0, 1, 2}
    assert np.isfinite(clf.score(X, y))


def test_two_classes_and_no_answer_have_three_scores(rows):
    X, y, labels = rows
    model = LogisticRegression()
    clf = csst.PostHocClassifier(model, SENTENCE, random_state=0).fit(X[y > 0], labels[y > 0])
    scores = clf.decision_function(X[y > 0])
    assert scores.shape == (100, 3)
    predictions = clf.predict(X[y > 0])
    assert (scores.argmax(1) == 2).tolist() == (predictions == -1).tolist()
    assert 0 < (predictions == -1).sum() < 50


def test_a_stored_model_gives_no_answer_to_the_same_rows(rows, fitted, tmp_path):
    X, _, _ = rows
    fitted.fit_.save(tmp_path / "run")
    loaded = FittedModel.load(tmp_path / "run")
    assert loaded.predict(X).tolist() == np.where(fitted.predict(X) < 0, 3, fitted.predict(X)).tolist()


def test_costs_move_decisions_to_the_cheap_side(rows):
    X, y, labels = rows
    costs = np.array([[0, 1, 1], [1, 0, 1], [1, 30, 0]])
    cheap = csst.CSSTClassifier("min cost", costs=costs, learner="linear").fit(X, labels)
    plain = csst.CSSTClassifier("max accuracy", learner="linear").fit(X, labels)

    def pay(clf):
        return costs[y, clf.predict(X)].mean()

    assert pay(cheap) < pay(plain)
    assert (cheap.predict(X[y == 2]) == 1).mean() < (plain.predict(X[y == 2]) == 1).mean()
    assert -cheap.score(X, y) == pytest.approx(pay(cheap))


@onnx
def test_an_exported_rule_gives_no_answer_to_the_same_rows(rows, fitted, tmp_path):
    import onnxruntime

    X, _, _ = rows
    fitted.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    outputs = session.run(None, {session.get_inputs()[0].name: X.astype(np.float32)})
    decisions = next(output for output in outputs if output.ndim == 1)
    predictions = fitted.predict(X)
    assert decisions.tolist() == np.where(predictions < 0, 3, predictions).tolist()
