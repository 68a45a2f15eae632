"""What rules on one model's probabilities can trade off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import csst
from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.domains import NonNegative
from csst.maths.objectives import Objective
from csst.rules.candidates import fit_pooled, sharpness
from csst.rules.fit import bind
from csst.rules.frontier import Point, fit_point, keep_undominated, trace_frontier
from csst.rules.rule import DecisionRule
from csst.rules.soft_objective import SoftObjective
from tests.helpers import toys

EVEN = np.full(3, 1 / 3)


@pytest.fixture(scope="module")
def evidence():
    x, labels = toys.sample(400, seed=1)
    unlabeled = toys.probs(toys.sample(1500, seed=2)[0])
    return HeldOutScores.from_probs(toys.probs(x), labels, unlabeled, train_prior=toys.PRIOR)


@pytest.fixture(scope="module")
def frontier(evidence):
    return trace_frontier(evidence, EVEN)


def traced(evidence, text, steps=3):
    return trace_frontier(evidence, EVEN, bind(text, evidence), steps=steps)


def numbers(point):
    return point.mean_recall, point.min_recall, point.min_coverage


def test_no_point_beats_another(frontier):
    assert len(frontier.points) > 4
    for one in frontier.points:
        for two in frontier.points:
            if one is not two:
                assert not all(a >= b for a, b in zip(numbers(one), numbers(two), strict=True))


def test_points_go_from_high_mean_recall_down(frontier):
    means = [point.mean_recall for point in frontier.points]
    assert means == sorted(means, reverse=True)
    assert means[0] > means[-1]


def own_point(evidence, text):
    """The rule that the search finds for one sentence, measured by an estimate of its own."""
    goal = csst.objective(text).bind(3)
    one = fit_pooled(SoftObjective(goal, EVEN, sharpness(evidence)), evidence)
    decided, soft = one.decide(evidence.scores), one.decide(evidence.unlabeled_scores)
    recall = []
    for k in range(3):
        hits, n = ((evidence.labels == k) & (decided == k)).sum(), (evidence.labels == k).sum()
        share = evidence.posterior[soft == k, k].sum() / evidence.posterior[:, k].sum()
        recall.append((hits + 20 * share) / (n + 20))
    return float(np.mean(recall)), float(min(recall))


def test_both_ends_are_there(evidence, frontier):
    mean, _ = own_point(evidence, "max mean(recall)")
    _, low = own_point(evidence, "max min(recall)")
    assert max(point.mean_recall for point in frontier.points) >= mean - 1e-9
    assert max(point.min_recall for point in frontier.points) >= low - 0.005
    assert frontier.points[0].min_recall < low - 0.02
    assert max(point.min_coverage for point in frontier.points) > 0.97 / 3


def test_points_are_what_their_rules_do(evidence, frontier):
    """Each point's numbers against exact rates, and its rule on probabilities against its own estimate."""
    for point in frontier.points[::4]:
        c = toys.confusion_of(point.rule.predict, EVEN)
        assert float(c.recall.mean()) == pytest.approx(point.mean_recall, abs=0.05)
        assert point.min_recall == pytest.approx(float(point.estimate.confusion.recall.min()))
        assert point.accuracy == pytest.approx(float(point.estimate.confusion.accuracy))
        assert point.min_coverage == pytest.approx(float(point.estimate.confusion.coverage.min()))
        assert set(point.as_dict()) == {"mean_recall", "min_recall", "min_coverage", "accuracy"}
        assert point.as_dict()["min_recall"] == point.min_recall


def test_the_unadjusted_point_is_the_plain_argmax(frontier):
    given = toys.probs(toys.GRID)
    assert frontier.unadjusted.rule.predict(given).tolist() == given.argmax(1).tolist()
    assert frontier.unadjusted.min_recall < max(point.min_recall for point in frontier.points) - 0.05


def test_the_unadjusted_point_of_a_network_trained_under_a_gain_is_its_own_argmax(evidence):
    """Its softmax is p weighed by the gain; the plain argmax is that of the softmax, not of p."""
    undo = torch.tensor([1.0, 0.5, 0.125])
    plain = trace_frontier(replace(evidence, undo=undo), EVEN, steps=3).unadjusted
    x, labels = toys.sample(400, seed=1)
    weighed = toys.probs(x) / undo.numpy()
    weighed = weighed / weighed.sum(1, keepdims=True)
    for c in range(3):
        assert plain.estimate.labeled_rates[c, c] == pytest.approx((weighed.argmax(1) == c)[labels == c].mean())
    assert plain.rule.predict(torch.as_tensor(weighed)).tolist() == weighed.argmax(1).tolist()


def test_without_an_objective(frontier):
    assert frontier.best is None
    assert frontier.feasible is None
    high = max(point.mean_recall for point in frontier.points)
    low = max(point.min_recall for point in frontier.points)
    assert frontier.sentence.startswith(
        f"Decision rules reach a mean recall of {high:.3f}; the highest lowest-class recall is {low:.3f}"
    )


def test_an_objective_without_constraints(evidence):
    found = traced(evidence, "max min(recall)")
    assert found.feasible is None
    assert found.best.min_recall == pytest.approx(own_point(evidence, "max min(recall)")[1])
    assert "Decision rules reach" in found.sentence


