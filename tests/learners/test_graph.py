"""A portfolio as a torch module gives the portfolio's scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.learners.catalog import Problem, make_variants
from csst.learners.forest import Forest, Trees
from csst.learners.graph import PortfolioScores
from csst.learners.linear import Linear
from csst.learners.portfolio import Labeled, Member, Portfolio, fit_portfolio
from csst.learners.sklearn_classifier import wrap
from csst.learners.store import pack, unpack
from tests.learners.samples import gaussians, mixed, table_of


@pytest.mark.parametrize("classes", [2, 3])
def test_the_graph_gives_the_portfolios_probabilities(classes):
    X, y = gaussians(90, np.ones(classes) / classes)
    X = X * np.float32([1, 30, 0.1, 2]) + np.float32([0, 50, -1, 0])
    members = [[Linear(table_of(X), 1.0)], [Linear(table_of(X).with_common_scale, 0.1, "other")]]
    portfolio, _ = fit_portfolio(members, Labeled(X, y), X[:0])
    portfolio = Portfolio(portfolio.members, (), np.linspace(1, 3, classes) / np.linspace(1, 3, classes).sum())
    found = torch.softmax(PortfolioScores(portfolio)(torch.from_numpy(X)), 1)
    np.testing.assert_allclose(found, portfolio.probs(X), atol=1e-5)


def test_the_graph_of_several_members_with_categories():
    rows, y, table = mixed()
    models = [Linear(table, penalty).fit(rows, y) for penalty in (0.01, 1.0)]
    calibrations = [Calibration(2.0, np.array([0.5, -0.5, 0.0])), Calibration(0.7, np.array([-0.1, 0.0, 0.1]))]
    members = tuple(Member("linear", model, c, 0.0, 0.5) for model, c in zip(models, calibrations, strict=True))
    portfolio = Portfolio(members, (), np.array([0.6, 0.3, 0.1]))
    rows[:4, 1] = -1  # a category that was never met
    found = PortfolioScores(portfolio)(torch.from_numpy(rows))
    np.testing.assert_allclose(found, portfolio.scores(rows) + np.log(portfolio.prior), atol=1e-4)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_the_graph_of_the_other_members(is_mixed):
    rows, y, table = mixed()
    if not is_mixed:
        rows = rows[:, [0, 2]]
        table = table_of(rows)
    problem = Problem(table, rows, len(rows), len(rows), 3)
    models = [(name, make_variants(name, problem)[0].fit(rows, y)) for name in ("kernel", "propagation", "lda")]
    weights = (0.5, 0.3, 0.2)
    members = tuple(
        Member(name, model, Calibration(1.5, np.array([0.2, -0.2, 0.0])), 0.0, weight)
        for (name, model), weight in zip(models, weights, strict=True)
    )
    portfolio = Portfolio(members, (), np.array([0.6, 0.3, 0.1]))
    new = mixed(seed=1)[0] if is_mixed else mixed(seed=1)[0][:, [0, 2]]
    found = PortfolioScores(portfolio)(torch.from_numpy(new))
    np.testing.assert_allclose(found, portfolio.scores(new) + np.log(portfolio.prior), atol=5e-3)


@pytest.mark.parametrize("is_stored", [False, True])
def test_the_graph_of_a_forest(is_stored):
    """Rows at a threshold go the same way, and a category that was never met is a number like any other."""
    rows, y, _ = mixed()
    model = Forest(trees=7).fit(rows, y)
    portfolio = Portfolio((Member("forest", model, Calibration.identity(3), 0.0, 1.0),), (), np.array([0.5, 0.3, 0.2]))
    portfolio = unpack(pack(portfolio), "a file") if is_stored else portfolio
    new = np.repeat(mixed(seed=1)[0][:40], 2, axis=0)
    trees = Trees.from_sklearn(model.forests[1])
    new[::2, 0] = trees.threshold[trees.feature == 0][:40].astype(np.float32)
    new[:4, 1] = -1
    found = torch.softmax(PortfolioScores(portfolio)(torch.from_numpy(new)), 1)
    np.testing.assert_allclose(found, portfolio.probs(new), atol=1e-6)


def test_other_members_cannot_be_exported():
    X, y = gaussians(60)
    members = [(Linear(table_of(X)), "linear"), (wrap(GaussianNB()), "GaussianNB")]
    fitted = tuple(Member(name, one.fit(X, y), Calibration.identity(3), 0.0, 0.5) for one, name in members)
    with pytest.raises(InputError, match=r"member GaussianNB cannot be exported, .*: fit with learner='auto'"):
        PortfolioScores(Portfolio(fitted, (), np.ones(3) / 3))
