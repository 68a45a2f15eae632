"""Names of learners, lists of them, and which are the default for which rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from csst import CSSTClassifier, InputError
from csst.learners import LEARNERS, default_members, read_learner
from csst.learners.forest import Forest
from csst.learners.linear import PENALTIES, Linear
from csst.learners.protocol import Rows
from csst.learners.wrapped import Wrapped
from tests.learners.samples import gaussians, table_of


def wide(columns):
    return Rows(np.zeros(columns), np.ones(columns), (0,) * columns)


@pytest.mark.parametrize(
    ("columns", "dense", "embedded", "wanted"),
    [
        (4, True, False, ("linear", "forest")),
        (256, True, False, ("linear", "forest")),
        (257, True, False, ("linear",)),
        (4, False, False, ("linear",)),
        (4, True, True, ("linear",)),
    ],
)
def test_default_members(columns, dense, embedded, wanted):
    assert default_members(wide(columns), dense, embedded) == wanted
    read = read_learner("auto", wide(columns), dense, embedded)
    assert tuple(variants[0].name for variants in read) == wanted


def test_a_linear_member_has_variants_and_a_forest_one():
    X, _ = gaussians(30)
    table = table_of(X)
    linear, forest, own = read_learner(["linear", "forest", GaussianNB()], table, dense=True, embedded=False)
    assert all(isinstance(one, Linear) for one in linear)
    assert [one.penalty for one in linear] == [*PENALTIES, *PENALTIES]
    assert all(one.table is table for one in linear[: len(PENALTIES)])
    common = table.with_common_scale.std
    assert all((one.table.std == common).all() for one in linear[len(PENALTIES) :])
    assert [type(one) for one in forest] == [Forest]
    assert [type(one) for one in own] == [Wrapped]


@pytest.mark.parametrize(
    ("learner", "says"),
    [
        ("forrest", "there is no learner 'forrest'; did you mean 'forest'"),
        (["linear", "linaer"], "there is no learner 'linaer'; did you mean 'linear'"),
        ("zebra", f"there is no learner 'zebra'; learners: {', '.join(LEARNERS)}, or a scikit-learn classifier"),
        ([], "learner is an empty list: name at least one"),
        ((), "learner is an empty list: name at least one"),
        (None, "a name or a scikit-learn classifier with predict_proba; found NoneType"),
    ],
)
def test_what_is_no_learner_gets_a_hint(learner, says):
    X, y = gaussians(30)
    with pytest.raises(InputError, match=says):
        read_learner(learner, table_of(X), dense=True, embedded=False)
    with pytest.raises(InputError, match=says):
        CSSTClassifier(learner=learner).fit(X, y)


def test_lists_are_read_one_by_one():
    X, _ = gaussians(30)

    def names(learner, dense=True):
        return [variants[0].name for variants in read_learner(learner, table_of(X), dense, embedded=False)]

    assert names("linear") == names(("linear",)) == ["linear"]
    assert names(["forest", GaussianNB(), "linear"]) == ["forest", "GaussianNB", "linear"]
    assert names(["auto", GaussianNB()]) == ["linear", "forest", "GaussianNB"]
    assert names(["auto", "forest"], dense=False) == ["linear", "forest"]
