"""score and csst.scorer: value less 10 times the largest miss, on the rows whose label is known."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import csst
from csst.maths.confusion import Confusion
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import gaussians

pytestmark = SHORT_RUN

X, Y = gaussians(240, np.array([0.6, 0.3, 0.1]), apart=1.5)
NEW, TRUTH = gaussians(240, np.array([0.6, 0.3, 0.1]), apart=1.5, seed=1)
PART = np.where(np.arange(240) % 3 > 0, Y, -1)
#: a bound that cannot be met, so that the miss is large
BOUND = "max mean(recall) s.t. coverage[2] >= 0.5"


def fitted(objective, kind="linear"):
    if kind == "post-hoc":
        rule = csst.PostHocClassifier(LogisticRegression(), objective, deployment_prior="labels", random_state=0)
        return rule.fit(X, PART)
    return csst.CSSTClassifier(objective, learner="linear").fit(X, PART)


def count(truth, predictions, classes):
    """Rates by plain loops: recall of every class, and the fraction of all predictions."""
    recall = [np.mean([p == c for t, p in zip(truth, predictions, strict=True) if t == c]) for c in classes]
    coverage = [np.mean([p == c for p in predictions]) for c in classes]
    return recall, coverage


@pytest.mark.parametrize("kind", ["linear", "post-hoc"])
@pytest.mark.filterwarnings("ignore:no rule was found")
def test_score_is_the_value_less_ten_times_the_largest_miss(kind):
    clf = fitted(BOUND, kind)
    recall, coverage = count(TRUTH, clf.predict(NEW), [0, 1, 2])
    assert coverage[2] < 0.49, "the bound must be missed for this test"
    wanted = np.mean(recall) - 10 * (0.5 - coverage[2])
    assert clf.score(NEW, TRUTH) == pytest.approx(wanted)
    assert csst.scorer(BOUND)(clf, NEW, TRUTH) == pytest.approx(wanted)
    met = "max mean(recall) s.t. coverage[2] >= 0.01"
    assert csst.scorer(met)(clf, NEW, TRUTH) == pytest.approx(np.mean(recall))


@pytest.mark.parametrize("kind", ["linear", "post-hoc"])
def test_a_class_that_training_did_not_have_counts_as_wrong(kind):
    truth = TRUTH.copy()
    truth[::10] = 7
    for sentence, average in (("max mean(recall)", "macro"), ("max accuracy", "micro")):
        clf = fitted(sentence, kind)
        wanted = recall_score(truth, clf.predict(NEW), average=average)
        assert clf.score(NEW, truth) == pytest.approx(wanted)
        assert csst.scorer(sentence)(clf, NEW, truth) == pytest.approx(wanted)
    clf = fitted("max min(recall)", kind)
    assert clf.score(NEW, TRUTH) > 0.2
    assert clf.score(NEW, truth) == 0
    tail = "max mean(recall[tail])"  # a group has the classes of training
    assert csst.scorer(tail)(clf, NEW, truth) == pytest.approx(count(truth, clf.predict(NEW), [2])[0][0])


def test_an_unseen_class_and_a_metric_for_three_classes_only():
    truth = TRUTH.copy()
    truth[::10] = 7
    gain = csst.ConstantGain(torch.diag(torch.tensor([1.0, 2.0, 3.0])))
    clf = fitted("max min(recall)")
    hits = [np.mean((clf.predict(NEW) == k) & (truth == k)) for k in range(3)]
    assert csst.scorer(gain)(clf, NEW, truth) == pytest.approx(hits[0] + 2 * hits[1] + 3 * hits[2])

    class Weighted(csst.Objective):
        def utility(self, c: Confusion):
            return (torch.tensor([1.0, 2.0, 3.0]) * c.recall).sum()

    with pytest.raises(csst.InputError, match=r"\(\['7'\]\), and Weighted is not defined for more than 3 classes"):
        csst.scorer(Weighted())(clf, NEW, truth)


@pytest.mark.parametrize("mark", [-1, None])
def test_rows_without_a_label_are_left_out(mark):
    y = PART if mark == -1 else np.array([None if k == -1 else k for k in PART], dtype=object)
    clf = csst.CSSTClassifier("max mean(recall)", learner="linear")
    scores = cross_val_score(clf, X, y, cv=3, scoring=csst.scorer("max mean(recall)"), error_score="raise")
    known = PART != -1
    clf.fit(X, y)
    wanted = recall_score(Y[known], clf.predict(X)[known], average="macro")
    assert csst.scorer("max mean(recall)")(clf, X, y) == pytest.approx(wanted)
    assert scores.mean() == pytest.approx(wanted, abs=0.1)
    if mark == -1:  # the trap: -1 is a class of recall 0 there
        naive = cross_val_score(clf, X, y, cv=3, scoring="recall_macro")
        assert naive.mean() < 0.8 * scores.mean()


def test_in_a_search_and_in_a_pipeline():
    bound = BOUND.replace("0.5", "0.35")
    pipe = make_pipeline(StandardScaler(), csst.CSSTClassifier(learner="linear"))
    scoring = {"bound": csst.scorer(bound), "accuracy": csst.scorer("max accuracy")}
    grid = {"csstclassifier__objective": ["max accuracy", bound]}
    search = GridSearchCV(pipe, grid, cv=2, scoring=scoring, refit="bound", error_score="raise").fit(X, PART)
    assert search.best_params_["csstclassifier__objective"] == bound, "a model that breaks the bound was chosen"
    assert search.cv_results_["mean_test_accuracy"].argmax() == 0
    assert pickle.loads(pickle.dumps(scoring["bound"]))(pipe.fit(X, PART), X, PART) < 1


def test_head_and_tail_are_those_of_training():
    """Also where the rows to score are balanced otherwise."""
    clf = fitted("max min(recall)")
    rows = np.r_[np.flatnonzero(TRUTH == 2), np.flatnonzero(TRUTH == 0)[:5], np.flatnonzero(TRUTH == 1)[:5]]
    recall, _ = count(TRUTH[rows], clf.predict(NEW[rows]), [0, 1, 2])
    assert recall[2] not in recall[:2]
    for estimator, data in ((clf, NEW[rows]), (fitted("max min(recall)", "post-hoc"), NEW[rows])):
        recall, _ = count(TRUTH[rows], estimator.predict(data), [0, 1, 2])
        assert csst.scorer("max mean(recall[tail])")(estimator, data, TRUTH[rows]) == pytest.approx(recall[2])


def test_what_cannot_be_scored_gets_a_sentence():
    clf = fitted("max min(recall)")
    with pytest.raises(csst.InputError, match="no label at all"):
        csst.scorer("max accuracy")(clf, X, np.full(240, -1))
    with pytest.raises(csst.InputError, match="recall needs an example of every class"):
        csst.scorer("max accuracy")(clf, X[Y < 2], Y[Y < 2])
    with pytest.raises(csst.InputError, match=r"LogisticRegression learned the mark .* wrap it in csst.PostHoc"):
        csst.scorer("max accuracy")(LogisticRegression().fit(X, PART), X, PART)
    with pytest.raises(csst.ObjectiveError):
        csst.scorer("max recal")
    with pytest.raises(csst.InputError, match="240 rows and 3 labels"):
        fitted("max min(recall)", "post-hoc").score(X, Y[:3])
