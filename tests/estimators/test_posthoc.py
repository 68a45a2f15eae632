"""PostHocClassifier is a scikit-learn classifier, learns from unlabeled rows too, and helps on real data."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import csst
from csst.errors import InputError
from csst.estimators.posthoc import PostHocClassifier
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

#: check_classifiers_train, which wants the argmax of predict_proba, passes: on its blobs the rule is the argmax
BY_DESIGN = {
    "check_classifiers_classes": "one of its problems has the classes -1 and 1, and here -1 means unlabeled",
}


@parametrize_with_checks(
    [PostHocClassifier(LogisticRegression(), "max mean(recall)", cv=2)], expected_failed_checks=lambda _: BY_DESIGN
)
@pytest.mark.filterwarnings("ignore:the scores are the same")
@pytest.mark.filterwarnings("ignore:the labels contradict")
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def recalls(truth, predicted, classes):
    return [float(np.mean(predicted[truth == c] == c)) for c in range(classes)]


def long_tailed_digits():
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))
    x, y = x[order] + rng.normal(scale=6, size=x.shape), y[order]
    train, test = [], []
    for k in range(6):
        members = np.flatnonzero(y == k)
        train += members[: round(90 * 9 ** (-k / 5))].tolist()
        test += members[90:].tolist()
    return x[train], y[train], x[test], y[test]


def test_the_worst_recall_on_long_tailed_digits_rises():
    x, y, unseen, truth = long_tailed_digits()
    base = LogisticRegression(max_iter=2000, C=0.01)
    finished = PostHocClassifier(base, "max min(recall)", cv=5, random_state=0).fit(x, y)
    before = min(recalls(truth, clone(base).fit(x, y).predict(unseen), 6))
    after = min(recalls(truth, finished.predict(unseen), 6))
    assert after > before + 0.1
    assert finished.score(unseen, truth) == pytest.approx(after)


@pytest.fixture(scope="module")
def cancer():
    x, y = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[y]
    return x[:300, :4], names[:300], x[300:, :4], names[300:]


def test_string_labels_and_a_constraint_by_name(cancer):
    x, y, unseen, truth = cancer
    goal = "max accuracy s.t. recall['malignant'] >= 0.97"
    base = make_pipeline(StandardScaler(), LogisticRegression())
    finished = PostHocClassifier(base, goal, random_state=0).fit(x, y)
    assert set(finished.predict(unseen)) == {"malignant", "benign"}
    recall = [
        np.mean(model.predict(unseen)[truth == "malignant"] == "malignant")
        for model in (finished, clone(base).fit(x, y))
    ]
    assert recall[0] > recall[1]
    assert recall[0] > 0.9
    assert "recall['malignant'] >= 0.97" in finished.summary_.sentence


def test_decision_function_and_probabilities(cancer):
    x, y, unseen, _ = cancer
    model = PostHocClassifier(GaussianNB(), random_state=0).fit(x, y)
    probs = model.estimator_.predict_proba(unseen)
    assert np.array_equal(model.predict_proba(unseen), model.rule_.posterior(probs).numpy())
    assert np.allclose(np.exp(model.predict_log_proba(unseen)), model.predict_proba(unseen))
    scores = model.decision_function(unseen)
    assert np.array_equal(model.classes_[(scores > 0).astype(int)], model.predict(unseen))
    ours = model.rule_.scores(probs).numpy()
    assert np.allclose(scores, ours[:, 1] - ours[:, 0])


def test_the_rule_sees_out_of_fold_probabilities_only(cancer):
    x, y, _, _ = cancer
    base = KNeighborsClassifier(n_neighbors=1)  # perfect on what it was fitted on
    model = PostHocClassifier(base, cv=3, random_state=0).fit(x, y)
    outside = cross_val_predict(base, x, y, cv=3)
    worst = min(np.mean(outside[y == name] == name) for name in ("benign", "malignant"))
    assert worst < 0.95
    counted = model.summary_.unadjusted.counts
    assert min(np.diag(counted) / counted.sum(1)) == pytest.approx(worst)
    assert model.summary_.estimate.is_cross_fitted
    assert not PostHocClassifier(base.fit(x, y), cv="prefit").fit(x, y).summary_.estimate.is_cross_fitted


def test_prefit_leaves_the_estimator_alone_and_learns_from_new_examples(cancer):
    x, y, unseen, truth = cancer
    base = GaussianNB().fit(x[:150], y[:150])
    means = base.theta_.copy()
    model = PostHocClassifier(base, cv="prefit", random_state=0).fit(x[150:], y[150:])
    assert model.estimator_ is base
    assert np.array_equal(base.theta_, means)
    assert model.score(unseen, truth) > 0.5


def test_clone_pickle_pipeline_and_grid_search(cancer):
    x, y, unseen, truth = cancer
    model = PostHocClassifier(LogisticRegression(max_iter=500), csst.objective("max min(recall)"), cv=3, random_state=0)
    again = clone(model)
    assert again.objective == model.objective
    fitted = make_pipeline(StandardScaler(), model).fit(x, y)
    restored = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(restored.predict(unseen), fitted.predict(unseen))
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model), {"posthocclassifier__estimator__C": [1e-4, 1.0]}, cv=2
    ).fit(x, y)
    assert search.best_score_ == pytest.approx(max(search.cv_results_["mean_test_score"]))
    hits = [np.mean(search.predict(unseen)[truth == name] == name) for name in ("benign", "malignant")]
    assert search.score(unseen, truth) == pytest.approx(min(hits))


def test_unlabeled_rows_help_and_may_come_in_two_ways():
    x, y, unseen, truth = long_tailed_digits()
    rng = np.random.default_rng(1)
    few = np.concatenate([rng.permutation(np.flatnonzero(y == k))[: max(4, 20 - 3 * k)] for k in range(6)])
    rest = np.setdiff1d(np.arange(len(y)), few)
    base = LogisticRegression(max_iter=2000, C=0.01)
    alone = PostHocClassifier(base, cv=4, random_state=0).fit(x[few], y[few])
    marked = np.full(len(y), -1)
    marked[few] = y[few]
    # The same rows in the same order, once marked and once apart.
    order = np.concatenate([np.sort(few), rest])
    first = PostHocClassifier(base, cv=4, random_state=0).fit(x[order], marked[order])
    second = PostHocClassifier(base, cv=4, random_state=0).fit(x[np.sort(few)], y[np.sort(few)], X_unlabeled=x[rest])
    assert np.array_equal(first.predict(unseen), second.predict(unseen))
    assert first.summary_.estimate.unlabeled == len(rest)
    assert alone.summary_.estimate.unlabeled == 0
    assert f"{len(rest)} unlabeled rows" in first.summary_.sentence
    plain = clone(base).fit(x[few], y[few])
    worst = [min(recalls(truth, model.predict(unseen), 6)) for model in (plain, first)]
    assert worst[1] > worst[0] + 0.1


def test_a_class_weighted_estimator_has_a_uniform_prior(cancer):
    x, y, unseen, truth = cancer
    base = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
    model = PostHocClassifier(base, train_prior="uniform", random_state=0).fit(x, y)
    assert model.summary_.evidence.train_prior.tolist() == [0.5, 0.5]
    assert model.score(unseen, truth) > 0.7
    with pytest.raises(InputError, match="train_prior is 'labels', 'uniform' or one number per class"):
        PostHocClassifier(base, train_prior="flat").fit(x, y)


def test_fewer_folds_than_asked_for_are_told(cancer):
    x, y, _, _ = cancer
    few = np.r_[np.flatnonzero(y == "benign")[:40], np.flatnonzero(y == "malignant")[:3]]
    told = "lowered from 5 to 3 folds, as class 'malignant' has only 3 rows.*set cv=3"
    with pytest.warns(UserWarning, match=told) as caught:
        PostHocClassifier(GaussianNB(), random_state=0).fit(x[few], y[few])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lowered from")
        PostHocClassifier(GaussianNB(), cv=3, random_state=0).fit(x[few], y[few])


def test_labels_in_a_column_are_fitted_and_scored_alike(cancer):
    x, y, unseen, truth = cancer
    model = PostHocClassifier(GaussianNB(), random_state=0).fit(x, y)
    with pytest.warns(DataConversionWarning):
        assert model.score(unseen, truth[:, None]) == model.score(unseen, truth)


def test_bad_input_gets_a_sentence(cancer):
    x, y, unseen, truth = cancer
    with pytest.raises(InputError, match="LinearSVC has no predict_proba"):
        PostHocClassifier(LinearSVC()).fit(x, y)
    with pytest.raises(InputError, match="one class only"):
        PostHocClassifier(GaussianNB()).fit(x, ["a"] * 300)
    with pytest.raises(InputError, match="at least 2 rows of every class; class 'other' has 1"):
        PostHocClassifier(GaussianNB()).fit(x, [*y[:-1], "other"])
    with pytest.raises(InputError, match="\"prefit\"; found 'never'"):
        PostHocClassifier(GaussianNB(), cv="never").fit(x, y)
    with pytest.raises(InputError, match="at least 2 folds; found 1"):
        PostHocClassifier(GaussianNB(), cv=1).fit(x, y)
    base = GaussianNB().fit(x, y)
    with pytest.raises(InputError, match=r"not among the labels in training: \['other'\]"):
        PostHocClassifier(base, cv="prefit").fit(x, ["other"] * 300)
    with pytest.raises(InputError, match=r"classes \['malignant'\] have none in the labeled rows"):
        PostHocClassifier(base, cv="prefit").fit(x[y == "benign"], y[y == "benign"])
    model = PostHocClassifier(base, cv="prefit", random_state=0).fit(x, y)
    with pytest.raises(InputError, match=r"classes \['malignant'\] have none"):
        model.score(unseen[truth == "benign"], truth[truth == "benign"])
    with pytest.raises(InputError, match="sample_weight must hold a weight"):
        model.score(unseen, truth, np.ones(3))
    assert model.score(unseen, truth, np.ones(len(truth))) == pytest.approx(model.score(unseen, truth))


def test_out_of_fold_probabilities_certify_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2)) + 3 * np.repeat([[0, 0], [1, 1]], 100, axis=0)
    labels = np.repeat([0, 1], 100)
    sentence = "max accuracy s.t. recall >= 0.7 with confidence 0.9"
    with pytest.raises(InputError, match="judge other models than the one that is used and certify nothing"):
        PostHocClassifier(LogisticRegression(), sentence).fit(rows, labels)
    model = LogisticRegression().fit(rows[::2], labels[::2])
    promised = PostHocClassifier(model, sentence, cv="prefit", train_prior="uniform").fit(rows[1::2], labels[1::2])
    assert promised.summary_.certificate is not None
    assert promised.summary_.certificate.is_certified
