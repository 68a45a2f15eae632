"""CSSTClassifier without a network: which learners, what it takes, what it says, and whether its numbers hold."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from csst import CSSTClassifier, InputError
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import PRIOR, bent, gaussians, soften

pytestmark = SHORT_RUN


def half(y, mark=-1):
    """Every second label taken away."""
    out = y.copy()
    out[1::2] = mark
    return out


def names_of(fitted):
    return list(fitted.fit_.model.names)


@pytest.fixture(scope="module")
def fitted():
    X, y = bent(140)
    return CSSTClassifier().fit(X, half(y))


def first_channel(images):
    return images[:, 0].flatten(1).float()


def test_which_learners_rows_get():
    X, y = gaussians(60, apart=2.5)
    sparse = CSSTClassifier().fit(csr_matrix(np.where(X > 0.5, X, 0)), y)
    assert {*names_of(sparse), *sparse.fit_.model.left_out} == {"linear", "kernel"}
    assert sparse.fit_.expected.unlabeled == 0
    assert "unlabeled rows" not in sparse.summary().splitlines()[1]
    images = np.repeat(np.clip(20 * X + 100, 0, 255).astype(np.uint8).reshape(60, 1, 2, 2), 3, axis=1)
    embedded = CSSTClassifier(encoder=first_channel).fit(images, y)
    assert {*names_of(embedded), *embedded.fit_.model.left_out} == {"linear", "kernel"}


def test_lists_of_learners_are_averaged():
    X, y = gaussians(140, apart=1.8)
    found = CSSTClassifier(learner=["linear", GaussianNB()]).fit(X, half(y))
    assert names_of(found) == ["linear", "GaussianNB"]
    assert found.summary().startswith("linear + GaussianNB, rule: ")
    weights = {
        name: sum(one.weight for one in found.fit_.model.members if one.name == name) for name in names_of(found)
    }
    assert sum(weights.values()) == pytest.approx(1)
    assert all(0.2 < weight < 0.8 for weight in weights.values()), "neither is clearly worse"
    wanted, prior = np.zeros((140, 3)), np.array(found.labeled_counts_) / 70
    for one in found.fit_.model.members:
        wanted += one.weight * (one.temperature * (one.model.log_probs(X) - np.log(prior)) + one.bias.numpy())
    np.testing.assert_allclose(found.fit_.model.log_probs(X), soften(wanted + np.log(prior)), atol=1e-5)


def test_a_learner_that_is_clearly_worse_is_named():
    X, y = gaussians(140, apart=4.0)
    rng = np.random.default_rng(0)

    class Guess(GaussianNB):
        def predict_proba(self, X):
            return rng.dirichlet(np.ones(3), len(X))

    found = CSSTClassifier(learner=[Guess(), "linear"]).fit(X, y)
    assert names_of(found) == ["linear"]
    assert found.summary().startswith("linear (clearly worse and left out: Guess), rule: ")


def test_summary_names_members_rule_and_labels(fitted):
    first, second, *rest = fitted.summary().splitlines()
    chosen = fitted.fit_.full_details.adjusted.chosen
    assert first == f"linear + forest + kernel + propagation, rule: {chosen}, for 'max min(recall)'"
    fewest, most = min(fitted.labeled_counts_), max(fitted.labeled_counts_)
    assert f"estimated from 70 labels ({fewest} to {most} per class) and 70 unlabeled rows" in second
    for k, count in enumerate(fitted.labeled_counts_):
        assert any(line.split()[:2] == [str(k), str(count)] for line in rest)


def test_probabilities_and_decisions_hold_together(fitted):
    X, y = bent(200, seed=1)
    probs = fitted.predict_proba(X)
    assert probs.shape == (200, 3)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)
    assert (fitted.predict(X) == fitted.decision_function(X).argmax(1)).all()
    np.testing.assert_allclose(probs, fitted.fit_.rule.posterior(fitted.fit_.model.probs(X)).numpy(), atol=1e-12)
    recalls = [np.mean(fitted.predict(X)[y == k] == k) for k in range(3)]
    assert fitted.score(X, y) == pytest.approx(min(recalls))
    assert fitted.score(X, y) > 0.5


@pytest.mark.parametrize(("learner", "prior"), [("auto", None), ("linear", [0.2, 0.3, 0.5])])
def test_probabilities_are_calibrated_under_the_deployment_prior(learner, prior):
    X, y = gaussians(1200, apart=1.5)
    clf = CSSTClassifier(learner=learner, deployment_prior=prior).fit(X, half(y))
    new, truth = gaussians(4000, PRIOR if prior is None else np.array(prior), apart=1.5, seed=1)
    probs = clf.predict_proba(new)
    for k in range(3):
        assert probs[:, k].mean() == pytest.approx((truth == k).mean(), abs=0.05)
        for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
            some = (low <= probs[:, k]) & (probs[:, k] < high)
            if some.sum() > 150:
                assert probs[some, k].mean() == pytest.approx((truth[some] == k).mean(), abs=0.1)
    uniform = np.abs(probs.mean(0) - 1 / 3).max()
    assert uniform > 0.1, "the prior must matter for this test"


def test_validation_in_every_form():
    X, y = gaussians(150, apart=1.8)
    by_index = CSSTClassifier(learner="linear", validation=np.arange(40)).fit(X, y)
    pair = CSSTClassifier(learner="linear", validation=(X[:40], y[:40])).fit(X[40:], y[40:])
    for one in (by_index, pair):
        assert int(one.fit_.expected.n.sum()) == 40
        assert sum(one.labeled_counts_) == 110
    np.testing.assert_array_equal(by_index.predict_proba(X), pair.predict_proba(X))
    share = CSSTClassifier(validation=0.4).fit(X, half(y))
    held = int(share.fit_.expected.n.sum())
    assert held + sum(share.labeled_counts_) == 75
    assert 25 <= held <= 35
    assert f"estimated from {held} labels" in share.summary()
    assert "and 75 unlabeled rows" in share.summary()


def test_validation_rows_are_not_learned_from():
    """Nearest neighbors remember: with random labels, rows judged by a model that knows them would look perfect."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(160, 3)), np.arange(160) % 2
    with pytest.warns(UserWarning, match="the labels do not show that the scores say anything"):
        found = CSSTClassifier(learner=KNeighborsClassifier(1), validation=np.arange(80)).fit(X, y)
    assert float(found.fit_.expected.confusion.recall.mean()) < 0.75


