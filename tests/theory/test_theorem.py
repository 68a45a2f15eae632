"""Theorem 1 and its lemmas on finite spaces, where every set, classifier and term is visited, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from csst.errors import InputError
from csst.theory import exact_expansion, gamma, lemma_bound, theorem_bound, theoretical_objective
from csst.theory.bounds import classifier_bound
from tests.theory.plain import c_of, instance

SEEDS = range(300)


def ideal(space, rng):
    """F*: the smallest err_w among classifiers with R_{B,w} at most mu, by visiting all."""
    everyone = [(F, space.err(F), space.R(F)) for F in space.classifiers()]
    mu = rng.choice([0.0, 0.1, 0.3]) * space.total
    allowed = [one for one in everyone if one[2] <= mu + 1e-12]  # a constant classifier always is
    return everyone, min(allowed, key=lambda one: one[1])


def test_theorem_1_holds_on_hundreds_of_spaces():
    """Paper, thm:main-err-bd: for every F with L_w(F) <= L_w(F*), so for the minimizer; gamma by brute force."""
    applied = strong = improved = 0
    closest = 0.0
    for seed in SEEDS:
        space, pl, rng = instance(seed)
        everyone, (star, err_star, R_star) = ideal(space, rng)
        err_pl = space.err(pl)
        p_w = (err_pl + err_star) / space.total
        g = c_of(space.expansion(), p_w)
        if p_w > 1 or g <= 1 + 1e-9:
            continue
        applied, strong = applied + 1, strong + (g > 3)
        bound = theorem_bound(g, err_pl, err_star, R_star)
        improved += bound < err_pl
        reference = theoretical_objective(g, space.L(star, pl), R_star)
        for F, err, R in everyone:
            if theoretical_objective(g, space.L(F, pl), R) <= reference + 1e-12:
                assert err <= bound + 1e-9, (seed, F)
                closest = max(closest, err / bound)
    assert applied >= 150
    assert strong >= 60
    assert improved >= 20
    assert closest > 0.5  # a bound that is never near would not be tested at all


def test_lemma_holds_on_hundreds_of_spaces():
    """Paper, lem:err-bd: Q(F != H) <= L_{Q,H}(F) for every classifier F and for H = F* and a random H."""
    applied, closest = 0, 0.0
    for seed in SEEDS:
        space, pl, rng = instance(seed)
        everyone, (star, _, _) = ideal(space, rng)
        pairs = space.expansion()
        for H in (star, tuple(rng.randrange(space.K) for _ in range(space.n))):
            mistakes = space.mass(space.differ(pl, H))
            g = c_of(pairs, mistakes) if mistakes > 0 else math.inf
            if g <= 1 + 1e-9:
                continue
            applied += 1
            steady_H = space.mass(space.unsteady(H))
            for F, _, R in rng.sample(everyone, 100):
                bound = lemma_bound(g, space.mass(space.differ(F, pl)), R / space.total, steady_H, mistakes)
                differs = space.mass(space.differ(F, H))
                assert differs <= bound + 1e-9, (seed, F, H)
                closest = max(closest, differs / bound if bound > 1e-9 else 0.0)
    assert applied >= 150
    assert closest > 0.9


def test_the_steps_of_the_lemma():
    """Paper, lem:incl, lem:n1_cup_n2 and lem:m3-upper-bd, for random F and H."""
    applied = 0
    for seed in SEEDS:
        space, pl, rng = instance(seed)
        F, H = (tuple(rng.randrange(space.K) for _ in range(space.n)) for _ in range(2))
        if rng.random() < 0.7:
            H = tuple(min(range(space.K), key=lambda k: space.cost[x][k]) for x in range(space.n))
        everything = set(range(space.n))
        S = everything - space.unsteady(F) - space.unsteady(H)
        wrong, wrong_pl, other = space.differ(F, H), space.differ(pl, H), space.differ(F, pl)
        V = wrong & wrong_pl & S
        assert not space.around(V) & (everything - wrong) & S
        assert space.around(V) & (everything - wrong_pl) & S <= other
        mistakes = space.mass(wrong_pl)
        g = c_of(space.expansion(), mistakes) if mistakes > 0 else math.inf
        if g <= 1 + 1e-9:
            continue
        applied += 1
        q = space.mass(other | (everything - S)) / (g - 1)
        assert space.mass(V) <= q + 1e-12
        third = S & other & (everything - wrong_pl)
        rest = space.mass(everything - S) + space.mass(other) - mistakes
        assert space.mass(third) <= q + rest + 1e-12
    assert applied >= 100


def test_bound_of_any_classifier():
    """Paper, last theorem of the appendix "All-Layer Margin", before sampling: it holds for every F."""
    applied = 0
    for seed in SEEDS:
        space, pl, rng = instance(seed)
        everyone, (_, err_star, R_star) = ideal(space, rng)
        err_pl = space.err(pl)
        g = c_of(space.expansion(), (err_pl + err_star) / space.total)
        if g <= 1 + 1e-9:
            continue
        applied += 1
        for F, err, R in rng.sample(everyone, 60):
            assert err <= classifier_bound(g, space.L(F, pl), R, R_star, err_pl, err_star) + 1e-9
    assert applied >= 150


@pytest.mark.parametrize("seed", range(40))
def test_expansion_matches_brute_force(seed):
    """Paper, def:c-exp-def and assump:c-exp: the expansion of P_w over all sets equals plain loops."""
    space, pl, _ = instance(seed)
    near = np.array([[z in space.N[x] for z in range(space.n)] for x in range(space.n)])
    c, pairs = exact_expansion(space.Q, near), space.expansion()
    for p in (0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0, *(size for size, _ in pairs[:20])):
        assert c(p) == pytest.approx(max(1.0, min(c_of(pairs, p), 1 / p))), p
    err_pl = space.err(pl)
    expected = max(1.0, min(c_of(pairs, err_pl / space.total), space.total / err_pl))
    assert gamma(c, err_pl, 0.0, space.w) == pytest.approx(expected)


def test_a_point_is_its_own_neighbor():
    lonely = exact_expansion([0.25, 0.75], np.zeros((2, 2)))
    assert [lonely(0.3), lonely(1.0)] == [1.0, 1.0]


def test_all_sets_of_many_points_are_too_many():
    with pytest.raises(InputError, match="at most 20 points"):
        exact_expansion(np.full(21, 1 / 21), np.eye(21))
