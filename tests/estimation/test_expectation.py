"""What an estimate lets one expect, and intervals around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta

import csst
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import (
    constraint_names,
    describe_minimum,
    estimate_intervals,
    expected_minimum,
    expected_value,
)
from csst.estimation.rate_draws import draw_confusions, draw_recalls
from csst.maths.confusion import Confusion
from csst.maths.domains import NonNegative
from csst.maths.objectives import Objective
from tests.estimation.estimates import make_estimate

MIN_RECALL = csst.objective("max min(recall)").bind(4)


def test_the_expected_minimum_lies_below_the_plain_one():
    found = make_estimate([0.7, 0.7, 0.75, 0.9], n=10)
    value = expected_minimum(found)
    assert value == pytest.approx(draw_recalls(found).min(1).mean(), abs=1e-12)
    assert 0.7 - 0.08 < value < 0.7 - 0.02
    interval = estimate_intervals(MIN_RECALL, found)["min_recall"]
    assert interval["low"] < value < 0.7 < interval["high"]
    assert (interval["low"], interval["high"]) == pytest.approx(np.quantile(draw_recalls(found).min(1), [0.025, 0.975]))
    assert interval["estimate"] == value
    assert interval["n"] == 10


def test_the_expected_minimum_nears_the_plain_one_with_labels():
    gaps = [0.7 - expected_minimum(make_estimate([0.7, 0.7, 0.75, 0.9], n=n)) for n in (5, 50, 500, 50_000)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.02
    assert 0 < gaps[-1] < 0.003


def test_the_expected_value_is_averaged_where_there_is_a_worst_case():
    found = make_estimate([0.7, 0.7, 0.75, 0.9], n=10)
    mean = csst.objective("max mean(recall)").bind(4)
    assert expected_value(mean, found) == pytest.approx((0.7 + 0.7 + 0.75 + 0.9) / 4, abs=1e-12)
    assert expected_value(MIN_RECALL, found) == pytest.approx(expected_minimum(found), abs=1e-12)
    mixed = csst.objective("max 0.5*mean(recall) + 0.5*min(recall)").bind(4)
    drawn = [float(one.recall.mean() + one.recall.min()) / 2 for one in draw_confusions(found, 400)]
    assert expected_value(mixed, found) == pytest.approx(sum(drawn) / 400, abs=1e-12)
    assert expected_value(mixed, found) == pytest.approx((0.7625 + expected_minimum(found)) / 2, abs=0.015)
    constrained = csst.objective("max mean(recall) s.t. coverage >= 0.5/K").bind(4)
    assert expected_value(constrained, found) == pytest.approx(0.7625)


@pytest.mark.parametrize("K", [2, 5])
def test_recall_intervals_are_where_the_binomial_tails_say(K):
    """As for as many labels as give the spread of the draws, each tail 2.5 % shared among K classes."""
    estimate = make_estimate([0.75] * K)
    draws = draw_recalls(estimate)
    found = estimate_intervals(csst.objective("max min(recall)").bind(K), estimate)["recall"]
    for row, mean, variance in zip(found, draws.mean(0), draws.var(0), strict=True):
        size = mean * (1 - mean) / variance - 1
        assert 60 < size < 180  # 20 labels, and unlabeled rows worth 160, less the doubts
        assert beta.cdf(row["low"], size * mean, size * (1 - mean) + 1) == pytest.approx(0.025 / K, rel=1e-6)
        assert beta.sf(row["high"], size * mean + 1, size * (1 - mean)) == pytest.approx(0.025 / K, rel=1e-6)
        assert row["estimate"] == pytest.approx(0.75)
        assert row["n"] == 20


def test_disagreement_widens():
    agree = estimate_intervals(MIN_RECALL, make_estimate([0.75] * 4))
    apart = make_estimate([0.75] * 4, labeled=[0.2, 0.75, 0.75, 0.75])
    assert apart.dispersion > 2
    wide = estimate_intervals(MIN_RECALL, apart)
    assert width(wide["recall"][2]) > 1.3 * width(agree["recall"][2])
    assert width(wide["min_recall"]) > 1.3 * width(agree["min_recall"])


def width(row):
    return row["high"] - row["low"]


@pytest.mark.parametrize("n", [1, 300])
@pytest.mark.parametrize("recalls", [[0.0, 0.5, 1.0, 0.99], [0.9, 0.3, 0.6, 0.6]])
def test_intervals_hold_the_estimate(n, recalls):
    goal = csst.objective("max min(recall) s.t. coverage >= 0.9/K, precision >= 0.3").bind(4)
    found = estimate_intervals(goal, make_estimate(recalls, n=n, prior=[0.4, 0.3, 0.2, 0.1]))
    rows = [found["min_recall"], found["min_coverage"], *found["recall"], *found["coverage"]]
    rows += [row for row in found["precision"] if row is not None]
    assert len(rows) >= 13
    for row in rows:
        assert 0 <= row["low"] <= row["estimate"] <= row["high"] <= 1
    for row in found["constraints"]:
        assert row["low"] <= row["slack"] <= row["high"]
    c = make_estimate(recalls, n=n, prior=[0.4, 0.3, 0.2, 0.1]).confusion
    assert [row["estimate"] for row in found["coverage"]] == pytest.approx(c.coverage.tolist())
    assert [row["estimate"] for row in found["precision"] if row] == pytest.approx(
        [p for p in c.precision.tolist() if p > 0]
    )
    assert [row["slack"] for row in found["constraints"]] == pytest.approx(goal.slack(c).tolist())
    assert found["level"] == 0.95


def test_more_classes_are_wider():
    few = estimate_intervals(csst.objective("max min(recall)").bind(2), make_estimate([0.75] * 2))
    many = estimate_intervals(csst.objective("max min(recall)").bind(30), make_estimate([0.75] * 30))
    assert width(many["recall"][0]) > 1.2 * width(few["recall"][0])


def test_intervals_narrow_with_labels():
    few, many = (
        estimate_intervals(
            csst.objective("max min(recall) s.t. coverage >= 0.5/K").bind(4), make_estimate([0.75] * 4, n=n)
        )
        for n in (10, 1000)
    )
    for name in ("recall", "coverage", "precision", "constraints"):
        for one, two in zip(few[name], many[name], strict=True):
            assert width(two) < 0.4 * width(one)
    for name in ("min_recall", "min_coverage"):
        assert width(many[name]) < 0.4 * width(few[name])


def test_what_all_labels_say_is_not_ruled_out():
    found = estimate_intervals(MIN_RECALL, make_estimate([0.6, 0.6, 0.6, 0.6], labeled=[1.0, 0.0, 0.6, 0.6]))["recall"]
    assert found[0]["high"] == 1
    assert found[0]["low"] > 0
    assert found[1]["low"] == 0
    assert found[1]["high"] < 1
    assert found[2]["high"] < 1
    assert found[2]["low"] > 0


def test_a_class_never_predicted_has_no_precision_interval():
    rates = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    prior = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = RateEstimate(
        Confusion(rates, prior), rates.numpy(), rates.numpy(), np.full(3, 9), np.full(3, 20.0), 50, prior.numpy()
    )
    precision = estimate_intervals(csst.objective("max min(recall)").bind(3), found)["precision"]
    assert precision[2] is None
    assert precision[0]["estimate"] == pytest.approx(1 / 1.7)


def test_constraints_are_named():
    goal = csst.objective("max min(recall) s.t. coverage >= 0.9/K, mean(precision) >= 0.5", class_names=["a", "b"])
    found = estimate_intervals(goal.bind(2), make_estimate([0.8, 0.6]))["constraints"]
    assert [row["constraint"] for row in found] == [
        "coverage['a'] >= 0.9/K",
        "coverage['b'] >= 0.9/K",
        "mean(precision) >= 0.5",
    ]


class Bare(Objective):
    """A constraint without a name."""

    domain = NonNegative()

    def utility(self, c):
        return c.recall.mean()

    def payoff(self, c):
        return c.recall[:1] - 0.5


def test_nameless_constraints_are_numbered():
    c = make_estimate([0.8, 0.6]).confusion
    assert constraint_names(Bare(), c, 1) == ["constraint 0"]
    (row,) = estimate_intervals(Bare(), make_estimate([0.8, 0.6]))["constraints"]
    assert row["constraint"] == "constraint 0"
    assert row["slack"] == pytest.approx(0.3)


def test_constraint_intervals_reach_as_far_as_draws_spread():
    """recall[0] - 0.5: the slack's standard deviation is that of the recall; two-sided, 1.96."""
    estimate = make_estimate([0.8, 0.6])
    (row,) = estimate_intervals(Bare(), estimate)["constraints"]
    assert row["slack"] - row["low"] == pytest.approx(1.96 * draw_recalls(estimate)[:, 0].std(), rel=0.1)
    assert row["high"] - row["slack"] == pytest.approx(row["slack"] - row["low"])


