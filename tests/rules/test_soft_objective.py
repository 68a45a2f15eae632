"""Smooth objectives: values by plain loops, gradients by finite differences, what an objective is seen to read."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import csst
from csst.errors import InputError
from csst.maths.confusion import Confusion, confusion_from_margins
from csst.maths.domains import Domain, Simplex
from csst.maths.gain import ConstantGain
from csst.maths.objectives import Objective
from csst.rules.soft_objective import FIRST_PENALTY, MOST_PENALTY, Prices, SoftObjective, WorstCase
from csst.rules.standard_errors import AutogradPayoffs, measure_standard_errors

PRIOR = np.array([0.5, 0.3, 0.15, 0.05])
K = 4

LINEAR = [
    "max mean(recall)",
    "max accuracy",
    "max min(recall)",
    "max min(coverage)",
    "max 0.7*mean(recall) + 0.3*min(recall)",
    "max min(recall[0], recall[1]) + 0.5*min(recall) - 0.2*coverage[2]",
    "max min(recall) s.t. coverage >= 0.9/K, coverage <= 1.1/K",
    "max mean(recall) s.t. recall[3] >= 0.8",
    "max min(recall[head], recall[tail]) s.t. coverage[tail] >= 0.1",
    "max mean(f1)",
    "max min(f1)",
    "max mean(jaccard) - 0.1*f1[1]",
    "max mean(recall) s.t. precision >= 0.6",
    "max recall[3] s.t. 0.2 <= precision[3], jaccard[0] <= 0.9*f1[1]",
]
CURVED = [
    "max gmean(recall)",
    "max hmean(recall)",
    "max qmean(recall)",
    "max 2*gmean(recall[0], precision) - 0.5*hmean(f1) + 0.1*coverage[1]",
    "max gmean(recall) s.t. f1[3] >= 0.5, coverage >= 0.9/K",
]
PRODUCTS = [
    "max precision[1]*recall[1]",
    "max gmean(recall)*accuracy",
    "max min(recall[0], gmean(recall))",
    "max accuracy s.t. hmean(recall) >= 0.4",
]


def smooth(text, beta=7.0, prior=PRIOR):
    goal = csst.objective(text) if isinstance(text, str) else text
    return SoftObjective(goal.bind_prior(torch.from_numpy(PRIOR)), prior, beta)


def random_rates(seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(K) * 2, K) * 0.5 + 0.5 * np.eye(K)


def margins(rates, prior=PRIOR):
    return np.diag(rates).copy(), prior @ rates


def draw_prices(one, seed=0):
    """Prices and a penalty as in the middle of a search."""
    values = np.zeros(len(one.margins))
    values[one.constraints] = np.random.default_rng(seed).uniform(0, 3, len(one.constraints))
    return Prices(values, 13.0)


def plain_soft_minimum(values, beta):
    return -math.log(sum(math.exp(-beta * v) for v in values) / len(values)) / beta


@pytest.mark.parametrize("beta", [0.5, 4.0, 30.0])
def test_soft_minimum_is_the_formula(beta):
    values = np.array([0.3, 0.9, 0.35, 0.6])
    worst_case = WorstCase(slice(1, 4), beta)
    assert worst_case.soften(values) == pytest.approx(plain_soft_minimum(values[1:], beta), abs=1e-12)
    for k, weight in enumerate(worst_case.weigh(values)):
        step = 1e-6 * (np.arange(4) == k + 1)
        slope = (worst_case.soften(values + step) - worst_case.soften(values - step)) / 2e-6
        assert weight == pytest.approx(slope, abs=1e-7)


def test_soft_minimum_goes_from_the_mean_to_the_minimum():
    values = np.array([0.3, 0.9, 0.35, 0.6])

    def soften(beta):
        return WorstCase(slice(0, 4), beta).soften(values)

    assert soften(1e-6) == pytest.approx(0.5375, abs=1e-6)
    assert soften(1e5) == pytest.approx(0.3, abs=1e-4)
    between = [soften(beta) for beta in (0.1, 1, 10, 100)]
    assert between == sorted(between, reverse=True)
    assert 0.3 < between[-1] < between[0] < 0.5375


def test_worst_cases_are_measured_in_their_own_span():
    """min(coverage) moves by 1/K or less between chance and perfection; beta counts in such units."""
    one, recall, coverage = smooth("max min(coverage)", beta=6.0), *margins(random_rates())
    span = sum(abs(p - 1 / K) for p in PRIOR) / K * K / (K - 1)
    assert one.worst_cases[0].beta == pytest.approx(6.0 / span)
    assert one.from_margins(recall, coverage).value == pytest.approx(plain_soft_minimum(coverage, 6.0 / span), abs=1e-9)
    assert smooth("max min(recall)", beta=6.0).worst_cases[0].beta == pytest.approx(6.0)
    assert smooth("max 0.3*min(recall)", beta=6.0).worst_cases[0].beta == pytest.approx(20.0)
    uniform = smooth("max min(coverage)", beta=6.0, prior=np.full(K, 1 / K))
    assert uniform.worst_cases[0].beta == 6.0  # perfection covers as chance does: the span would be 0


def plain_values():
    """What the sentences above mean at a recall r and coverage q, by hand: utility, worst cases, constraints."""

    def f1(r, q):
        return [2 * PRIOR[k] * r[k] / (PRIOR[k] + q[k]) for k in range(K)]

    return {
        "max min(recall)": lambda r, q: (0, [list(r)], []),
        "max 0.7*mean(recall) + 0.3*min(recall)": lambda r, q: (0.7 * sum(r) / K, [[0.3 * x for x in r]], []),
        "max min(recall) s.t. coverage >= 0.9/K, coverage <= 1.1/K": lambda r, q: (
            0,
            [list(r)],
            [x - 0.9 / K for x in q] + [1.1 / K - x for x in q],
        ),
        "max min(recall[head], recall[tail]) s.t. coverage[tail] >= 0.1": lambda r, q: (
            0,
            [[sum(r[:3]) / 3, r[3]]],
            [q[3] - 0.1],
        ),
        "max gmean(recall)": lambda r, q: (math.prod(r) ** (1 / K), [], []),
        "max mean(f1)": lambda r, q: (sum(f1(r, q)) / K, [], []),
        "max min(f1)": lambda r, q: (0, [f1(r, q)], []),
        "max mean(recall) s.t. precision >= 0.6": lambda r, q: (
            sum(r) / K,
            [],
            [PRIOR[k] * r[k] / q[k] - 0.6 for k in range(K)],
        ),
        "max gmean(recall) s.t. f1[3] >= 0.5, coverage >= 0.9/K": lambda r, q: (
            math.prod(r) ** (1 / K),
            [],
            [f1(r, q)[3] - 0.5] + [x - 0.9 / K for x in q],
        ),
    }


def plain_value(text, one, prices, recall, coverage):
    """utility + soft minima - sum (max(0, mu - rho psi)^2 - mu^2) / (2 rho)."""
    total, worst, constraints = plain_values()[text](recall, coverage)
    for values, worst_case in zip(worst, one.worst_cases, strict=True):
        total += plain_soft_minimum(values, worst_case.beta)
    for psi, mu in zip(constraints, prices.values[one.constraints], strict=True):
        total -= (max(0.0, mu - prices.penalty * psi) ** 2 - mu**2) / (2 * prices.penalty)
    return total, constraints


@pytest.mark.parametrize("text", plain_values())
def test_the_augmented_lagrangian_by_hand(text):
    one, (recall, coverage) = smooth(text), margins(random_rates(1))
    prices = draw_prices(one)
    expected, constraints = plain_value(text, one, prices, recall, coverage)
    found = one.from_margins(recall, coverage, prices)
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert found.slack == pytest.approx(constraints, abs=1e-9)
    step = 1e-6
    for given, derivative in ((recall, found.slopes[0]), (coverage, found.slopes[1])):
        for k in range(K):
            ends = []
            for sign in (1, -1):
                given[k] += sign * step
                ends.append(plain_value(text, one, prices, recall, coverage)[0])
                given[k] -= sign * step
            assert derivative[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("text", LINEAR + CURVED)
def test_the_fast_path_is_the_slow_one(text):
    fast, slow = smooth(text), smooth(text)
    assert fast.form is not None
    vars(slow)["form"] = None
    prices = draw_prices(fast)
    for seed in range(3):
        recall, coverage = margins(random_rates(seed))
        one, two = (goal.from_margins(recall, coverage, prices) for goal in (fast, slow))
        assert one.value == pytest.approx(two.value, abs=1e-10)
        assert one.slopes[0] == pytest.approx(two.slopes[0], abs=1e-10)
        assert one.slopes[1] == pytest.approx(two.slopes[1], abs=1e-10)
        assert one.slack == pytest.approx(two.slack, abs=1e-10)


@pytest.mark.parametrize("text", PRODUCTS)
def test_products_and_bounds_on_curved_means_are_no_form(text):
    assert smooth(text).form is None


def test_a_class_that_is_never_right_has_a_geometric_mean_of_0():
    """Without a warning: sweeps look at such rules."""
    recall, coverage = margins(random_rates())
    recall[2] = 0.0
    for mean in ("gmean", "hmean"):
        assert smooth(f"max {mean}(recall)").measure_margins(recall[None], coverage[None])[0].tolist() == [0.0]


@pytest.mark.parametrize("text", LINEAR + CURVED + PRODUCTS)
def test_margins_say_as_much_as_all_rates(text):
    """The same value, and d/dR_ij = [i = j] by_recall_i + pi_i by_coverage_j."""
    one, rates = smooth(text), random_rates(2)
    prices = draw_prices(one)
    whole, short = one.from_rates(rates.copy(), prices), one.from_margins(*margins(rates), prices)
    assert whole.value == pytest.approx(short.value, abs=1e-9)
    assert whole.slack == pytest.approx(short.slack, abs=1e-9)
    expected = np.diag(short.slopes[0]) + PRIOR[:, None] * short.slopes[1][None]
    assert whole.slopes[0] == pytest.approx(expected, abs=1e-8)


def test_what_is_read_is_the_deployment_prior():
    flat = smooth("max mean(f1)", prior=np.full(K, 0.25))
    rates = random_rates()
    recall, coverage = margins(rates, np.full(K, 0.25))
    expected = sum(2 * 0.25 * recall[k] / (0.25 + coverage[k]) for k in range(K)) / K
    assert flat.from_margins(recall, coverage).value == pytest.approx(expected)


class Costly(Objective):
    """Mistaking class 0 for class 1 costs."""

    def utility(self, c):
        return c.recall.mean() - 2 * c.rates[0, 1]


class Columns(Objective):
    """Reads predictions of class 0, whatever the truth."""

    def utility(self, c):
        return c.recall.mean() - c.coverage[0] ** 2


class Own(Objective):
    domain = Simplex()

    def utility(self, c):
        return c.rates.new_zeros(())

    def payoff(self, c):
        return c.recall**2


READS = [
    ("max min(recall)", False),
    ("max accuracy", False),
    ("max gmean(recall)", False),
    ("max min(recall) s.t. coverage >= 0.9/K", False),
    ("max mean(f1)", False),
    ("max mean(recall) s.t. precision[1] >= 0.5", False),
    (Own(), False),
    (Columns(), False),
    (Costly(), True),
    (ConstantGain(np.diag([1.0, 2.0, 3.0, 4.0])), False),
    (ConstantGain(np.eye(K) + 0.5 * np.eye(K)[[1, 0, 2, 3]]), True),
]


@pytest.mark.parametrize(("goal", "entries"), READS, ids=lambda x: str(x)[:40])
def test_what_an_objective_reads(goal, entries):
    one = smooth(goal)
    assert one.reads_entries is entries
    assert one.by_margins is isinstance(goal, str)
    assert one.has_constraints is (isinstance(goal, str) and "s.t." in goal)


def finite_difference(function, rates, step=1e-6):
    found = np.zeros_like(rates)
    for i in range(K):
        for j in range(K):
            ends = []
            for sign in (1, -1):
                moved = rates.copy()
                moved[i, j] += sign * step
                ends.append(function(moved))
            found[i, j] = (ends[0] - ends[1]) / (2 * step)
    return found


def test_the_gradient_of_the_game_is_taken_at_smoothed_rates():
    one, rates, multipliers = smooth("max gmean(recall) s.t. coverage >= 0.9/K"), random_rates(3), [0.3, 0.0, 2.0, 0.1]

    def game(r):
        own = math.prod(r[k, k] for k in range(K)) ** (1 / K)
        return own + sum(m * (PRIOR @ r)[k] for k, m in enumerate(multipliers))

    at = (1 - 1e-3) * rates + 1e-3 / K
    found = one.gradient(torch.from_numpy(rates), np.array(multipliers))
    assert found == pytest.approx(finite_difference(game, at), abs=1e-7)


def test_first_weights():
    own, price = smooth("max min(recall)").first_weights
    assert own == pytest.approx([1 / K] * K)
    assert price == pytest.approx(np.zeros(K))
    own, price = smooth("max accuracy").first_weights
    assert own == pytest.approx(PRIOR)
    assert price == pytest.approx(np.zeros(K))
    # mean 2 pi r / (pi + q) / K at r = 1/K and q = 1/K
    own, price = smooth("max mean(f1)").first_weights
    expected = [2 * p / (p + 1 / K) / K for p in PRIOR]
    assert own == pytest.approx(expected)
    assert price == pytest.approx([-2 * p / K / (p + 1 / K) ** 2 / K for p in PRIOR])


def test_prices_rise_by_the_penalty():
    one = smooth("max min(recall) s.t. coverage >= 0.9/K")
    first = one.first_prices
    assert (first.penalty, first.values.tolist()) == (FIRST_PENALTY, [0] * 8)
    second = first.raise_by(np.array([0.1, -0.02, 0.0, -0.05]), one.constraints, is_slow=False)
    assert second.values == pytest.approx([0, 0, 0, 0, 0, 0.4, 0, 1.0])
    assert second.penalty == 20
    third = second.raise_by(np.array([0.1, 0.01, 0.0, -0.03]), one.constraints, is_slow=True)
    assert third.values == pytest.approx([0, 0, 0, 0, 0, 0.2, 0, 1.6])
    assert third.penalty == 80
    for _ in range(10):
        third = third.raise_by(np.zeros(4), one.constraints, is_slow=True)
    assert third.penalty == MOST_PENALTY
    assert not first.values.any()  # the search that they came from is left alone


def test_multipliers_are_the_weights_of_the_soft_minimum_and_the_prices():
    one, rates = smooth("max min(recall) s.t. coverage >= 0.9/K", beta=5.0), random_rates(4)
    prices = draw_prices(one)
    found = one.multipliers(Confusion(torch.from_numpy(rates), torch.from_numpy(PRIOR)), prices)
    raised = [math.exp(-5 * rates[k, k]) for k in range(K)]
    assert found[:K] == pytest.approx([x / sum(raised) for x in raised])
    assert found[K:] == pytest.approx(prices.values[K:])


@pytest.mark.parametrize("seed", [0, 5])
def test_judging_by_soft_minima_and_the_smallest_slack(seed):
    one, rates = smooth("max min(recall) s.t. coverage >= 0.9/K, recall[0] >= 0.2", beta=9.0), random_rates(seed)
    one = one.with_margins(np.array([0.0] * K + [0.02] * K + [0.01]))

    def plain_value(r):
        return plain_soft_minimum(np.diag(r), 9.0)

    def plain_slack(r):
        return min(*(q - 0.9 / K - 0.02 for q in PRIOR @ r), r[0, 0] - 0.2 - 0.01)

    c = Confusion(torch.from_numpy(rates), torch.from_numpy(PRIOR))
    value, slack = one.judge(c)
    assert float(value) == pytest.approx(plain_value(rates), abs=1e-10)
    assert float(slack) == pytest.approx(plain_slack(rates), abs=1e-10)
    by_value, by_slack = one.judge_slopes(c)
    assert by_value == pytest.approx(finite_difference(plain_value, rates), abs=1e-6)
    assert by_slack == pytest.approx(finite_difference(plain_slack, rates), abs=1e-6)


def test_without_constraints_there_is_no_slack():
    one, c = smooth("max mean(recall)"), Confusion(torch.eye(K), torch.from_numpy(PRIOR))
    value, slack = one.judge(c)
    assert (float(value), float(slack)) == (pytest.approx(1.0), 0.0)
    assert not one.judge_slopes(c)[1].any()


@pytest.mark.parametrize("text", LINEAR + CURVED + PRODUCTS)
def test_many_classifiers_are_measured_as_one_by_one(text):
    one = smooth(text).with_margins(0.03)
    points = [margins(random_rates(seed)) for seed in range(4)]
    values, misses = one.measure_margins(*(np.stack(part) for part in zip(*points, strict=True)))
    for point, value, miss in zip(points, values, misses, strict=True):
        c = confusion_from_margins(*map(torch.from_numpy, point), one.prior)
        expected, slack = one.judge(c)
        assert value == pytest.approx(float(expected), abs=1e-9)
        assert miss == pytest.approx(max(0.0, -float(slack)), abs=1e-9)


class Free(Domain):
    """Neither a worst case nor a constraint."""

    def start(self, size, classes):
        return torch.zeros(size)

    def step(self, multipliers, payoff, step_size):
        return multipliers

    def contains(self, multipliers):
        return True

    def worst(self, payoff):
        return payoff.new_zeros(())

    def slack(self, payoff):
        return payoff[:0]


class Strange(Own):
    domain = Free()


class Idle(Objective):
    def utility(self, c):
        return c.rates.new_ones(())


class Sharp(Objective):
    epsilon = 0.0

    def utility(self, c):
        return (c.recall - c.recall.detach()).abs().sqrt().sum()


def test_what_no_rule_can_serve_is_refused():
    with pytest.raises(InputError, match="needs worst cases"):
        smooth(Strange())
    with pytest.raises(InputError, match="Idle does not depend on the predictions"):
        _ = smooth(Idle()).first_weights
    with pytest.raises(InputError, match="Sharp has a non-finite gradient"):
        _ = smooth(Sharp()).first_weights


def test_soft_decisions_alone_serve_where_all_recalls_count():
    even = ["max min(recall)", "max mean(f1)", "max accuracy", "max min(jaccard)", "max gmean(recall)"]
    uneven = ["max f1[1]", "max accuracy s.t. recall >= 0.3", "max mean(precision)", "max min(coverage)"]
    assert all(smooth(text).is_even for text in even)
    assert not any(smooth(text).is_even for text in uneven)


@pytest.mark.parametrize("text", [text for text in LINEAR if "s.t." in text])
def test_errors_of_linear_forms_are_those_of_slopes_written_out(text):
    """sum_k (sum_j B g^2 - (sum_j B g)^2) / n_k, B on the way to chance where the constraint is just met."""
    one = smooth(text)
    rates = random_rates()
    worth = np.array([40.0, 20.0, 10.0, 5.0])
    errors = one.measure_errors(rates, worth)
    blurred = (worth[:, None] * rates + 1 / K) / (worth[:, None] + 1)

    def evaluate(place, part):
        """The payoff and its slope at a mixture with chance."""
        leaf = torch.from_numpy((1 - part) * blurred + part / K).requires_grad_()
        payoff = one.objective.payoff(Confusion(leaf, one.prior))[int(place)]
        return float(payoff), torch.autograd.grad(payoff, leaf)[0].numpy()

    for place in one.constraints:
        start, slope = evaluate(place, 0.0)
        part = 0.0
        if start > 0 and evaluate(place, 1.0)[0] < start:
            part = 1.0
            for halving in range(1, 13):  # to the first of 4,096 steps at which the payoff is not positive
                earlier = part - 0.5**halving
                part = part if evaluate(place, earlier)[0] > 0 else earlier
        slope = (slope + evaluate(place, part)[1]) / 2
        at_bound = (1 - part) * blurred + part / K
        variance = sum((at_bound[k] @ slope[k] ** 2 - (at_bound[k] @ slope[k]) ** 2) / worth[k] for k in range(K))
        assert errors[place] == pytest.approx(variance**0.5, rel=1e-9, abs=1e-12)
        by_autograd = measure_standard_errors(AutogradPayoffs(one.objective, one.prior, [place]), rates, worth)
        assert errors[place] == pytest.approx(by_autograd[0], rel=1e-9, abs=1e-12)


def test_precision_divides_by_no_less_than_its_floor():
    """Below the floor precision falls with the predictions, and its slope by coverage is 0."""
    one = smooth("max precision[3]")
    recall = np.array([0.9, 0.9, 0.9, 0.1])
    coverage = np.array([0.5, 0.3, 0.195, 0.005])
    assert one.from_margins(recall, coverage).value == pytest.approx(1.0)
    one = one.with_margins(0.0, 0.01)
    value = one.from_margins(recall, coverage)
    assert value.value == pytest.approx(0.5)
    assert one.measure_margins(recall[None], coverage[None])[0][0] == pytest.approx(0.5)
    assert value.slopes[1][3] == 0
    assert value.slopes[0][3] == pytest.approx(PRIOR[3] / 0.01)
