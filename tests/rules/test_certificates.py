"""Certificates: every p-value against a plain loop or all possible tables, and how often a certificate is false."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta, binom

import csst
from csst.errors import InputError
from csst.rules.certificates import (
    binomial_tail,
    multiply_labels,
    p_value,
    ratio_tail,
    read_range,
    weighted_tail,
)
from csst.rules.claims import Claim, read_claims
from tests.helpers.exact_tests import count_passed, labels_for_power

DELTA = 0.1


def bound_of(text: str, classes: int = 2) -> Claim:
    (bound,) = read_claims(csst.objective(f"max accuracy s.t. {text}").bind(classes))
    return bound


def loop_tail(successes: int, trials: int, value: float) -> float:
    return sum(math.comb(trials, x) * value**x * (1 - value) ** (trials - x) for x in range(successes, trials + 1))


def test_binomial_tail_is_the_sum_of_its_terms() -> None:
    for trials in (0, 1, 7, 20):
        for successes in range(trials + 1):
            for value in (0.0, 0.3, 0.9, 1.0):
                expected = loop_tail(successes, trials, value)
                assert float(binomial_tail(successes, trials, value)) == pytest.approx(expected, abs=1e-12)


def all_tables(trials: tuple[int, ...]):
    yield from itertools.product(*(range(n + 1) for n in trials))


@pytest.mark.parametrize("weights", [(0.4, 0.6), (0.5, 0.5), (0.7, 0.3), (0.9, 0.1)])
def test_weighted_tail_is_valid_on_all_tables(weights: tuple[float, float]) -> None:
    # P(p <= delta) by enumeration, at chances of success whose weighted mean is exactly the value.
    trials, value = (6, 9), 0.7
    tables = np.array(list(all_tables(trials)))
    p = weighted_tail(tables, np.array(trials), np.array(weights), value)
    for first in np.linspace(0, 1, 21):
        second = (value - weights[0] * first) / weights[1]
        if not 0 <= second <= 1:
            continue
        chances = np.array([first, second])
        mass = binom.pmf(tables, trials, chances).prod(1)
        for delta in (0.01, 0.05, 0.1, 0.3, 0.52, 0.6):
            assert mass[p <= delta].sum() <= delta + 1e-12


def test_rows_of_equal_weight_have_the_binomial_and_not_the_wider_bound() -> None:
    trials = np.array([20, 20])
    p = weighted_tail(np.array([20, 18]), trials, np.array([0.5, 0.5]), 0.8)
    assert float(p) == pytest.approx(loop_tail(38, 40, 0.8))
    # One sure row and one hopeless one have a success for certain, which two rows of chance 1/2 do not.
    assert float(weighted_tail(np.array([1, 0]), np.array([1, 1]), np.array([0.5, 0.5]), 0.5)) == 1
    heavier = weighted_tail(np.array([20, 18]), trials, np.array([0.8, 0.2]), 0.8)
    assert float(heavier) > float(p)


def test_a_class_without_a_label_counts_as_failed() -> None:
    weights, value = np.array([0.6, 0.4]), 0.5
    p = weighted_tail(np.array([30, 0]), np.array([30, 0]), weights, value)
    assert float(p) == pytest.approx(loop_tail(30, 30, value / 0.6))
    assert float(weighted_tail(np.array([30, 0]), np.array([30, 0]), weights, 0.7)) == 1


@pytest.mark.parametrize("text", ["precision[0] >= 0.8", "f1[0] >= 0.7", "jaccard[0] >= 0.6", "precision[0] <= 0.9"])
def test_ratio_tail_is_the_smallest_delta_that_passes(text: str) -> None:
    bound, prior = bound_of(text), np.array([0.3, 0.7])
    counts = np.array([[18, 2], [2, 38]])

    def passes(delta: np.ndarray) -> np.ndarray:
        half = delta / 2
        if bound.is_lower:
            recall = beta.ppf(half, 18, 3)
            alarms = beta.ppf(1 - half, 3, 38)
        else:
            recall = beta.ppf(1 - half, 19, 2)
            alarms = beta.ppf(half, 2, 39)
        hits, rest = prior[0] * recall, prior[1] * alarms
        metric = {
            "precision": hits / (hits + rest),
            "f1": 2 * hits / (prior[0] + hits + rest),
            "jaccard": hits / (prior[0] + rest),
        }[bound.metric]
        return metric >= bound.value if bound.is_lower else metric <= bound.value

    deltas = np.linspace(1e-4, 1, 4001)
    smallest = deltas[passes(deltas)].min(initial=1.0)
    assert float(ratio_tail(bound, counts, prior)) == pytest.approx(smallest, abs=5e-4)


@pytest.mark.parametrize("text", ["precision[0] >= 0.8", "f1[0] >= 0.7", "jaccard[0] >= 0.6"])
def test_ratio_tail_is_valid_on_all_tables(text: str) -> None:
    bound, prior, trials = bound_of(text), np.array([0.4, 0.6]), (10, 10)
    tables = np.array(list(all_tables(trials)))
    counts = np.stack(
        [np.stack([tables[:, 0], 10 - tables[:, 0]], 1), np.stack([tables[:, 1], 10 - tables[:, 1]], 1)], 1
    )
    p = p_value(bound, counts, prior)
    slope, offset = {"precision": (0.25, 0), "f1": (2 / 0.7 - 1, 1), "jaccard": (1 / 0.6, 1)}[bound.metric]
    for recall in np.linspace(0.5, 1, 11):
        alarms = 0.4 * (slope * recall - offset) / 0.6  # the metric is exactly its bound
        if not 0 <= alarms <= 1:
            continue
        mass = binom.pmf(tables, trials, [recall, alarms]).prod(1)
        for delta in (0.05, 0.1, 0.3):
            assert mass[p <= delta].sum() <= delta + 1e-12


def test_a_random_sample_proves_ratios_by_the_rows_that_bear_on_them() -> None:
    counts = np.array([[30, 3, 1], [2, 20, 4], [1, 0, 40]])
    precision, jaccard, f1 = (bound_of(f"{name}[0] >= 0.6", 3) for name in ("precision", "jaccard", "f1"))
    assert float(p_value(precision, counts)) == pytest.approx(loop_tail(30, 33, 0.6))
    assert float(p_value(jaccard, counts)) == pytest.approx(loop_tail(30, 37, 0.6))
    assert float(p_value(f1, counts)) == pytest.approx(loop_tail(30, 37, 0.6 / 1.4))
    accuracy = bound_of("accuracy >= 0.8", 3)
    assert float(p_value(accuracy, counts)) == pytest.approx(loop_tail(90, 101, 0.8))


def test_coverage_by_unlabeled_rows_kept_apart_by_labels_and_under_a_prior() -> None:
    counts = np.array([[30, 10], [5, 15]])
    bound = bound_of("coverage[1] >= 0.3")
    assert float(p_value(bound, counts, predicted=np.array([300, 200]))) == pytest.approx(loop_tail(200, 500, 0.3))
    assert float(p_value(bound, counts)) == pytest.approx(loop_tail(25, 60, 0.3))
    prior = np.array([0.5, 0.5])
    expected = float(weighted_tail(np.array([10, 15]), np.array([40, 20]), prior, 0.3))
    assert float(p_value(bound, counts, prior)) == expected
    upper = bound_of("coverage[1] <= 0.5")
    assert float(p_value(upper, counts)) == pytest.approx(loop_tail(35, 60, 0.5))


def test_mean_of_recalls_and_upper_bounds() -> None:
    counts = np.array([[19, 1], [2, 18]])
    mean = bound_of("mean(recall) >= 0.8")
    assert float(p_value(mean, counts)) == pytest.approx(loop_tail(37, 40, 0.8))
    upper = bound_of("recall[1] <= 0.95")
    assert float(p_value(upper, counts)) == pytest.approx(loop_tail(2, 20, 0.05))


def test_all_bounds_must_pass_and_rules_pass_in_order() -> None:
    bounds = read_claims(csst.objective("max accuracy s.t. recall >= 0.5").bind(2))
    counts = np.array([[20, 0], [8, 12]])
    assert [bound.text for bound in bounds] == ["recall[0] >= 0.5", "recall[1] >= 0.5"]
    assert max(float(p_value(bound, counts)) for bound in bounds) == pytest.approx(loop_tail(12, 20, 0.5))
    assert count_passed(np.array([0.01, 0.2, 0.01]), DELTA) == 1
    assert count_passed(np.array([[0.01, 0.1, 0.01], [0.3, 0.0, 0.0]]), DELTA).tolist() == [3, 0]


@pytest.mark.parametrize(
    "text", ["min(recall) <= 0.5", "precision[0] >= recall[0]", "2*recall[0] >= 0.5", "gmean(recall) >= 0.5"]
)
def test_other_bounds_cannot_be_certified(text: str) -> None:
    with pytest.raises(InputError, match=r"cannot be certified|min cannot stand"):
        bound_of(text)


def test_range_of_class_balances() -> None:
    bound, counts = bound_of("precision[0] >= 0.8"), np.array([[58, 2], [1, 59]])
    low, high = read_range(bound, counts, np.array([0.5, 0.5]), DELTA)
    assert high == 1
    for share, is_proved in ((low + 0.002, True), (low - 0.002, False)):
        assert (float(p_value(bound, counts, np.array([share, 1 - share]))) <= DELTA) == is_proved
    hopeless = np.array([[10, 50], [30, 30]])
    assert read_range(bound_of("f1[0] >= 0.8"), hopeless, np.array([0.5, 0.5]), DELTA) is None


def test_labels_for_power_against_a_loop() -> None:
    value, truth = 0.8, 0.95
    fewest = labels_for_power(value, truth, DELTA)

    def power(trials: int) -> float:
        critical = next((x for x in range(trials + 1) if loop_tail(x, trials, value) <= DELTA), trials + 1)
        return loop_tail(critical, trials, truth)

    assert power(fewest) >= 0.8 > power(fewest - 1)


def test_price_in_labels_is_that_of_the_binomial() -> None:
    bound = bound_of("recall[0] >= 0.8")
    rates, rows = np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([10, 10])
    multiple = multiply_labels(bound, rates, rows, np.array([0.5, 0.5]), DELTA)
    assert multiple * 10 == pytest.approx(labels_for_power(0.8, 0.9, DELTA), rel=0.15)
    worse = np.array([[0.7, 0.3], [0.1, 0.9]])
    assert multiply_labels(bound, worse, rows, None, DELTA) == float("inf")


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("text", ["precision[1] >= 0.75", "f1[1] >= 0.7", "accuracy >= 0.85", "mean(recall) >= 0.8"])
def test_as_many_labels_as_the_price_says_prove_the_bound_in_four_of_five_draws(text: str, is_random: bool) -> None:
    rates, prior, bound = np.array([[0.95, 0.05], [0.2, 0.8]]), np.array([0.6, 0.4]), bound_of(text)
    stated = None if is_random else prior
    rows = np.array([60, 40]) * multiply_labels(bound, rates, np.array([60, 40]), stated, DELTA)
    rng = np.random.default_rng(0)
    if is_random:
        tables = rng.multinomial(round(rows.sum()), (prior[:, None] * rates).ravel(), size=1000).reshape(-1, 2, 2)
    else:
        tables = np.stack([rng.multinomial(round(n), row, size=1000) for n, row in zip(rows, rates, strict=True)], 1)
    assert 0.7 <= (p_value(bound, tables, stated) <= DELTA).mean() <= 0.9


# What follows draws whole certifications: rules from cautious to bold on probabilities whose truth is known.

#: the path: how sure of class 1 a rule must be, cautious rules first
LEVELS = np.array([0.75, 0.7, 0.65, 0.6, 0.55, 0.5])
#: models among which the labels of the fit choose
MODELS = 20


def draw_world(rng: np.random.Generator, draws: int, size: int, models: int):
    """Labels (draws, size), and the log-odds of class 1 by models that are all as good, (draws, models, size)."""
    labels = rng.random((draws, size)) < 0.4
    # Normal log-odds of mean +-1 and variance 2 are calibrated for classes alike.
    log_odds = rng.normal(np.where(labels, 1.0, -1.0)[:, None], 2**0.5, (draws, models, size)) + np.log(0.4 / 0.6)
    return labels, log_odds


def tables_of(labels: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Counts (..., rules, 2, 2) of  F = 1[p > level]  for labels and probabilities (..., n)."""
    predicted = probs[..., None, :] > LEVELS[:, None]
    truth = np.broadcast_to(labels[..., None, :], predicted.shape)
    cells = [[~truth & ~predicted, ~truth & predicted], [truth & ~predicted, truth & predicted]]
    return np.stack([np.stack([cell.sum(-1) for cell in row], -1) for row in cells], -2)


