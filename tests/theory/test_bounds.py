"""Gamma, the bounds' formulas, the assumptions, and the paper's remaining examples."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from csst.errors import InputError
from csst.theory import (
    GaussianExpansion,
    MarginSample,
    bayes_bounds,
    boundary,
    check_assumptions,
    error_fraction,
    from_pair,
    gamma,
    generalization_bound,
    largest_error,
    lemma_bound,
    mixture_expansion,
    theorem_bound,
    theoretical_objective,
    two_gaussians,
    useful_errors,
)
from csst.theory.bounds import classifier_bound, factors

W = torch.diag(torch.tensor([0.5, 0.3]))


def test_gamma():
    """Paper, assump:pseudo-labeler: gamma = c(p_w), p_w = (err_w(F_pl) + err_w(F*)) / |w|_1; at most 1 / p_w."""
    c = GaussianExpansion(1.0)
    assert error_fraction(0.1, 0.04, W) == pytest.approx(0.14 / 0.8)
    assert gamma(c, 0.1, 0.04, W) == pytest.approx(c(0.14 / 0.8))
    assert gamma(c, 0.0, 0.0, W) == math.inf
    assert gamma(GaussianExpansion(30.0), 0.3, 0.0, W) == pytest.approx(0.8 / 0.3)  # below 3
    with pytest.raises(InputError, match=r"<= \|w\|_1"):
        gamma(c, 0.8, 0.1, W)
    with pytest.raises(InputError, match="err_star must be a number >= 0"):
        gamma(c, 0.1, -0.1, W)


def test_formulas():
    """Paper, eq:ssl-non-decomp-obj-theoretical, thm:main-err-bd and lem:err-bd, term by term at gamma = 5."""
    assert factors(5.0) == pytest.approx((6 / 4, 10 / 4, 2 / 4))
    assert theoretical_objective(5.0, 0.2, 0.1) == pytest.approx(1.5 * 0.2 + 2.5 * 0.1)
    assert theorem_bound(5.0, 0.2, 0.03, 0.01) == pytest.approx(0.5 * 0.2 + 1.5 * 0.03 + 5 * 0.01)
    assert lemma_bound(5.0, 0.2, 0.1, 0.05, 0.04) == pytest.approx(1.5 * 0.2 + 2.5 * 0.15 - 0.04)
    assert classifier_bound(5.0, 0.2, 0.1, 0.01, 0.3, 0.03) == pytest.approx(0.3 + 0.25 + 0.025 - 0.3 + 0.06)
    # without mistakes gamma is infinite, and the formulas are their own limits
    assert theorem_bound(math.inf, 0.2, 0.03, 0.01) == pytest.approx(theorem_bound(1e12, 0.2, 0.03, 0.01))
    for bad in (1.0, 0.5, float("nan")):
        with pytest.raises(InputError, match="gamma > 1"):
            theorem_bound(bad, 0.1, 0, 0)


def test_generalization_bound():
    """Paper, appendix "All-Layer Margin", last theorem, rw-finite-bd and lw-finite-bd: "<=", 1/n, |w|_1 written out."""
    n, delta, t1, t2, C, total = 400, 0.1, 0.5, 0.2, 3.0, 0.8
    zeta = math.sqrt((math.log(1 / delta) + math.log(n)) / n)
    L = total * (0.1 + C / (t1 * math.sqrt(n)) + zeta)
    R = total * (0.05 + C / (t2 * math.sqrt(n)) + zeta)
    expected = 1.5 * L + 2.5 * R - 0.2 + 2 * 0.03 + 2.5 * 0.01
    sample = MarginSample(0.1, 0.05, (t1, t2), n, (1.0, 2.0))
    result = generalization_bound(5.0, sample, (0.2, 0.03), 0.01, W, delta)
    assert result == pytest.approx(expected)
    # with endless data only the fractions are left, and it is the bound of any classifier
    endless = generalization_bound(5.0, replace(sample, examples=10**14), (0.2, 0.03), 0.01, W, delta)
    assert endless == pytest.approx(classifier_bound(5.0, 0.08, 0.04, 0.01, 0.2, 0.03), abs=1e-4)
    with pytest.raises(InputError, match="thresholds > 0"):
        generalization_bound(5.0, replace(sample, thresholds=(0.0, 0.2)), (0.2, 0.0), 0.0, W)


def test_useful_errors():
    c = GaussianExpansion(1.0)
    low, high = useful_errors(c, 0.0, 0.0, torch.eye(2) / 2)
    assert low < 1e-3
    assert high == pytest.approx(largest_error(c), abs=2e-4)
    low, high = useful_errors(c, 0.01, 0.0, torch.eye(2) / 2)
    for error, good in ((low, True), (high, True), (low - 2e-3, False), (high + 2e-3, False)):
        g = gamma(c, error, 0.01, torch.eye(2) / 2)
        assert (theorem_bound(g, error, 0.01, 0.0) < error) == good
    assert useful_errors(c, 0.1, 0.1, torch.eye(2) / 2) is None
    assert useful_errors(c, 0.4, 0.0, torch.eye(2) / 2) is None


def test_assumptions():
    """Paper, assump:mu-small, assump:c-exp and assump:pseudo-labeler, each failing for its own reason."""
    c, eye = GaussianExpansion(1.0), torch.eye(2) / 2
    fine = check_assumptions(c, 0.1, 0.001, 0.001, eye)
    assert fine.hold
    assert fine.promise == pytest.approx(theorem_bound(c(0.101), 0.1, 0.001, 0.001))
    for case, words in (
        (check_assumptions(c, 0.9, 0.2, 0, eye), "exceeds"),
        (check_assumptions(GaussianExpansion(50.0), 0.34, 0, 0, eye), "at least 1/3"),
        (check_assumptions(c, 0.2, 0, 0, eye), "not above 3"),
        (check_assumptions(c, 0.1, 0.05, 0.0, eye), "not negligible"),
        (check_assumptions(c, 0.35, 0.3, 0, [[0.4, 0.2], [0.2, 0.4]]), "whatever the data"),
    ):
        assert not case.hold
        assert words in " ".join(case.against)
    assert check_assumptions(from_pair(0.5, 2.0), 0.2, 0, 0, eye).promise == pytest.approx(0.4)  # gamma 2: no use
    assert check_assumptions(from_pair(0.1, 2.0), 0.2, 0, 0, eye).promise is None  # gamma 1: no bound at all
    # c(p) <= 1/p: whatever the expansion, p_w of 1/3 or more never passes
    for error in np.linspace(1 / 3, 1, 20):
        assert not check_assumptions(GaussianExpansion(100.0), float(error), 0, 0, eye).hold


@pytest.mark.parametrize("d", [1.0, 7.0])
@pytest.mark.parametrize("ratio", [0.1, 1.0, 9.0])
def test_boundary_is_where_the_best_class_changes(d, ratio):
    """Paper, fig:disjoint_non_disjoint_supp (c), (d) and exa:r_gopt_bound: argmax_i w_i P_i(x), searched on a grid.

    The factor 2 that the example's proof prints before the logarithms would be wrong.
    """
    separation, w1, w2 = 2.0, ratio, 1.0
    grid = np.linspace(-6, 8, 140001)
    first = np.log(w1) - d / 2 * grid**2 >= np.log(w2) - d / 2 * (grid - separation) ** 2
    assert boundary(separation, w1, w2, d) == pytest.approx(grid[first].max(), abs=2e-4)
    assert boundary(separation, w1, w2, d) + boundary(separation, w2, w1, d) == pytest.approx(separation)


def test_boundary_moves_only_where_classes_overlap():
    """Paper, fig:disjoint_non_disjoint_supp: no weight moves it between disjoint classes; else w1/w2 does."""
    places = [boundary(2.0, ratio, 1.0, 4.0) for ratio in (0.25, 0.5, 1, 2, 4)]
    assert places == sorted(places)
    assert places[2] == 1.0
    grid = np.linspace(-1, 3, 401)
    first, second = np.maximum(0, 0.8 - np.abs(grid)), np.maximum(0, 0.8 - np.abs(grid - 2))
    inside = (first > 0) | (second > 0)
    rules = [(w * first >= second)[inside] for w in (0.01, 1.0, 100.0)]
    assert all((rule == rules[1]).all() for rule in rules)


def test_ideal_classifiers_in_high_dimension():
    """Paper, exa:r_gopt_bound: err_w and R_{B,w} of the Bayes rule vanish like a power of 1/d."""
    slopes = []
    for unequal in (lambda d: 1.0, math.sqrt):  # sup w_i / w_j = o(d)
        sizes = [10.0**k for k in (2, 3, 4, 5, 6)]
        result = []
        for d in sizes:
            apart = 4 * math.sqrt(math.log(d) / d)
            w = np.array([unequal(d), 1.0, 1.0])
            centers = apart * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
            result.append(bayes_bounds(centers, w / w.sum(), d, 1 / (2 * math.sqrt(d))))
        for which in (0, 1):
            logs = [math.log(one[which]) for one in result]
            slopes.append((logs[-1] - logs[0]) / math.log(sizes[-1] / sizes[0]))
    assert max(slopes) < -0.8  # d^-c with c near 4^2/8 = 2 for equal weights
    assert slopes[0] == pytest.approx(-2.1, abs=0.2)
    # the bounds are bounds: two classes, where the truth is known
    for weights in ((0.5, 0.5), (0.9, 0.1)):
        exact = two_gaussians(0.8, weights, 20.0, 0.1)
        above = bayes_bounds([[0.0], [0.8]], weights, 20.0, 0.1)
        assert exact.error == pytest.approx(above.error)
        assert exact.consistency <= above.consistency
    draw = np.random.default_rng(0)
    d, centers, w = 5.0, np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]]), np.array([0.5, 0.3, 0.2])
    wrong = 0.0
    for i, center in enumerate(centers):
        x = center + draw.standard_normal((20000, 2)) / math.sqrt(d)
        scores = np.log(w) - d / 2 * ((x[:, None] - centers) ** 2).sum(2)
        wrong += w[i] * (scores.argmax(1) != i).mean()
    assert 0.5 * bayes_bounds(centers, w, d, 0.0).error < wrong <= bayes_bounds(centers, w, d, 0.0).error + 0.003


def test_bad_gaussians():
    with pytest.raises(InputError, match="separation > 0"):
        boundary(0.0, 1, 1, 1)
    with pytest.raises(InputError, match="one weight"):
        bayes_bounds([[0.0], [1.0]], [1.0], 1.0, 0.1)


def test_mixture_needs_the_lightest_class():
    """The thresholds of exa:gamma-3 shrink by the fraction of the lightest class where classes are far apart."""
    assert largest_error(mixture_expansion(1.0, [0.9, 0.1])) == pytest.approx(
        0.1 * largest_error(GaussianExpansion(1.0))
    )
