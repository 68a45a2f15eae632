"""The margin by which a rule meets its constraints, how large it is, and what is said of those that it misses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.maths.confusion import Confusion
from csst.rules import candidates
from csst.rules.candidates import fit_pooled, keep_distance, softness
from csst.rules.feasibility import describe_missed, find_missed
from csst.rules.search import WeightedRows
from csst.rules.smooth import SmoothObjective
from csst.statistics.evidence import Evidence
from csst.statistics.rates import RateEstimate
from tests.helpers import toys

PRIOR, WORTH = np.array([0.6, 0.3, 0.1]), np.array([40.0, 90.0, 25.0])
RATES = np.array([[0.7, 0.2, 0.1], [0.25, 0.6, 0.15], [0.3, 0.1, 0.6]])


def smooth(sentence, prior=PRIOR):
    return SmoothObjective(csst.objective(sentence).bind_prior(torch.from_numpy(PRIOR)), prior, 5.0)


def evidence(n=90):
    x, labels = toys.sample(n, seed=0)
    return Evidence.from_probs(toys.probs(x), labels, train_prior=toys.PRIOR)


def estimate(rates=RATES, n=100):
    counts = np.full(3, n, dtype=np.int64)
    confusion = Confusion(torch.from_numpy(rates), torch.from_numpy(PRIOR))
    return RateEstimate(confusion, rates, rates, counts, np.zeros(3), 0, PRIOR)


def test_standard_errors_of_constraints_are_those_of_fractions():
    """sqrt(r (1 - r) / n) for a recall, sqrt(sum_k pi_k^2 R_kj (1 - R_kj) / n_k) for a coverage; 0 elsewhere."""
    game = smooth("max min(recall) s.t. recall[2] >= 0.8, coverage[0] >= 0.1, recall[1] >= 0.1")
    errors = game.measure_errors(RATES, WORTH, [3, 4])
    covered = sum(PRIOR[k] ** 2 * RATES[k, 0] * (1 - RATES[k, 0]) / WORTH[k] for k in range(3)) ** 0.5
    assert errors == pytest.approx([0, 0, 0, (0.6 * 0.4 / 25) ** 0.5, covered, 0])


def test_the_standard_error_of_a_precision_is_that_of_draws():
    game, rng = smooth("max mean(recall) s.t. precision[2] >= 0.5"), np.random.default_rng(0)
    error = game.measure_errors(RATES, 10 * WORTH, game.constraints)[0]
    drawn = []
    for _ in range(4000):
        rates = np.stack([rng.multinomial(int(10 * n), row) / int(10 * n) for row, n in zip(RATES, WORTH, strict=True)])
        drawn.append(PRIOR[2] * rates[2, 2] / (PRIOR @ rates)[2])
    assert error == pytest.approx(np.std(drawn), rel=0.05)


@pytest.mark.parametrize("sentence", ["max mean(recall) s.t. recall[2] >= 0.5", "max mean(f1) s.t. recall[2] >= 0.5"])
def test_a_margin_is_taken_off_the_slack(sentence):
    game = smooth(sentence)
    game.margins[:] = 0.03
    value = game.from_margins(np.diag(RATES).copy(), PRIOR @ RATES)
    assert value.slack == pytest.approx([0.6 - 0.5 - 0.03])
    game.margins[:] = 0.2  # missed by 0.1 now, at a penalty of 20: -20/2 0.1^2
    short = game.from_margins(np.diag(RATES).copy(), PRIOR @ RATES)
    assert short.value - value.value == pytest.approx(-0.1)


@pytest.mark.parametrize(("sentence", "first"), [("max min(recall)", 0.3), ("max accuracy s.t. recall[2] >= 0.5", 0.1)])
def test_decisions_get_harder_with_the_root_of_the_labels(sentence, first):
    known = [
        Evidence(np.zeros((3 * n, 3)), np.repeat(np.arange(3), n), np.zeros((0, 3)), PRIOR, PRIOR) for n in (5, 200)
    ]
    assert [softness(smooth(sentence), one) for one in known] == pytest.approx([first, first / 2])


class TestKeepDistance:
    """A search is accepted if it keeps at least half of the margin it was asked for."""

    @pytest.fixture
    def game(self):
        return smooth("max mean(recall) s.t. recall[2] >= 0.5", toys.PRIOR)

    def keep(self, game, monkeypatch, slacks, others=()):
        """The margins asked for in standard errors, and what came back, if searches end at these slacks."""
        known, asked, searches = evidence(), [], iter(slacks)
        monkeypatch.setattr(game, "measure_errors", lambda *_: np.full(1 + len(others), 0.1))

        def search(objective, rows, bias, anchor, t):
            asked.append(float(objective.margins[0] / 0.1))
            objective.prices[0] = 7.0
            return np.full(3, next(searches))

        class Payoff:
            domain = game.objective.domain

            def payoff(self, c):
                return torch.tensor([self.slack, *others], dtype=torch.float64)

        paid = Payoff()
        monkeypatch.setattr(candidates, "search_bias", search)
        monkeypatch.setattr(candidates, "hard_rates", lambda rows, decided: RATES)
        monkeypatch.setattr(game, "objective", paid)

        class Scores(np.ndarray):
            def __add__(self, bias):
                paid.slack = float(bias[0])
                return np.zeros((1, 3))

        rows = WeightedRows(np.zeros((1, 3)).view(Scores), np.zeros((1, 3)))
        kept = keep_distance(game, known, rows, np.zeros(3), np.zeros(3))
        return asked, float(kept[0])

    def test_half_of_the_margin_will_do(self, game, monkeypatch):
        assert self.keep(game, monkeypatch, [0.05]) == ([1.0], 0.05)
        assert game.margins.tolist() == [0]

    def test_less_is_tried_then(self, game, monkeypatch):
        assert self.keep(game, monkeypatch, [0.049, 0.026]) == ([1.0, 0.5], 0.026)

    def test_every_constraint_needs_its_margin(self, monkeypatch):
        game = smooth("max mean(recall) s.t. recall[2] >= 0.5, recall[1] >= 0.5", toys.PRIOR)
        assert self.keep(game, monkeypatch, [0.2, 0.3], (0.026,)) == ([1.0, 0.5], 0.3)

    def test_else_the_rule_stays_and_so_do_the_prices(self, game, monkeypatch):
        game.prices[0] = 2.0
        assert self.keep(game, monkeypatch, [0.049, 0.024]) == ([1.0, 0.5], 0.0)
        assert game.prices.tolist() == [2.0]


def test_one_constraint_for_every_class_leaves_no_room_for_a_margin(monkeypatch):
    called = []
    monkeypatch.setattr(candidates, "keep_distance", lambda *args: called.append(args) or args[3])
    known = evidence()
    for sentence, times in (
        ("max min(recall)", 0),
        ("max mean(recall) s.t. coverage >= 0.5/K", 0),
        ("max mean(recall) s.t. recall[2] >= 0.5", 1),
    ):
        called.clear()
        fit_pooled(smooth(sentence, toys.PRIOR), known)
        assert len(called) == times


def test_what_is_missed_by_more_than_a_standard_error_is_said():
    """The recall of class 2, .6 of 100 labels, has a standard error of .049."""
    for bound, expected in ((0.64, ""), (0.66, "recall[2] >= 0.66: the nearest is 0.6 instead of 0.66"), (0.59, "")):
        assert describe_missed(smooth(f"max accuracy s.t. recall[2] >= {bound}"), estimate()) == expected


@pytest.mark.parametrize(
    ("sentence", "what", "nearest"),
    [
        ("recall[2] >= 0.8", "recall[2] >= 0.8", "the nearest is 0.6 instead of 0.8"),
        ("0.8 <= recall[2]", "0.8 <= recall[2]", "the nearest is 0.6 instead of 0.8"),
        ("recall[0] <= 0.5", "recall[0] <= 0.5", "the nearest is 0.7 instead of 0.5"),
        ("0.5 >= recall[0]", "0.5 >= recall[0]", "the nearest is 0.7 instead of 0.5"),
        ("recall[2] >= recall[0]", "recall[2] >= recall[0]", "the nearest misses it by 0.1"),
    ],
)
def test_the_nearest_is_on_the_side_of_the_metric(sentence, what, nearest):
    missed = list(find_missed(smooth(f"max accuracy s.t. {sentence}").objective, estimate()))
    assert missed == [(0, what, nearest)]


def test_the_worst_class_of_each_constraint_is_named():
    goal = smooth("max accuracy s.t. coverage >= 0.01, recall >= 0.65, precision[0] >= 0.99").objective
    missed = list(find_missed(goal, estimate()))
    assert [number for number, *_ in missed] == [1, 2]
    assert missed[0][1:] == ("recall >= 0.65 for every class", "the nearest is 0.6 instead of 0.65, for recall[1]")
