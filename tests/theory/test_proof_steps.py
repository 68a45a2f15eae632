"""The numbered steps in the proofs of Theorem 1 and its lemmas, on finite spaces, by plain loops."""

from __future__ import annotations

import math
import random

import pytest
import torch

from csst.maths.confusion import Confusion
from csst.theory import lemma_bound, weighted_error
from tests.theory.plain import c_of, instance

SEEDS = range(120)


def random_classifier(space, rng):
    """Any classifier, or, more often, one that is nearly the best."""
    best = [min(range(space.K), key=lambda k: space.cost[x][k]) for x in range(space.n)]
    return tuple(k if rng.random() < 0.7 else rng.randrange(space.K) for k in best)


def test_theorem_1_step_by_step():
    """Paper, gamma-gamma', errw_pw_errw_gstar and errw-lem-applied, for random F and F*."""
    applied, closest = 0, 0.0
    for seed in SEEDS:
        space, pl, _ = instance(seed)
        rng = random.Random(seed)
        F, star = random_classifier(space, rng), random_classifier(space, rng)
        total, pairs = space.total, space.expansion()
        mistakes = space.mass(space.differ(pl, star))
        at = (space.err(pl) + space.err(star)) / total
        assert mistakes <= at + 1e-12
        g, other = c_of(pairs, at), c_of(pairs, mistakes)
        assert g <= other
        step = total * space.mass(space.differ(F, star)) + space.err(star)
        assert space.err(F) <= step + 1e-9
        if g <= 1 + 1e-9 or math.isinf(g):
            continue
        applied += 1
        followed, unsteady, unsteady_star = (
            space.mass(points) for points in (space.differ(F, pl), space.unsteady(F), space.unsteady(star))
        )
        written = (g + 1) / (g - 1) * followed + 2 * g / (g - 1) * (unsteady + unsteady_star) - mistakes
        bound = lemma_bound(g, followed, unsteady, unsteady_star, mistakes)
        assert bound == pytest.approx(written)
        assert space.err(F) <= space.err(star) + total * bound + 1e-9
        closest = max(closest, space.err(F) / (space.err(star) + total * bound))
    assert applied >= 60
    assert closest > 0.5


def test_the_weighted_error_is_the_one_of_the_steps():
    """Paper, err_w of the same spaces, from the library: rates P_i(F = j)."""
    for seed in range(10):
        space, pl, _ = instance(seed)
        rates = [[sum(P[x] for x in range(space.n) if pl[x] == k) for k in range(space.K)] for P in space.P]
        confusion = Confusion(torch.tensor(rates).double(), torch.full((space.K,), 1 / space.K).double())
        assert weighted_error(confusion, torch.tensor(space.w)) == pytest.approx(space.err(pl), rel=1e-6)


def test_the_lemmas_sets():
    """Paper, def-of-q, m3_m1_disjoint_union and lem-m3-upper-bd1, for random F and H."""
    applied = 0
    for seed in SEEDS:
        space, pl, _ = instance(seed)
        rng = random.Random(seed)
        F, H = random_classifier(space, rng), random_classifier(space, rng)
        everything = set(range(space.n))
        S = everything - space.unsteady(F) - space.unsteady(H)
        other, wrong_pl = space.differ(F, pl), space.differ(pl, H)
        first, third = S & (everything - other) & wrong_pl, S & other & (everything - wrong_pl)
        follows, right = S & (everything - other), S & (everything - wrong_pl)
        assert not third & follows
        assert not first & right
        assert third | follows == first | right
        assert space.mass(follows) >= space.mass(everything - other) - space.mass(everything - S) - 1e-12
        mistakes = space.mass(wrong_pl)
        g = c_of(space.expansion(), mistakes) if mistakes > 0 else math.inf
        if g <= 1 + 1e-9:
            continue
        applied += 1
        q = space.mass(other | space.unsteady(F) | space.unsteady(H)) / (g - 1)
        assert space.mass(S & wrong_pl & space.differ(F, H)) <= q + 1e-12
    assert applied >= 40