def test_constraints_that_can_be_met(evidence):
    found = traced(evidence, "max mean(recall) s.t. coverage >= 0.95/K")
    assert found.feasible is True
    assert found.best.min_coverage >= 0.95 / 3 - 1e-3
    assert found.sentence.startswith(
        f"All constraints of 'max mean(recall) s.t. coverage >= 0.95/K' can be met, with a value of "
        f"{found.best.mean_recall:.3f}, estimated from 400 labels"
    )
    assert found.sentence.endswith("and 1,500 unlabeled rows.")


def test_a_single_constraint_that_cannot_be_met(evidence):
    found = traced(evidence, "max mean(recall) s.t. recall >= 0.97")
    assert found.feasible is False
    recall = found.best.estimate.confusion.recall
    assert found.sentence.startswith("No rule was found that meets all constraints, estimated from 400 labels")
    assert (
        f"recall >= 0.97 for every class cannot be met: the nearest is {float(recall.min()):.3g} instead of 0.97, "
        f"for recall[{int(recall.argmin())}]." in found.sentence
    )


def test_a_number_that_may_not_be_exceeded(evidence):
    found = traced(evidence, "max mean(recall) s.t. mean(coverage) <= 0.2")
    assert found.feasible is False
    assert "mean(coverage) <= 0.2 cannot be met: the nearest is 0.333 instead of 0.2." in found.sentence
    other = traced(evidence, "max mean(recall) s.t. 0.5 <= mean(coverage)")
    assert "0.5 <= mean(coverage) cannot be met: the nearest is 0.333 instead of 0.5." in other.sentence


def test_impossible_even_alone(evidence):
    found = traced(evidence, "max mean(recall) s.t. mean(recall) >= 0.99, coverage[0] >= 0.2")
    assert found.feasible is False
    assert "mean(recall) >= 0.99 cannot be met, even alone: the nearest is 0.8" in found.sentence
    assert "instead of 0.99" in found.sentence
    assert "coverage[0] >= 0.2 cannot" not in found.sentence


def test_impossible_together(evidence):
    found = traced(evidence, "max mean(recall) s.t. recall[0] >= 0.97, recall[1] >= 0.97")
    assert found.feasible is False
    missed = [
        "recall[0] >= 0.97 cannot be met together with recall[1] >= 0.97: the nearest is",
        "recall[1] >= 0.97 cannot be met together with recall[0] >= 0.97: the nearest is",
    ]
    assert any(part in found.sentence for part in missed)
    assert "even alone" not in found.sentence


def test_two_moving_sides(evidence):
    found = traced(evidence, "max mean(recall) s.t. recall[0] >= recall[1] + 1.1")
    assert found.feasible is False
    assert "cannot be met: the nearest misses it by" in found.sentence


class Own(Objective):
    domain = NonNegative()

    def utility(self, c):
        return c.recall.mean()

    def payoff(self, c):
        return torch.stack([c.recall[0] - 0.1, -0.2 - c.rates[1, 2]])


def test_an_objective_of_ones_own(evidence):
    found = trace_frontier(evidence, EVEN, Own(), steps=2)
    assert found.feasible is False
    assert "constraint 1 cannot be met: the nearest misses it by 0.2" in found.sentence
    assert "constraint 0" not in found.sentence


class Step(Objective):
    """A constraint without a slope, which the search cannot follow: it ends at the rule that ignores it."""

    domain = NonNegative()

    def utility(self, c):
        return c.recall.mean()

    def payoff(self, c):
        return torch.stack([(c.recall.min() >= 0.76).double() - 0.5 + 0 * c.recall.sum()])


def test_where_the_search_misses_a_constraint_the_best_point_that_meets_it_is_taken(evidence):
    assert fit_point(evidence, EVEN, Step()).min_recall < 0.76, "the search would not have missed it"
    found = trace_frontier(evidence, EVEN, Step())
    meeting = [point.mean_recall for point in found.points if point.min_recall >= 0.76]
    assert max(meeting) > min(meeting) + 0.002, "points that are alike would show nothing"
    assert found.feasible is True
    assert found.best.mean_recall == max(meeting)


def test_undo_stands_in_every_rule(evidence):
    undo = torch.tensor([1.0, 2.0, 3.0])
    found = trace_frontier(replace(evidence, undo=undo), EVEN, steps=2)
    fitted = [point for point in found.points if point is not found.unadjusted]
    assert all(torch.equal(point.rule.undo, undo.double()) for point in fitted)


def test_keeping_the_undominated():
    rule = DecisionRule.identity(2)
    values = [(0.8, 0.2, 0.1), (0.7, 0.5, 0.1), (0.7, 0.4, 0.1), (0.8, 0.2, 0.1), (0.6, 0.1, 0.3), (0.6, 0.5, 0.05)]
    kept = keep_undominated([Point(*v, 0.0, rule, None) for v in values])
    assert [numbers(point) for point in kept] == [(0.8, 0.2, 0.1), (0.7, 0.5, 0.1), (0.6, 0.1, 0.3)]