@pytest.mark.parametrize(("labels", "highest"), [(1, 0.9), (40, 0.05)])
def test_a_class_that_no_label_finds_is_not_known_to_have_recall_zero(labels, highest):
    """One label says nearly nothing, forty a good deal; draws around 0 are all 0 and would say that all is known."""
    recalls = np.array([0.0, 0.95, 0.95, 0.95])
    estimate = make_estimate(recalls, n=[labels, 60, 60, 60], worth=0.0, unlabeled=0)
    rates = estimate.confusion.rates.clone()
    rates[:, 0] = 0  # nor is it ever predicted
    rates = rates / rates.sum(1, keepdim=True)
    confusion = Confusion(rates, estimate.confusion.prior)
    estimate = replace(estimate, confusion=confusion, labeled_rates=rates.numpy(), unlabeled_rates=rates.numpy())
    found = estimate_intervals(MIN_RECALL, estimate)
    assert found["recall"][0]["low"] == 0
    assert found["min_recall"]["low"] < 1e-6
    assert found["min_recall"]["high"] == pytest.approx(min(row["high"] for row in found["recall"]))
    assert found["min_recall"]["high"] > highest
    total = labels + 180
    never = 1 - (0.05 / 2 / 4) ** (1 / total)
    assert found["coverage"][0]["high"] == pytest.approx(never)
    assert found["min_coverage"]["high"] == pytest.approx(never)