def test_a_class_with_one_label_gets_a_sentence():
    X, y = gaussians(80, apart=2.5)
    y = np.array(["ape", "bee", "cat"], dtype=object)[y]
    y[np.flatnonzero(y == "cat")[1:]] = None
    with pytest.warns(UserWarning, match=r"classes \['cat'\] have one label each, which their models have learned"):
        found = CSSTClassifier(learner="linear").fit(X, y)
    assert "note: classes ['cat'] have one label each" in found.summary()
    assert found.labeled_counts_[2] == 1
    assert "cat" in found.predict(X)


def test_pickle_clone_and_seed(fitted):
    X, y = bent(140)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.summary() == fitted.summary()
    assert not hasattr(clone(fitted), "fit_")
    seeded = CSSTClassifier(learner=RandomForestClassifier(3), random_state=5, validation=(X, y)).fit(X, y)
    assert (seeded.seed_, fitted.seed_) == (5, 0)
    assert seeded.fit_.model.members[0].model.classifier.random_state == 5


def test_unlabeled_rows_may_come_apart(fitted):
    X, y = bent(140)
    apart = CSSTClassifier().fit(X[::2], y[::2], X_unlabeled=X[1::2])
    np.testing.assert_array_equal(apart.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("k", [1, 2])
def test_validation_that_takes_all_labels_of_a_class_gets_a_sentence(k):
    X, y = gaussians(60)
    with pytest.raises(InputError):
        CSSTClassifier(learner="linear", validation=np.flatnonzero(y == k)).fit(X, y)