def false_certificates(temperature: float, bias: float, reuses: bool = False, draws: int = 1000) -> float:
    """How often a path on the model that labels A like best is certified, though every rule of it misses its bound."""
    rng = np.random.default_rng(5)

    def distort(log_odds: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-(temperature * log_odds + bias)))

    truth, log_odds = draw_world(rng, 1, 400_000, 1)
    whole = tables_of(truth[0], distort(log_odds[0, 0]))
    precision = whole[:, 1, 1] / whole[:, :, 1].sum(-1)
    bound = Claim("precision", (1,), True, float(precision.max()) + 0.001, "")
    labels, log_odds = draw_world(rng, draws, 150, MODELS)
    tables = tables_of(labels[:, None], distort(log_odds))
    seen = p_value(bound, tables)
    best = seen[..., 0].argmin(1)  # the model whose cautious rule looks best on A
    if reuses:
        p = seen[np.arange(draws), best]
    else:
        labels, log_odds = draw_world(rng, draws, 300, 1)
        p = p_value(bound, tables_of(labels, distort(log_odds[:, 0])))
    return float((count_passed(p, DELTA) > 0).mean())


@pytest.mark.parametrize(("temperature", "bias"), [(1.0, 0.0), (3.0, 1.0)])
def test_false_certificates_are_rare_however_bad_the_scores(temperature: float, bias: float) -> None:
    assert false_certificates(temperature, bias) <= 0.119


