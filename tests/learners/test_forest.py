"""The forest learner: two forests, clipped, averaged in log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from csst.learners.forest import SMALLEST_FRACTION, FittedForest, Forest
from tests.learners.samples import gaussians


class Said:
    """A forest that says what it is told to."""

    def __init__(self, probs):
        self.probs = np.array(probs)

    def predict_proba(self, rows):
        return self.probs[: len(rows)]


def reference(forests, rows):
    """The mean of clipped log-probabilities, renormalized, by plain loops."""
    said = [forest.predict_proba(rows) for forest in forests]
    out = np.zeros(said[0].shape)
    for i in range(len(rows)):
        means = [
            sum(np.log(max(one[i][k], SMALLEST_FRACTION)) for one in said) / len(said) for k in range(out.shape[1])
        ]
        total = sum(np.exp(value) for value in means)
        out[i] = [value - np.log(total) for value in means]
    return out


@pytest.mark.parametrize("classes", [2, 3])
def test_log_probs_are_the_mean_of_both_forests(classes):
    X, y = gaussians(90, np.ones(classes) / classes, apart=1.5)
    model = Forest(trees=10).fit(X, y, seed=3)
    assert [type(forest) for forest in model.forests] == [ExtraTreesClassifier, RandomForestClassifier]
    assert [len(forest.estimators_) for forest in model.forests] == [10, 10]
    new, truth = gaussians(200, np.ones(classes) / classes, apart=1.5, seed=1)
    found = model.log_probs(new)
    assert found.shape == (200, classes)
    np.testing.assert_allclose(found, reference(model.forests, new), atol=1e-12)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-12)
    assert (found.argmax(1) == truth).mean() > 0.65
    for kind, forest in zip((ExtraTreesClassifier, RandomForestClassifier), model.forests, strict=True):
        alone = kind(10, random_state=3).fit(X, y)
        np.testing.assert_array_equal(forest.predict_proba(new), alone.predict_proba(new))


def test_no_probability_is_below_what_the_clip_implies():
    model = FittedForest((Said([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), Said([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])))
    found = np.exp(model.log_probs(np.zeros((2, 1))))
    tiny = SMALLEST_FRACTION
    np.testing.assert_allclose(found[0], np.array([1, tiny, tiny]) / (1 + 2 * tiny), rtol=1e-12)
    parts = np.array([(0.5 * tiny) ** 0.5, 0.5**0.5, tiny])  # a mean of logarithms is a product
    np.testing.assert_allclose(found[1], parts / parts.sum(), rtol=1e-12)
    X, y = gaussians(90, apart=6.0)
    sure = Forest(trees=10).fit(X, y).log_probs(X)
    least = np.log(tiny) - np.log(1 + 3 * tiny)
    assert least - 1e-12 <= sure.min() < np.log(0.01), "this fit was chosen because its forests are certain"


def test_weights_count_and_so_does_the_seed():
    X, y = gaussians(90, apart=1.0)
    learner = Forest(trees=10)
    plain, same, other = (learner.fit(X, y, seed=seed).log_probs(X) for seed in (0, 0, 1))
    assert (plain == same).all()
    assert (plain != other).any()
    weights = np.where(y == 2, 5.0, 1.0)
    model = learner.fit(X, y, weights, seed=2)
    for kind, forest in zip((ExtraTreesClassifier, RandomForestClassifier), model.forests, strict=True):
        alone = kind(10, random_state=2).fit(X, y, sample_weight=weights)
        np.testing.assert_array_equal(forest.predict_proba(X), alone.predict_proba(X))
    assert (model.log_probs(X) != learner.fit(X, y, seed=2).log_probs(X)).any()
    assert Forest().trees == 200
    assert Forest().name == "forest"
