"""The game against a player that answers every gain with its best rule at once, as a network that has learned would."""

import pytest
import torch

import csst
from csst.maths.constraint_scale import MOST_WEIGHT, STEEP, ConstraintUnits
from csst.maths.multipliers import CHANCE_UPDATES

K, ROWS = 5, 4000
PRIOR = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05], dtype=torch.float64)
EVEN = torch.full((K,), 1 / K, dtype=torch.float64)
PAPER = ["accuracy", "mean-recall", "min-recall", "min-ht-recall", "mean-recall-coverage", "mean-recall-ht-coverage"]


def make_rows(sharpness=2.0):
    """Labels under an even prior, and posteriors (N, K) under the training prior."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS) % K
    noise = torch.randn(ROWS, K, generator=generator, dtype=torch.float64)
    scores = noise + sharpness * torch.nn.functional.one_hot(labels, K)
    return labels, torch.softmax(sharpness * scores + PRIOR.log(), 1)


def answer(gain, labels, posterior):
    return csst.Confusion.from_predictions(labels, (posterior @ gain.matrix).argmax(1), K)


def random_confusion(seed):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 30, (K, K), generator=generator)
    return csst.Confusion.from_counts(counts)


def play(sentence, updates=60):
    labels, posterior = make_rows()
    game = csst.Multipliers(csst.objective(sentence), PRIOR)
    seen = []
    for t in range(updates):
        seen.append(answer(game.gain, labels, posterior))
        game.update(seen[-1], step_size=0.25 * (1 - t / updates))
    return game, seen


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_gains_do_not_remember(name):
    """Where the gain does not depend on the confusion, the mean of confusions changes not one bit of it."""
    game = csst.Multipliers(csst.objective(name), PRIOR)
    assert game.units.scales.tolist() == [1.0] * len(game.value)
    for seed in range(4):
        confusion = random_confusion(seed)
        game.update(confusion)
        newest = csst.gain_matrix(game.objective, game.value, confusion, PRIOR)
        assert torch.equal(game.gain.matrix, newest.matrix)


def test_the_mean_of_confusions_by_hand():
    """R_mean after three updates, gamma_t = 2/(t + 1 + c), from chance."""
    game, mean = csst.Multipliers(csst.objective("max mean(f1)"), PRIOR), csst.Confusion.uniform(PRIOR).rates.clone()
    for t in (1, 2, 3):
        confusion = random_confusion(t)
        mean = mean + 2 / (t + 1 + CHANCE_UPDATES) * (confusion.rates - mean)
        game.update(confusion)
    expected = csst.gain_matrix(game.objective, [], csst.Confusion(mean, confusion.prior), PRIOR)
    torch.testing.assert_close(game.gain.matrix, expected.matrix, rtol=1e-12, atol=0)
    copy = csst.Multipliers(csst.objective("max mean(f1)"), PRIOR)
    copy.load_state_dict(game.state_dict())
    for element in (game, copy):
        element.update(random_confusion(7))
    assert torch.equal(game.entries, copy.entries)


@pytest.mark.parametrize("sentence", ["max mean(jaccard)", "max mean(f1)", "max gmean(recall)", "max hmean(recall)"])
def test_non_linear_objectives_settle(sentence):
    labels, posterior = make_rows()
    game, seen = play(sentence)
    goal = game.objective
    values = [float(goal.value(c)) for c in seen]
    balanced = float(goal.value(answer(csst.Gain(1 / PRIOR), labels, posterior)))
    assert min(values[-20:]) > balanced - 0.01
    assert max(values[-10:]) - min(values[-10:]) < 0.01


@pytest.mark.parametrize(
    "sentence",
    [
        "max accuracy s.t. recall[4] >= 0.9, precision[4] >= 0.5",
        "max accuracy s.t. recall[3] >= 0.85, precision[3] >= 0.6",
        "max mean(recall) s.t. precision[3] >= 0.8",
        "max mean(f1) s.t. recall >= 0.7",
    ],
)
def test_constraints_that_can_be_met_are_met_in_the_end(sentence):
    game, seen = play(sentence)
    assert float(game.objective.slack(seen[0]).min()) < 0
    assert all(float(game.objective.slack(c).min()) > -0.025 for c in seen[-5:])


def test_a_class_that_is_never_predicted_does_not_flatten_the_gain():
    """The slope of its precision is a thousand times that at chance: other classes' rows became uniform."""
    game = csst.Multipliers(csst.objective("max accuracy s.t. recall[4] >= 0.8, precision[4] >= 0.5"), PRIOR)
    never = torch.eye(K, dtype=torch.float64)
    never[4] = never[0]
    for _ in range(50):
        game.update(csst.Confusion(never, EVEN))
        rows = game.gain.optimal_rows
        assert bool((rows.argmax(1) == torch.arange(K)).all())
        assert float((rows.diagonal() / (rows - rows.diagonal().diag()).amax(1)).min()) > 1.5
    assert float(game.value[1]) == pytest.approx(MOST_WEIGHT / STEEP * float(game.units.scales[1]))


