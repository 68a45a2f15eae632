"""Evidence that grows label by label: exact on all sequences, valid whatever the model expects, and what it costs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import csst
from csst.rules.betting import STAKES, Bets, betting_p_value, choose_share, decide, log_wealth, place_bets, price_bets
from csst.rules.claims import Claim, read_claims
from tests.helpers.exact_tests import labels_for_power

DELTA = 0.1


def bound_of(text: str, classes: int = 2) -> Claim:
    (bound,) = read_claims(csst.objective(f"max accuracy s.t. {text}").bind(classes))
    return bound


def test_wealth_is_that_of_a_stake_which_follows_from_earlier_rows() -> None:
    gains, loss = np.array([0.2, 0.2, -0.8, 0.0, 0.2]), 0.8
    singles = [1.0] * len(STAKES)
    wealth, path = 1.0, []
    for gain in gains:
        stake = sum(b / loss * w for b, w in zip(STAKES, singles, strict=True)) / sum(singles)
        wealth *= 1 + stake * gain
        singles = [w * (1 + b / loss * gain) for b, w in zip(STAKES, singles, strict=True)]
        path.append(math.log(wealth))
    assert log_wealth(gains, loss) == pytest.approx(path)


@pytest.mark.parametrize("value", [0.5, 0.8])
def test_wealth_reaches_its_limit_no_more_often_than_stated_on_all_sequences(value: float) -> None:
    sequences = np.array(list(itertools.product([0, 1], repeat=12)))
    mass = np.where(sequences == 1, value, 1 - value).prod(1)
    p = betting_p_value(sequences - value, value)
    for delta in (0.05, 0.1, 0.3):
        assert mass[p <= delta].sum() <= delta + 1e-12
    wealth = np.exp(log_wealth(sequences - value, value)[:, -1])
    assert mass @ wealth == pytest.approx(1)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_what_the_model_expects_never_costs_validity(is_shuffled: bool) -> None:
    # recall of class 1 at r - .001; g is the true expectation, or that of another row
    rng, draws, size, batch = np.random.default_rng(0), 1000, 200, 10
    chance = rng.beta(4, 1, (draws, size))
    is_right = rng.random((draws, size)) < chance
    value = 0.8 + 0.001
    expected = chance - value
    others = rng.beta(4, 1, (draws, size, batch)).mean(-1) - value
    if is_shuffled:
        expected = rng.permuted(expected, axis=1)
    bets = Bets(bound_of(f"accuracy >= {value}"), is_right - value, np.arange(1, size + 1), value, 1 - value)
    adjusted = bets.adjust(expected, others, 0.5)
    assert adjusted.gains.min() >= -adjusted.largest_loss
    p = betting_p_value(adjusted.gains, adjusted.largest_loss)
    assert (p <= DELTA).mean() <= 0.119


def test_what_the_model_expects_gives_power_where_it_is_right_and_is_left_where_it_is_not() -> None:
    # The model knows the label of nearly every row: little is left to chance.
    rng, draws, size, value = np.random.default_rng(1), 300, 150, 0.8
    is_right = rng.random((draws, size)) < 0.88
    knows = rng.random((draws, size)) < 0.97
    expected = np.where(knows, is_right, ~is_right) - value
    means = rng.binomial(100, 0.88, (draws, size)) / 100 - value
    bets = Bets(bound_of("accuracy >= 0.8"), is_right - value, np.arange(1, size + 1), value, 1 - value)
    share = choose_share(bets.gains[0], expected[0], value, 1 - value)
    assert share >= 0.5
    plain = (betting_p_value(bets.gains, bets.largest_loss) <= DELTA).mean()
    adjusted = bets.adjust(expected, means, share)
    assert (betting_p_value(adjusted.gains, adjusted.largest_loss) <= DELTA).mean() > plain + 0.1
    noise = rng.permuted(expected[0])
    assert choose_share(bets.gains[0], noise, value, 1 - value) <= 0.25


@pytest.mark.parametrize("text", ["recall[1] >= 0.7", "precision[1] >= 0.7", "f1[1] >= 0.6", "coverage[1] <= 0.5"])
def test_gains_have_the_sign_of_the_bound(text: str) -> None:
    rates, prior = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.6, 0.4])
    for shift in (-0.05, 0.05):
        moved = rates + shift * np.array([[1, -1], [-1, 1]])
        bound = bound_of(text)
        confusion = csst.Confusion(moved, prior)
        metric = float(getattr(confusion, bound.metric)[1])
        is_true = metric >= bound.value if bound.is_lower else metric <= bound.value
        shares = np.array([0.0, 1.0]) if bound.metric == "recall" else prior
        gain = float((shares[:, None] * moved * bound.payoff(2)).sum())
        assert (gain >= -1e-12) == is_true


def test_bets_within_classes_wait_for_a_row_of_every_class() -> None:
    labels, predictions = np.array([0, 0, 1, 0, 1]), np.array([0, 1, 1, 0, 0])
    bets = place_bets(bound_of("precision[1] >= 0.5"), labels, predictions, np.array([0.5, 0.5]), 2)
    assert bets.ends.tolist() == [3, 5]
    assert bets.gains == pytest.approx([0.25, -0.25])
    recall = place_bets(bound_of("recall[1] >= 0.5"), labels, predictions, None, 2)
    assert recall.gains == pytest.approx([0.5, -0.5])
    assert recall.ends.tolist() == [3, 5]


def test_certified_refuted_undecided_and_when() -> None:
    bound = bound_of("recall[1] >= 0.5")
    good = np.ones(20, dtype=np.int64)
    decision = decide([place_bets(bound, good, good, None, 2)], DELTA, 20)
    assert decision.verdict == "certified"
    before = decision.labels - 1
    assert decide([place_bets(bound, good[:before], good[:before], None, 2)], DELTA, before).verdict == "undecided"
    refuted = decide([place_bets(bound, good, 1 - good, None, 2)], DELTA, 20)
    assert refuted.verdict == "refuted"
    assert refuted.bound == "recall[1] >= 0.5"
    nothing = decide([place_bets(bound, 1 - good, good, None, 2)], DELTA, 20)
    assert nothing.verdict == "undecided"
    assert nothing.more is None


def test_all_bounds_must_be_proved_and_any_can_be_disproved() -> None:
    labels = np.tile([0, 1], 20)
    first = np.zeros(40, dtype=np.int64)
    bounds = read_claims(csst.objective("max accuracy s.t. recall >= 0.5").bind(2))
    assert decide([place_bets(b, labels, labels, None, 2) for b in bounds], DELTA, 40).verdict == "certified"
    decision = decide([place_bets(b, labels, first, None, 2) for b in bounds], DELTA, 40)
    assert (decision.verdict, decision.bound) == ("refuted", "recall[1] >= 0.5")


def test_the_number_of_further_labels_decides_in_four_cases_of_five() -> None:
    """With the rate drawn from what nine hits in ten leave open, and wealth on either side by plain loops."""
    bound = bound_of("recall[1] >= 0.8")
    hits = np.array([0] + [1] * 9)
    bets = place_bets(bound, np.ones(10, dtype=np.int64), hits, None, 2)
    more = price_bets(bets, DELTA)
    assert more is not None
    assert more > labels_for_power(0.8, 0.95, DELTA) / 2
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(400):
        rate = rng.beta(9.5, 1.5)
        further_gains = (rng.random(more) < rate) - 0.8
        gains = np.concatenate([bets.gains, further_gains])
        is_proved = betting_p_value(gains, 0.8) <= DELTA
        is_disproved = betting_p_value(-gains, 0.2) <= DELTA
        decided += bool(is_proved or is_disproved)
    assert 0.7 <= decided / 400 <= 0.9


def test_a_short_record_whose_estimate_is_next_to_the_bound_does_not_ask_for_thousands() -> None:
    for number in (2, 5):  # (2 + .5) / 3 = .83
        ones = np.ones(number, dtype=np.int64)
        more = price_bets(place_bets(bound_of("recall[1] >= 0.85"), ones, ones, None, 2), DELTA)
        assert more is not None
        assert 20 < more < 400
