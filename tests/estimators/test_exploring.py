"""Questions to a fitted classifier: another sentence, trade-offs, learners, columns, doubtful labels, a page."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from csst import CSSTClassifier, InputError, PostHocClassifier
from tests.helpers.estimators import blobs, hidden


@pytest.fixture(scope="module")
def data():
    """Rows of three classes, 60, 40 and 20 of them, of which the first column tells the class best."""
    X, y = blobs(180, features=4)
    keep = np.concatenate([np.flatnonzero(y == k)[:count] for k, count in enumerate((60, 40, 20))])
    return X[keep], y[keep]


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return CSSTClassifier("max min(recall)", learner=["linear", "kernel"]).fit(X, hidden(y))


def test_another_sentence_decides_without_a_fit(data, fitted, monkeypatch):
    X, _ = data
    before = fitted.predict(X)
    monkeypatch.setattr("csst.estimators.classifier.fit", None)  # nothing is fitted
    other = fitted.decide("max recall[0]")
    assert (other.predict(X) == 0).mean() > (before == 0).mean()
    assert str(other.fit_.objective) == "max recall[0]"
    assert "max recall[0]" in other.summary()
    np.testing.assert_array_equal(fitted.predict(X), before)
    again = other.decide("max min(recall)")
    np.testing.assert_array_equal(again.predict(X), before)
    with pytest.raises(InputError, match="leave the confidence out"):
        fitted.decide("max mean(recall) s.t. recall[0] >= 0.5 with confidence 0.9")


def test_another_sentence_is_warned_of_and_refused_as_by_a_fit(data):
    X, y = data
    noisy = X + 3 * np.random.default_rng(0).normal(size=X.shape)
    fitted = CSSTClassifier("max min(recall)", learner="linear").fit(noisy, hidden(y))
    with pytest.raises(InputError, match=r"no classifier can meet coverage >= 0\.6 for every class"):
        fitted.decide("max mean(recall) s.t. coverage >= 0.6")
    with pytest.warns(UserWarning, match="no rule was found that meets all constraints"):
        other = fitted.decide("max mean(recall) s.t. recall >= 0.99")
    assert any("no rule was found" in note for note in other.notes_)


def test_the_frontier_of_a_classifier(fitted):
    frontier = fitted.frontier()
    assert frontier.points
    assert max(point.min_recall for point in frontier.points) >= frontier.unadjusted.min_recall
    assert fitted.frontier("max mean(recall) s.t. recall[0] >= 0.99").feasible is not None


def test_the_leaderboard_has_every_learner(fitted):
    names = [one.name for one in fitted.leaderboard_]
    assert set(names) == {"linear", "kernel"}
    losses = [one.balanced_log_loss for one in fitted.leaderboard_ if one.weight]
    assert losses == sorted(losses)
    assert sum(one.weight for one in fitted.leaderboard_) == pytest.approx(1)


def test_a_learner_that_was_left_out_has_its_loss_beside_that_of_the_mean(data):
    X, y = data
    *others, last = CSSTClassifier(learner=["linear", "kernel", DummyClassifier()]).fit(X, y).leaderboard_
    assert (last.name, last.weight) == ("DummyClassifier", 0.0)
    assert last.balanced_log_loss == pytest.approx(np.log(3), abs=0.05), "it knows nothing of three classes"
    mean_loss = last.balanced_log_loss - last.excess
    assert 0 < mean_loss < 0.7
    assert all(one.excess == pytest.approx(one.balanced_log_loss - mean_loss) for one in others)
    assert last.excess > max(one.excess for one in others)


def test_importance_is_of_the_sentence():
    random = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = np.stack([random.normal(size=120), y * 4 + random.normal(size=120), random.normal(size=120)], 1)
    fitted = CSSTClassifier("max min(recall)", learner="linear").fit(X, y)
    first, *others = fitted.importance(X, y, repeats=3)
    assert first.column == "1"
    assert first.loss > 0.2
    assert all(other.loss < 0.1 for other in others)
    assert "np." not in repr([first, *fitted.suspects(2)])  # plain values, to be printed
    with pytest.raises(InputError, match="importance is of columns"):
        fitted.importance([[1, 2, 3]], [0])


@pytest.mark.parametrize("n", [-1, 2.5, True, None])
def test_suspects_are_counted_from_0(fitted, n):
    with pytest.raises(InputError, match="n says how many labels to return, 0 or more; found"):
        fitted.suspects(n)


def test_suspects_are_the_labels_that_were_flipped(data):
    X, y = data
    wrong = [3, 70, 110]
    labels = y.copy()
    labels[wrong] = (labels[wrong] + 1) % 3
    labels[5::10] = -1
    fitted = CSSTClassifier(learner="linear").fit(X, labels)
    suspects = fitted.suspects(6)
    assert set(wrong) <= {suspect.row for suspect in suspects}
    for suspect in suspects:
        assert suspect.label == labels[suspect.row]
        assert suspect.likelier != suspect.label
    assert [suspect.probability for suspect in suspects] == sorted(suspect.probability for suspect in suspects)
    with pytest.raises(InputError, match="fit with validation=None"):
        CSSTClassifier(learner="linear", validation=0.3).fit(X, y).suspects()


def test_a_page_from_python(data, fitted, tmp_path):
    pd = pytest.importorskip("pandas")
    page = fitted.report(tmp_path / "pages" / "mine.html", title="Mine").read_text(encoding="utf-8")
    assert "<title>Mine</title>" in page
    assert f"{fitted.fit_.full_details.adjusted.value:.3f}" in page
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    page = CSSTClassifier(learner="linear").fit(frame, y).report(tmp_path / "frame.html").read_text(encoding="utf-8")
    assert "What is done with every column" in page
    assert re.search(r"<title>max min\(recall\)</title>", page)


def test_the_page_shows_mistakes_of_the_rule_in_use(data, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = data
    X = X + np.random.default_rng(0).normal(size=X.shape)
    frame = pd.DataFrame(np.round(X, 3), columns=["a", "b", "c", "d"])
    fitted = CSSTClassifier(learner="linear").fit(frame, y)
    for clf in (fitted, fitted.decide("max recall[2]")):
        cells = clf._find_mistakes()
        assert cells
        for cell in cells:
            for example in cell.examples:
                distances = np.abs(frame.to_numpy() - np.array(example.cells, dtype=float)).max(1)
                assert str(y[distances.argmin()]) == cell.truth
                assert distances.min() < 1e-5
        page = clf.report(tmp_path / "page.html").read_text(encoding="utf-8")
        assert "Mistakes to look at" in page
        assert cells[0].examples[0].cells[0] in page
    assert {cell.prediction for cell in cells} == {"2"}, "the second rule says nothing else"


def test_a_summary_of_a_rule_on_any_classifier(data):
    X, y = data
    fitted = PostHocClassifier(LogisticRegression(), "max min(recall)").fit(X, hidden(y))
    text = fitted.summary()
    assert text.startswith("LogisticRegression, rule: ")
    assert "lowest class recall" in text


@pytest.mark.parametrize("kind", ["csst", "posthoc"])
def test_weights_count_rows_in_a_score(data, kind):
    X, y = data
    fitted = CSSTClassifier(learner="linear") if kind == "csst" else PostHocClassifier(LogisticRegression())
    fitted.fit(X, hidden(y))
    weights = np.random.default_rng(0).integers(1, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), weights)
    assert fitted.score(X, y, weights) == pytest.approx(fitted.score(X[repeated], y[repeated]))
    assert fitted.score(X, y, np.ones(len(y))) == pytest.approx(fitted.score(X, y))
    with pytest.raises(InputError, match="a weight of 0 or more for each of the 120 rows"):
        fitted.score(X, y, weights[1:])