def test_steep_constraints_take_smaller_steps():
    """recall[4] gives 1/pi_4 to a gain, mean(recall) at most 1/(K pi_4): a step of 3 omega / K times the slack."""
    game = csst.Multipliers(csst.objective("max mean(recall) s.t. recall[4] >= 0.8, coverage[0] <= 0.3"), PRIOR)
    assert game.units.scales.tolist() == pytest.approx([STEEP / K, 1.0])
    assert game.value.tolist() == pytest.approx([STEEP / K**2, 1 / K])
    game.update(csst.Confusion.uniform(EVEN), step_size=0.5)
    assert game.value.tolist() == pytest.approx([STEEP / K**2 + 0.5 * STEEP * (0.8 - 1 / K) / K, 1 / K - 0.5 * 0.1])


CURVED = "max mean(f1) s.t. precision >= 0.5, recall[head] >= 0.3, jaccard[2] >= 0.1"


@pytest.mark.parametrize("sentence", [CURVED, "max accuracy s.t. coverage <= 0.3"])
def test_slopes_by_margins_are_those_by_rates(sentence):
    goal = csst.objective(sentence).bind_prior(PRIOR)

    class Plain(csst.Objective):
        domain = goal.domain

        def utility(self, c):
            return goal.utility(c)

        def payoff(self, c):
            return goal.payoff(c)

    one, two = (ConstraintUnits.measure(element, PRIOR, goal.metric_prior) for element in (goal, Plain()))
    torch.testing.assert_close(one.slopes, two.slopes, rtol=1e-9, atol=0)
    torch.testing.assert_close(one.scales, two.scales, rtol=1e-9, atol=0)
    assert one.curved == two.curved == ((0, 1, 2, 3, 4, 6) if sentence == CURVED else ())
    c = random_confusion(3)
    torch.testing.assert_close(one.damp(c), two.damp(c), rtol=1e-9, atol=0)


def rates_with(recall):
    """Rates (K, K) with these recalls, wrong predictions spread evenly."""
    own = torch.tensor(recall, dtype=torch.float64)
    rates = ((1 - own) / (K - 1))[:, None].expand(K, K).clone()
    rates[range(K), range(K)] = own
    return csst.Confusion(rates, EVEN)


def test_a_multiplier_that_waits_stands_still_until_its_class_has_begun_to_be_learned():
    game = csst.Multipliers(csst.objective("max min(recall)"), PRIOR, waits=True)
    for _ in range(20):
        game.update(rates_with([0.9, 0.8, 0.5, 0.1, 0.0]))
    assert game.value[3:].tolist() == pytest.approx([0.2, 0.2], rel=0.1)
    assert game.value[2] > 2 * game.value[0], "the others move on"
    before = game.value.clone()
    game.update(rates_with([0.9, 0.8, 0.5, 0.5, 0.0]))
    game.update(rates_with([0.9, 0.8, 0.5, 0.0, 0.0]))
    assert game.value[3] > 1.1 * before[3], "once learned, a class that is lost again counts"
    assert game.value[4] == pytest.approx(float(before[4]), rel=0.1)
    other = csst.Multipliers(csst.objective("max min(recall)"), PRIOR, waits=True)
    other.load_state_dict(game.state_dict())
    assert other.has_begun.tolist() == [True, True, True, True, False]


def test_without_multipliers_there_is_nothing_to_wait_for():
    game = csst.Multipliers(csst.objective("max accuracy"), PRIOR, waits=True)
    before = game.gain.matrix
    game.update(rates_with([0.9, 0.8, 0.5, 0.1, 0.0]))
    torch.testing.assert_close(game.gain.matrix, before)
    assert len(game.value) == 0


def test_the_price_of_a_constraint_waits_too_but_may_fall():
    game = csst.Multipliers(csst.objective("max mean(recall) s.t. coverage >= 0.19"), PRIOR, waits=True)
    for _ in range(5):
        game.update(rates_with([0.9, 0.9, 0.9, 0.9, 0.0]))
    coverage = rates_with([0.9, 0.9, 0.9, 0.9, 0.0]).coverage
    assert coverage[4] < 0.19 < coverage[0]
    assert game.value[4] == 0.2
    assert game.value[0] < 0.2
    free = csst.Multipliers(csst.objective("max mean(recall) s.t. coverage >= 0.19"), PRIOR)
    free.update(rates_with([0.9, 0.9, 0.9, 0.9, 0.0]))
    assert free.value[4] > 0.2
