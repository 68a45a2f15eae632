"""Every fitted learner is a module: rows, tensors, a stored file and a traced graph get the same answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.naive_bayes import GaussianNB

from csst.errors import InputError
from csst.fitting.model_file import unpack_working
from csst.learners.catalog import Problem, make_variants
from csst.learners.forest import Forest
from csst.learners.linear import Linear
from csst.learners.portfolio import LabeledRows, fit_portfolio
from csst.learners.self_training import SelfTrained
from csst.learners.sklearn_classifier import as_learner
from csst.models.stored import pack, refuse_foreign
from tests.learners.samples import gaussians, member_of, mixed, portfolio_of, table_of

NAMES = ("linear", "forest", "kernel", "propagation", "lda", "self-trained")


def make_learner(name, rows, table):
    if name == "forest":
        return Forest(trees=7)
    if name == "self-trained":
        return SelfTrained(Linear(table), rows, 1, 0.3)
    return make_variants(name, Problem(table, rows, rows.shape[0], rows.shape[0], 3))[-1]


def trace(model, x, monkeypatch):
    """Return what a graph of the model would give: no operation but those of tensors."""
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        return model(x)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_and_categories(name, monkeypatch):
    rows, labels, table = mixed()
    # Unlabeled rows differ from labeled ones: among neighbors at the same distance, a graph may choose others.
    model = make_learner(name, rows[60:], table).fit(rows[:60], labels[:60])
    member = member_of(model, name, 1.3, (0.2, -0.2, 0.0), 0.7, 0.4)
    portfolio = portfolio_of(member, left_out={"GaussianNB": 0.9})
    new = mixed(seed=1)[0]
    new[:4, 1] = -1  # a category that was never met
    logs = portfolio.log_probs(new)
    np.testing.assert_allclose(np.exp(logs).sum(1), 1, atol=1e-12)
    content = pack(portfolio)
    stored = unpack_working(content, "a file", torch.zeros(1, 4))
    np.testing.assert_allclose(stored.log_probs(new), logs, atol=1e-12, rtol=0)
    assert pack(stored) == content
    assert (stored.members[0].name, stored.members[0].loss, stored.left_out) == (name, 0.4, {"GaussianNB": 0.9})
    for model in (portfolio, stored):
        np.testing.assert_allclose(trace(model, torch.from_numpy(new), monkeypatch), logs, atol=1e-5)
    assert portfolio.log_probs(new[:0]).shape == (0, 3)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "forest"])
def test_sparse_rows(name):
    X, labels = gaussians(60)
    X = np.where(X > 0.5, X, 0)
    rows = csr_matrix(X)
    portfolio = portfolio_of(make_learner(name, rows, table_of(X)).fit(rows, labels))
    logs = portfolio.log_probs(rows)
    np.testing.assert_allclose(portfolio.log_probs(X), logs, atol=1e-5)
    stored = unpack_working(pack(portfolio), "a file", torch.zeros(1, 4))
    np.testing.assert_allclose(stored.log_probs(rows), logs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fitted_portfolio(classes):
    X, y = gaussians(80, np.ones(classes) / classes, features=3)
    members = [[Linear(table_of(X)), Linear(table_of(X).with_common_scale)], [Forest(trees=5)]]
    portfolio, _ = fit_portfolio(members, LabeledRows(X, y), X[:0])
    stored = unpack_working(pack(portfolio), "a file", torch.zeros(1, 3))
    np.testing.assert_allclose(stored.log_probs(X), portfolio.log_probs(X), atol=1e-12, rtol=0)
    assert stored.describe() == portfolio.describe()


def test_a_column_far_from_zero(monkeypatch):
    X, y = gaussians(90)
    X[:, 0] = 1.6e9 + 1000 * X[:, 0]  # seconds since 1970
    model = Linear(table_of(X)).fit(X, y)
    np.testing.assert_allclose(trace(model, torch.from_numpy(X), monkeypatch), model.log_probs(X), atol=1e-9)


def test_a_classifier_of_scikit_learn_is_used_but_neither_stored_nor_exported():
    X, y = gaussians(60)
    own, foreign = (learner.fit(X, y) for learner in (Linear(table_of(X)), as_learner(GaussianNB())))
    portfolio = portfolio_of(own, foreign)
    assert portfolio.log_probs(X).shape == (60, 3)
    for refuse in (pack, refuse_foreign):
        with pytest.raises(InputError, match=r"learner GaussianNB can be neither stored nor exported, .*: use csst's"):
            refuse(portfolio)
