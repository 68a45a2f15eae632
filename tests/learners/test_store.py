"""Portfolios as plain arrays: the same numbers come back, and damaged files are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors import safe_open
from scipy.sparse import csr_matrix
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.learners.catalog import Problem, make_variants
from csst.learners.forest import CHUNK, Forest, Trees
from csst.learners.kernel import FittedKernel
from csst.learners.linear import FittedLinear, Linear
from csst.learners.portfolio import Labeled, Member, Portfolio, fit_portfolio
from csst.learners.propagation import FittedPropagation
from csst.learners.sklearn_classifier import wrap
from csst.learners.store import pack, unpack
from tests.learners.samples import gaussians, mixed, table_of


def member(name, model, classes=3):
    bias = np.linspace(-0.2, 0.2, classes)
    return Member(name, model, Calibration(1.3, bias), 0.4, 0.3)


@pytest.fixture(scope="module")
def both():
    """A linear member and a forest on numbers and categories, and the rows."""
    rows, y, table = mixed()
    models = [("linear", Linear(table).fit(rows, y)), ("forest", Forest(trees=10).fit(rows, y))]
    return Portfolio(tuple(member(*one) for one in models), ("GaussianNB",), np.array([0.5, 0.3, 0.2])), rows


def test_what_is_packed_comes_back(both):
    portfolio, rows = both
    again = unpack(pack(portfolio), "it")
    assert [one.name for one in again.members] == ["linear", "forest"]
    assert [one.loss for one in again.members] == [0.4, 0.4]
    assert again.left_out == ("GaussianNB",)
    np.testing.assert_array_equal(again.prior, portfolio.prior)
    new = mixed(seed=1)[0]
    new[:3, 1] = -1  # a category that was never met
    for one, two in zip(portfolio.members, again.members, strict=True):
        np.testing.assert_allclose(two.model.log_probs(rows), one.model.log_probs(rows), atol=1e-12, rtol=0)
        np.testing.assert_allclose(two.model.log_probs(new), one.model.log_probs(new), atol=1e-12, rtol=0)
        assert two.calibration.temperature == one.calibration.temperature
        np.testing.assert_array_equal(two.calibration.bias, one.calibration.bias)
    np.testing.assert_allclose(again.scores(new), portfolio.scores(new), atol=1e-12, rtol=0)
    np.testing.assert_allclose(again.probs(new), portfolio.probs(new), atol=1e-12, rtol=0)
    assert pack(again) == pack(portfolio), "packing what was unpacked gives the same file"


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fitted_portfolio_comes_back(classes):
    X, y = gaussians(80, np.ones(classes) / classes, features=3)
    members = [[Linear(table_of(X)), Linear(table_of(X).with_common_scale)], [Forest(trees=5)]]
    portfolio, _ = fit_portfolio(members, Labeled(X, y), X[:0])
    again = unpack(pack(portfolio), "it")
    np.testing.assert_allclose(again.scores(X), portfolio.scores(X), atol=1e-12, rtol=0)
    assert [one.loss for one in again.members] == [one.loss for one in portfolio.members]


def test_every_member_of_the_default_comes_back():
    rows, y, table = mixed()
    problem = Problem(table, rows, len(rows), len(rows), 3)
    models = [(name, make_variants(name, problem)[-1].fit(rows, y)) for name in ("kernel", "propagation", "lda")]
    portfolio = Portfolio(tuple(member(*one) for one in models), (), np.array([0.5, 0.3, 0.2]))
    again = unpack(pack(portfolio), "it")
    assert [type(one.model) for one in again.members] == [FittedKernel, FittedPropagation, FittedLinear]
    assert [one.weight for one in again.members] == [0.3, 0.3, 0.3]
    new = mixed(seed=1)[0]
    np.testing.assert_allclose(again.scores(new), portfolio.scores(new), atol=1e-12, rtol=0)
    assert pack(again) == pack(portfolio)


def test_sparse_rows_after_storage():
    X, y = gaussians(60)
    X = csr_matrix(np.where(X > 0.5, X, 0))
    model = Linear(table_of(X.toarray())).fit(X, y)
    (again,) = unpack(pack(Portfolio((member("linear", model),), (), np.ones(3) / 3)), "it").members
    np.testing.assert_allclose(again.model.log_probs(X), model.log_probs(X), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("weighted", [False, True])
def test_trees_give_what_scikit_learn_gives(kind, weighted):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (150, 4)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] + rng.integers(0, 3, 150) > 6).astype(int) + (X[:, 2] > 4)
    forest = kind(7, random_state=0).fit(X, y, rng.random(150) if weighted else None)
    trees = Trees.from_sklearn(forest)
    assert len(trees.roots) == 7
    assert trees.depth == max(one.tree_.max_depth for one in forest.estimators_)
    # Halves are thresholds of the random forest: at one, a row goes to the left.
    grid = rng.integers(0, 12, (2 * CHUNK + 3, 4)) / 2
    for rows in (X, grid, grid[:1], grid[:CHUNK], rng.normal(size=(50, 4)) * 3, grid + 1e-9):
        np.testing.assert_allclose(trees.predict_proba(rows), forest.predict_proba(rows), atol=1e-12, rtol=0)
    np.testing.assert_array_equal(trees.predict_proba(csr_matrix(grid)), trees.predict_proba(grid))
    assert trees.predict_proba(grid[:0]).shape == (0, 3)


def test_thresholds_of_the_trees_are_met_exactly():
    """Every threshold as a row of float32: which side it falls on is decided as in scikit-learn."""
    X, y = gaussians(80, features=1, prior=[1.0], apart=0.0)
    y = (X[:, 0] + np.random.default_rng(1).normal(size=80) > 0).astype(int)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    cuts = np.concatenate([one.tree_.threshold[one.tree_.children_left >= 0] for one in forest.estimators_])
    rows = np.concatenate([cuts.astype(np.float32), np.nextafter(cuts.astype(np.float32), np.float32(9))])[:, None]
    found = Trees.from_sklearn(forest).predict_proba(rows)
    np.testing.assert_allclose(found, forest.predict_proba(rows), atol=1e-12, rtol=0)


def test_trees_without_a_split():
    X, y = np.zeros((9, 2), dtype=np.float32), np.arange(9) % 3
    forest = ExtraTreesClassifier(3, random_state=0).fit(X, y)
    trees = Trees.from_sklearn(forest)
    assert trees.depth == 0
    np.testing.assert_allclose(trees.predict_proba(X), forest.predict_proba(X), atol=1e-12, rtol=0)


def test_the_file_is_plain_arrays(both, tmp_path):
    path = tmp_path / "learners.safetensors"
    path.write_bytes(pack(both[0]))
    with safe_open(path, "np") as file:
        about = json.loads(file.metadata()["csst"])
        assert {"prior", "0.weights", "0.intercept", "1.0.threshold", "1.1.probs"} <= set(file.keys())
    assert about["format"] == 2
    assert [(one["name"], one["kind"]) for one in about["members"]] == [("linear", "linear"), ("forest", "forest")]


def test_a_learner_of_the_users_own_is_refused(both):
    X, y = gaussians(60)
    own = member("GaussianNB", wrap(GaussianNB()).fit(X, y))
    for members in ((own,), (*both[0].members, own)):
        with pytest.raises(InputError, match="GaussianNB cannot be stored without running code: use linear"):
            pack(Portfolio(members, (), np.ones(3) / 3))


def test_a_truncated_file_is_refused(both):
    content = pack(both[0])
    header = 8 + int.from_bytes(content[:8], "little")
    for size in (0, 1, 7, 8, 9, 100, header - 1, header, header + 1, len(content) // 2, len(content) - 1):
        with pytest.raises(InputError, match="my file cannot be read as stored learners"):
            unpack(content[:size], "my file")
    with pytest.raises(InputError, match="my file cannot be read"):
        unpack(content + b"\0", "my file")


def test_a_flipped_byte_of_the_header_is_refused_or_harmless(both):
    """A name may be another afterwards; no number may, and nothing else than InputError is raised."""
    portfolio, rows = both
    content, wanted, refused = pack(portfolio), portfolio.scores(rows[:2]), 0
    header = 8 + int.from_bytes(content[:8], "little")
    for at in range(header):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        try:
            again = unpack(bytes(damaged), "my file")
        except InputError:
            refused += 1
            continue
        np.testing.assert_allclose(again.scores(rows[:2]), wanted, atol=1e-12, rtol=0)
    assert refused > 0.9 * header


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'\\"format\\": 2', b'\\"format\\": 1', "format 1, and this csst reads 2"),
        (b'\\"format\\": 2', b'\\"farmot\\": 2', "format"),
        (b'\\"kind\\": \\"linear\\"', b'\\"kind\\": \\"forest\\"', "0.roots"),
        (b'\\"kind\\": \\"forest\\"', b'\\"kind\\": \\"linear\\"', "mean"),
        (b'"csst":', b'"ssct":', "csst"),
        (b'"prior"', b'"proir"', "prior"),
        (b'"0.weights"', b'"9.weights"', "weights"),
        (b'"1.1.probs"', b'"1.2.probs"', "1.probs"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(both, old, new, says):
    content = pack(both[0])
    assert content.count(old) == 1
    with pytest.raises(InputError, match=rf"^my file cannot be read as stored learners: .*{says}"):
        unpack(content.replace(old, new), "my file")


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"PK\x03\x04 and so on", b"\xff" * 64, b"\0" * 64])
def test_what_is_no_safetensors_file_is_refused(content):
    with pytest.raises(InputError, match="x cannot be read as stored learners"):
        unpack(content, "x")
