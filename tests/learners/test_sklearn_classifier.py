"""Any scikit-learn classifier as a learner."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from csst.errors import InputError
from csst.learners.catalog import read_learner
from csst.learners.protocol import SMALLEST_PROBABILITY
from csst.learners.sklearn_classifier import as_learner
from tests.learners.samples import gaussians, problem_of

MODELS = [
    GaussianNB(),
    KNeighborsClassifier(3),
    DecisionTreeClassifier(),
    LinearDiscriminantAnalysis(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    CalibratedClassifierCV(LinearSVC(), cv=2),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_any_classifier_gives_clipped_log_probabilities(model):
    X, y = gaussians(90)
    learner = as_learner(model)
    assert learner.name == type(model).__name__
    fitted = learner.fit(X, y)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    said = fitted.classifier.predict_proba(X)
    wanted = np.zeros(said.shape)
    for i, row in enumerate(said):
        kept = [max(p, SMALLEST_PROBABILITY) for p in row]
        wanted[i] = [np.log(p / sum(kept)) for p in kept]
    found = fitted.log_probs(X)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, wanted, atol=1e-6)  # some models answer in float32
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-6)
    assert (found.argmax(1) == y).mean() > 0.7


def test_every_fit_has_a_model_of_its_own():
    X, y = gaussians(90)
    given = DecisionTreeClassifier(max_depth=2)
    learner = as_learner(given)
    first = learner.fit(X, y)
    before = first.log_probs(X)
    second = learner.fit(X, 2 - y)
    assert first.classifier is not second.classifier
    assert given not in (first.classifier, second.classifier)
    assert (first.log_probs(X) == before).all()
    assert second.classifier.get_params() | {"random_state": None} == given.get_params()


def test_the_seed_is_set_where_none_was_given():
    X, y = gaussians(60)
    free, bound = RandomForestClassifier(3), RandomForestClassifier(3, random_state=5)
    assert as_learner(free).fit(X, y, seed=7).classifier.random_state == 7
    assert as_learner(bound).fit(X, y, seed=7).classifier.random_state == 5
    assert free.random_state is None, "the given object was changed"
    first, same, other = (as_learner(free).fit(X, y, seed=seed).log_probs(X) for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).any()
    assert not hasattr(as_learner(GaussianNB()).fit(X, y, seed=7).classifier, "random_state")


class Nameless(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.parametrize(
    "model", [SVC(), LinearSVC(), SGDClassifier(), Ridge(), Nameless(), 3, object()], ids=lambda m: type(m).__name__
)
def test_a_model_without_probabilities_names_the_remedy(model):
    with pytest.raises(
        InputError, match=rf"predict_proba or .*; found {type(model).__name__}: .*CalibratedClassifierCV"
    ):
        as_learner(model)
    X, _ = gaussians(30)
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        read_learner(["linear", model], problem_of(X))


def test_a_class_in_place_of_an_object_gets_a_sentence():
    with pytest.raises(InputError):
        as_learner(LogisticRegression)


def test_the_seed_reaches_into_a_pipeline():
    X, y = gaussians(60)
    learner = as_learner(make_pipeline(StandardScaler(), RandomForestClassifier(3)))
    first, second = (learner.fit(X, y, seed=1).log_probs(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