def test_labels_of_the_fit_would_break_it() -> None:
    assert false_certificates(1.0, 0.0, reuses=True) > 0.119


@pytest.mark.parametrize("is_random", [True, False])
def test_false_certificates_of_one_rule_at_the_edge_of_its_bound(is_random: bool) -> None:
    # truth at r - .001, for a random sample and for labels drawn within classes under a stated prior
    rng, prior = np.random.default_rng(1), np.array([0.6, 0.4])
    rates = np.array([[0.96, 0.04], [0.2, 0.8]])
    truth = prior[1] * rates[1, 1] / (prior @ rates[:, 1])
    bound = Claim("precision", (1,), True, float(truth) + 0.001, "")
    if is_random:
        tables = rng.multinomial(200, (prior[:, None] * rates).ravel(), size=1000).reshape(-1, 2, 2)
    else:
        tables = np.stack([rng.multinomial(100, row, size=1000) for row in rates], 1)
    p = p_value(bound, tables, None if is_random else prior)
    assert (p <= DELTA).mean() <= 0.119


def test_power_is_that_of_the_exact_binomial_and_far_above_bonferroni() -> None:
    value, truth = 0.8, 0.9
    exact = labels_for_power(value, truth, DELTA)
    corrected = labels_for_power(value, truth, DELTA / 100)
    # One fixed rule: the path of one rule is the binomial test itself. A path of 17 needs hardly more.
    rng = np.random.default_rng(0)
    needed = 0
    for size in range(exact // 2, 2 * corrected):
        cautious = np.linspace(0.97, truth, 17)  # recalls along the path, the last being the rule that is wanted
        uniform = rng.random((400, size))
        hits = (uniform[:, None, :] < cautious[:, None]).sum(-1)
        passed = count_passed(binomial_tail(hits, size, value), DELTA)
        if (passed == 17).mean() >= 0.8:
            needed = size
            break
    assert 0 < needed <= 1.1 * exact
    assert needed <= corrected / 2
