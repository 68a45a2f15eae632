"""Names of learners, lists of them, and which are the default for which rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.naive_bayes import GaussianNB

from csst import CSSTClassifier, InputError
from csst.learners import LEARNERS, default_members, read_learner
from csst.learners.catalog import make_variants
from csst.learners.discriminant import Discriminant
from csst.learners.forest import Forest
from csst.learners.kernel import Kernel
from csst.learners.linear import PENALTIES, Linear
from csst.learners.propagation import Propagation
from csst.learners.sklearn_classifier import SklearnLearner
from tests.learners.samples import gaussians, problem_of


@pytest.mark.parametrize(
    ("columns", "is_sparse", "is_embedded", "wanted"),
    [
        (4, False, False, ("linear", "forest", "kernel", "propagation")),
        (2000, False, False, ("linear", "forest", "kernel", "propagation")),
        (4, True, False, ("linear", "kernel", "propagation")),
        (4, False, True, ("linear", "kernel", "propagation")),
    ],
)
def test_default_members(columns, is_sparse, is_embedded, wanted):
    rows = np.random.default_rng(0).normal(size=(9, columns))
    problem = problem_of(csr_matrix(rows) if is_sparse else rows, is_embedded=is_embedded)
    assert default_members(problem) == wanted
    read = read_learner("auto", problem)
    assert tuple(variants[0].name for variants in read) == wanted


@pytest.mark.usefixtures("all_variants")
def test_what_would_be_slow_or_large_is_left_out():
    rows = np.random.default_rng(0).normal(size=(9, 4))
    assert default_members(problem_of(rows, unlabeled=0)) == ("linear", "forest", "kernel"), "nothing to spread through"
    assert default_members(problem_of(rows, labels=20_000, classes=1000)) == ("linear",)
    assert default_members(problem_of(rows, labels=2_000, classes=100)) == ("linear", "forest", "kernel", "propagation")
    (only,) = make_variants("linear", problem_of(rows, labels=20_000, classes=1000))
    assert only.penalty == 0.1
    (full,) = make_variants("forest", problem_of(rows, labels=20_000, classes=10))
    (fewer,) = make_variants("forest", problem_of(rows, labels=40_000, classes=10))
    (fewest,) = make_variants("forest", problem_of(rows, labels=10**6, classes=100))
    assert (full.trees, fewer.trees, fewest.trees) == (200, 100, 10)
    wide_rows = np.random.default_rng(0).normal(size=(9, 400))
    wide_forests = [make_variants("forest", problem_of(wide_rows, labels=labels))[0] for labels in (1000, 4000, 10**6)]
    assert [forest.trees for forest in wide_forests] == [200, 50, 10]


@pytest.mark.usefixtures("all_variants")
def test_members_have_variants():
    X, _ = gaussians(30)
    problem = problem_of(X)
    names = ["linear", "forest", "kernel", "propagation", "lda", GaussianNB()]
    linear, forest, kernel, propagation, lda, own = read_learner(names, problem)
    assert all(isinstance(one, Linear) for one in linear)
    assert [one.penalty for one in linear] == [*PENALTIES, *PENALTIES]
    assert all(one.table is problem.table for one in linear[: len(PENALTIES)])
    common = problem.table.with_common_scale.std
    assert all((one.table.std == common).all() for one in linear[len(PENALTIES) :])
    assert [type(one) for one in forest] == [Forest]
    assert [type(one) for one in own] == [SklearnLearner]
    for variants, kind in ((kernel, Kernel), (propagation, Propagation), (lda, Discriminant)):
        assert [type(one) for one in variants] == [kind, kind]
        assert (variants[0].projection.input.std.numpy() == problem.table.std).all()
        assert (variants[1].projection.input.std.numpy() == common).all()
    assert [one.projection.has_unit_length for one in (*kernel, *propagation)] == [False, False, True, True]
    assert all(one.unlabeled.shape == X.shape for one in propagation)
    assert all(one.unlabeled.shape == (0, 4) for one in make_variants("propagation", problem_of(X, unlabeled=0)))


@pytest.mark.parametrize(
    ("learner", "says"),
    [
        ("forrest", "there is no learner 'forrest'; did you mean 'forest'"),
        (["linear", "linaer"], "there is no learner 'linaer'; did you mean 'linear'"),
        ("zebra", f"there is no learner 'zebra'; learners: {', '.join(LEARNERS)}, or a scikit-learn classifier"),
        ([], "learner is an empty list: name at least one"),
        ((), "learner is an empty list: name at least one"),
        (None, "a name, a scikit-learn classifier with predict_proba or a csst.learners.Learner; found NoneType"),
    ],
)
def test_what_is_no_learner_gets_a_hint(learner, says):
    X, y = gaussians(30)
    with pytest.raises(InputError, match=says):
        read_learner(learner, problem_of(X))
    with pytest.raises(InputError, match=says):
        CSSTClassifier(learner=learner).fit(X, y)


def test_lists_are_read_one_by_one():
    X, _ = gaussians(30)

    def names(learner, is_embedded=False):
        problem = problem_of(X, is_embedded=is_embedded)
        return [variants[0].name for variants in read_learner(learner, problem)]

    everything = ["linear", "forest", "kernel", "propagation"]
    assert names("linear") == names(("linear",)) == ["linear"]
    assert names("kernel,linear") == names(["kernel", "linear"]) == ["kernel", "linear"]
    assert names(["forest", GaussianNB(), "linear"]) == ["forest", "GaussianNB", "linear"]
    assert names(["auto", GaussianNB()]) == [*everything, "GaussianNB"]
    assert names(["auto", "forest"], is_embedded=True) == ["linear", "kernel", "propagation", "forest"]


def test_a_network_in_a_list_gets_a_sentence_of_its_own():
    X, _ = gaussians(30)
    with pytest.raises(InputError, match="network") as raised:
        read_learner(["linear", "network"], problem_of(X))
    assert "did you mean 'network'" not in str(raised.value)
