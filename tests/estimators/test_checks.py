"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.helpers.estimators import quick
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

#: what we do not promise, and why
EXPECTED = {"check_classifiers_classes": "one of its problems has the classes -1 and 1, and here -1 means unlabeled"}


@pytest.mark.filterwarnings("ignore:there are no unlabeled rows")
@parametrize_with_checks([quick(steps=10)], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_expected_failure_is_only_about_minus_one():
    """The same classes under other names are learned and predicted, so the check fails for its -1 alone."""
    from sklearn.datasets import make_blobs

    X, y = make_blobs(n_samples=60, centers=2, cluster_std=0.1, random_state=0)
    for labels in ((0, 1), (1, 2), ("one", "three")):
        named = [labels[at] for at in y]
        with pytest.warns(UserWarning, match="no unlabeled rows"):
            fitted = quick().fit(X, named)
        assert fitted.classes_.tolist() == list(labels)
        assert fitted.predict(X).tolist() == named