def test_a_lowest_recall_known_badly_is_said():
    few = estimate_intervals(MIN_RECALL, make_estimate([0.7, 0.6, 0.75, 0.9], n=5))
    low, high = few["min_recall"]["low"], few["min_recall"]["high"]
    said = describe_minimum(few, ["cat", "dog", "owl", "cow"])
    assert f"is expected to be {few['min_recall']['estimate']:.2f}; its 95% interval is {low:.2f} to {high:.2f}" in said
    assert said.endswith("the recall of class 'dog', judged by 5 labels, is known worst")
    rare = estimate_intervals(MIN_RECALL, make_estimate([0.7, 0.6, 0.75, 0.9], n=[5, 40, 5, 1], worth=0.5))
    assert describe_minimum(rare, ["cat", "dog", "owl", "cow"]).endswith(
        "class 'cow', judged by 1 label, is known worst"
    )
    assert describe_minimum(few, half_width=0.9) is None
    assert describe_minimum(estimate_intervals(MIN_RECALL, make_estimate([0.7, 0.6, 0.75, 0.9], n=5000))) is None


def test_the_value_has_an_interval_of_its_own():
    recalls = np.array([0.6, 0.7, 0.8, 0.9])
    estimate = make_estimate(recalls, n=30)
    found = estimate_intervals(csst.objective("max mean(recall)").bind(4), estimate)["value"]
    reach = 1.96 * draw_recalls(estimate).mean(1).std()
    assert found["estimate"] == pytest.approx(0.75)
    assert (found["low"], found["high"]) == (
        pytest.approx(0.75 - reach, rel=0.01),
        pytest.approx(0.75 + reach, rel=0.01),
    )
    sure = estimate_intervals(csst.objective("max mean(recall)").bind(4), make_estimate([0.995] * 4, n=30))["value"]
    assert 0.995 < sure["high"] <= 1
    mixed = csst.objective("max 0.5*mean(recall) + 0.5*min(recall)").bind(4)
    assert estimate_intervals(mixed, estimate)["value"]["estimate"] == expected_value(mixed, estimate)
    worst = estimate_intervals(MIN_RECALL, make_estimate(recalls))
    assert worst["value"]["estimate"] == worst["min_recall"]["estimate"]
    assert worst["value"]["low"] < worst["value"]["estimate"] < worst["value"]["high"]
