"""The forest learner: two forests, clipped, averaged in log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from csst.learners.forest import FittedForest, Forest, Trees
from csst.learners.protocol import SMALLEST_PROBABILITY, apply
from tests.learners.samples import gaussians


class Said(torch.nn.Module):
    """A forest that says what it is told to."""

    def __init__(self, probs):
        super().__init__()
        self.probs = torch.tensor(probs, dtype=torch.float64)

    def forward(self, x):
        return self.probs[: len(x)]


def reference(forests, rows):
    """The mean of clipped log-probabilities, renormalized, by plain loops."""
    said = [forest.predict_proba(rows) for forest in forests]
    out = np.zeros(said[0].shape)
    for i in range(len(rows)):
        means = [
            sum(np.log(max(one[i][k], SMALLEST_PROBABILITY)) for one in said) / len(said) for k in range(out.shape[1])
        ]
        total = sum(np.exp(value) for value in means)
        out[i] = [value - np.log(total) for value in means]
    return out


@pytest.mark.parametrize("classes", [2, 3])
def test_log_probs_are_the_mean_of_both_forests(classes):
    X, y = gaussians(90, np.ones(classes) / classes, apart=1.5)
    model = Forest(trees=10).fit(X, y, seed=3)
    forests = [kind(10, random_state=3).fit(X, y) for kind in (ExtraTreesClassifier, RandomForestClassifier)]
    new, truth = gaussians(200, np.ones(classes) / classes, apart=1.5, seed=1)
    found = model.log_probs(new)
    assert found.shape == (200, classes)
    np.testing.assert_allclose(found, reference(forests, new), atol=1e-12)
    np.testing.assert_allclose(np.exp(found).sum(1), 1, atol=1e-12)
    assert (found.argmax(1) == truth).mean() > 0.65


def test_no_probability_is_below_what_the_clip_implies():
    forests = [Said([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), Said([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])]
    model = FittedForest(forests=forests)
    found = np.exp(model.log_probs(np.zeros((2, 1))))
    tiny = SMALLEST_PROBABILITY
    np.testing.assert_allclose(found[0], np.array([1, tiny, tiny]) / (1 + 2 * tiny), rtol=1e-12)
    parts = np.array([(0.5 * tiny) ** 0.5, 0.5**0.5, tiny])  # a mean of logarithms is a product
    np.testing.assert_allclose(found[1], parts / parts.sum(), rtol=1e-12)
    X, y = gaussians(90, apart=6.0)
    sure = Forest(trees=10).fit(X, y).log_probs(X)
    least = np.log(tiny) - np.log(1 + 3 * tiny)
    assert least - 1e-12 <= sure.min() < np.log(0.01), "this fit was chosen because its forests are certain"


def test_the_seed_counts():
    X, y = gaussians(90, apart=1.0)
    plain, same, other = (Forest(trees=10).fit(X, y, seed=seed).log_probs(X) for seed in (0, 0, 1))
    assert (plain == same).all()
    assert (plain != other).any()
    assert Forest().trees == 200
    assert Forest().name == "forest"


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_trees_give_what_scikit_learn_gives(kind):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (150, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] + rng.integers(0, 3, 150) > 6).astype(int) + (X[:, 2] > 4)
    forest = kind(7, random_state=0).fit(X, y)
    trees = Trees.from_sklearn(forest)
    assert trees.count == 7
    assert trees.depth == max(estimator.tree_.max_depth for estimator in forest.estimators_)
    # Halves are thresholds of the random forest: at a threshold, a row goes to the left.
    grid = rng.integers(0, 12, (500, 4)) / 2
    for rows in (X, grid, grid[:1], rng.normal(size=(50, 4)) * 3, grid + 1e-9):
        expected = forest.predict_proba(rows)
        np.testing.assert_array_equal(trees(torch.from_numpy(rows)), expected)
        walked = trees.walk(torch.from_numpy(rows).float())  # as an exported graph does
        np.testing.assert_allclose(walked, expected, atol=1e-12, rtol=0)
    np.testing.assert_array_equal(apply(trees, csr_matrix(grid)), apply(trees, grid))
    assert trees(torch.zeros(0, 4)).shape == (0, 3)


def test_thresholds_of_the_trees_are_met_exactly():
    """Every threshold as a row of float32: which side it falls on is decided as in scikit-learn."""
    X, _ = gaussians(80, features=1, prior=[1.0], apart=0.0)
    y = (X[:, 0] + np.random.default_rng(1).normal(size=80) > 0).astype(int)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    cuts = np.concatenate([tree.tree_.threshold[tree.tree_.children_left >= 0] for tree in forest.estimators_])
    rows = np.concatenate([cuts.astype(np.float32), np.nextafter(cuts.astype(np.float32), np.float32(9))])[:, None]
    np.testing.assert_allclose(apply(Trees.from_sklearn(forest), rows), forest.predict_proba(rows), atol=1e-12, rtol=0)


def test_trees_without_a_split():
    X = np.zeros((9, 2), dtype=np.float32)
    forest = ExtraTreesClassifier(3, random_state=0).fit(X, np.arange(9) % 3)
    trees = Trees.from_sklearn(forest)
    assert trees.depth == 0
    np.testing.assert_allclose(apply(trees, X), forest.predict_proba(X), atol=1e-12, rtol=0)


def test_columns_that_rows_do_not_have_are_refused():
    """Compiled trees do not look where they read."""
    nodes = {"threshold": np.zeros(3), "child": np.array([1, 1, 2]), "probs": np.ones((3, 2)) / 2, "count": 1}
    for feature in (-1, 2):
        with pytest.raises(ValueError, match="rows of 2 columns"):
            Trees(**nodes, feature=np.array([feature, 0, 0]))(torch.zeros(1, 2))


@pytest.mark.parametrize("child", [[0, 0, 2], [2, 1, 2], [1, 1, 9], [1, 0, 2], [1, 3, 3, 3, 4], [1, 1, 2, 3, 4]])
def test_nodes_that_are_no_trees_are_refused(child):
    """A child before its parent, of two parents, of none, or beyond the last node: no walk may leave a tree."""
    count = len(child)
    nodes = {"feature": np.zeros(count, dtype=np.int64), "threshold": np.zeros(count), "probs": np.ones((count, 2)) / 2}
    with pytest.raises(ValueError, match="are no trees"):
        Trees(**nodes, child=np.array(child), count=1)
