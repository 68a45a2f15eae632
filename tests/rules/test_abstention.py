"""Rules that may give no answer: metrics of what is answered, and rules against brute force."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import csst
from csst.maths.confusion import confusion_from_margins
from csst.rules import fit_rule, trace_frontier
from csst.rules.abstention import find_abstention_bounds
from csst.rules.rule import rule_from_dict
from csst.rules.soft_objective import SoftObjective
from csst.rules.trades import REVIEWED_SHARES, trace_reviews
from tests.helpers import toys

PRIORS = {"train_prior": toys.PRIOR, "deployment_prior": toys.PRIOR}


def draw_rows(labeled):
    """Probabilities and classes of some rows, and probabilities of 2,000 others."""
    x, labels = toys.sample(labeled, seed=3)
    unlabeled, _ = toys.sample(2000, seed=4)
    return toys.probs(x), labels, toys.probs(unlabeled)


@pytest.fixture(scope="module")
def rows():
    return draw_rows(600)


def fit(rows, sentence, **options):
    probs, labels, unlabeled = rows
    return fit_rule(probs, labels, sentence, unlabeled, **PRIORS, **options)


def confusion_of(rule):
    """The exact confusion of a rule on the toy, with a column of no answers."""
    decisions = rule.predict(toys.probs(toys.GRID)).numpy()
    rates = np.stack([toys.DENSITY[decisions == j].sum(0) for j in range(4)], 1)
    return csst.Confusion(torch.from_numpy(rates), torch.from_numpy(toys.PRIOR))


def test_metrics_are_of_what_is_answered():
    counts = np.array([[50, 10, 5, 15], [4, 20, 6, 0], [0, 0, 0, 10]])
    c = csst.Confusion.from_counts(counts)
    total = counts.sum()
    answered = [sum(counts[i][j] for j in range(3)) for i in range(3)]
    predicted = [sum(counts[i][j] for i in range(3)) for j in range(3)]
    for k in range(3):
        hits = counts[k][k]
        assert float(c.recall[k]) == pytest.approx(hits / answered[k] if answered[k] else 0)
        assert float(c.precision[k]) == pytest.approx(hits / predicted[k] if predicted[k] else 0)
        assert float(c.f1[k]) == pytest.approx(2 * hits / (answered[k] + predicted[k]) if predicted[k] else 0)
        union = answered[k] + predicted[k] - hits
        assert float(c.jaccard[k]) == pytest.approx(hits / union if union else 0)
        others = sum(answered) - answered[k]
        assert float(c.specificity[k]) == pytest.approx(1 - (predicted[k] - hits) / others)
        assert float(c.coverage[k]) == pytest.approx(predicted[k] / total)
        assert float(c.abstained[k]) == pytest.approx(counts[k][3] / counts[k].sum())
    assert float(c.accuracy) == pytest.approx(sum(counts[k][k] for k in range(3)) / sum(answered))
    assert float(c.abstain) == pytest.approx(25 / total)
    truth = [i for i in range(3) for j in range(3) for _ in range(counts[i][j])]
    predictions = [j for i in range(3) for j in range(3) for _ in range(counts[i][j])]
    from sklearn.metrics import matthews_corrcoef

    assert float(c.mcc) == pytest.approx(matthews_corrcoef(truth, predictions))


def test_without_a_column_of_no_answers_nothing_is_abstained():
    c = csst.Confusion.from_counts([[8, 2], [1, 9]])
    assert c.abstained is None
    assert float(c.abstain) == 0
    goal = csst.objective("min abstain s.t. abstain[0] <= 0.1, recall >= 0.5").bind(2)
    assert goal.slack(c).tolist() == pytest.approx([0.1, 0.3, 0.4])


@cache
def list_intervals():
    """Diagonal rates, coverages and abstentions of all rules with an interval of no answers at either boundary."""
    cumulative = np.cumsum(toys.DENSITY, 0)
    ends = np.stack([cumulative[np.searchsorted(toys.GRID, cut)] for cut in np.linspace(-1, 6.5, 30)])
    index = np.array(
        [(a, b, c, d) for a in range(30) for b in range(a, 30) for c in range(b, 30) for d in range(c, 30)]
    )
    first, second, third, fourth = (ends[index[:, place]] for place in range(4))
    answers = np.stack([first, third - second, 1 - fourth], 2)
    hits = np.stack([answers[:, k, k] for k in range(3)], 1)
    coverage = np.einsum("bij,i->bj", answers, toys.PRIOR)
    return hits, coverage, (second - first) + (fourth - third)


def find_best(goal):
    """Return the best value among these rules of those that meet the bounds."""
    prior = torch.from_numpy(toys.PRIOR)

    def measure(hits, coverage, abstained):
        c = confusion_from_margins(hits, coverage, prior, abstained)
        return goal.utility(c), goal.payoff(c)

    utility, payoff = torch.func.vmap(measure)(*(torch.from_numpy(values) for values in list_intervals()))
    is_worst_case = goal.domain.simplex_mask(payoff.shape[1])
    value = utility + (payoff[:, is_worst_case].min(1).values if is_worst_case.any() else 0)
    return float(value[(payoff[:, ~is_worst_case] >= -1e-3).all(1)].max())


@pytest.mark.parametrize(
    "sentence",
    [
        "max min(recall) s.t. abstain <= 0.1",
        "max mean(recall) s.t. abstain <= 0.2",
        "max accuracy s.t. abstain <= 0.1",
        "max mean(f1) s.t. abstain <= 0.1, abstain[2] <= 0.1",
        "min abstain s.t. precision[2] >= 0.85, recall >= 0.85",
    ],
)
def test_a_rule_is_near_the_best_one_with_intervals_of_no_answers(sentence):
    goal = csst.objective(sentence).bind(3)
    fitted = fit(draw_rows(3000), goal, margin=0)
    c = confusion_of(fitted.rule)
    assert fitted.rule.abstains
    assert float(goal.slack(c).min()) > -0.02
    assert float(goal.value(c)) > find_best(goal) - 0.03


def fit_seeds(sentence, labeled):
    """Rules for six draws of labeled and 1,000 unlabeled rows, each with its rows."""
    for seed in range(6):
        places, labels = toys.sample(labeled, seed=seed)
        others, _ = toys.sample(1000, seed=100 + seed)
        fitted = fit_rule(toys.probs(places), labels, sentence, toys.probs(others), **PRIORS)
        yield fitted, toys.probs(np.concatenate([places, others]))


def test_rows_get_no_answer_where_bounds_would_be_missed():
    goal = csst.objective("min abstain s.t. precision[2] >= 0.9, recall[2] >= 0.8").bind(3)
    confusions = [confusion_of(fitted.rule) for fitted, _ in fit_seeds(goal, labeled=150)]
    assert np.mean([max(0.0, -float(goal.slack(c).min())) for c in confusions]) < 0.015
    assert min(float(c.abstain) for c in confusions) > 0.02
    assert np.mean([float(c.abstain) for c in confusions]) < 0.2


def test_a_class_named_like_abstention_has_bounds_like_any_other():
    sentence = "max accuracy s.t. abstain <= 0.1, recall['abstainer'] >= 0.5"
    goal = csst.objective(sentence, class_names=["reader", "abstainer"])
    smooth = SoftObjective(goal, np.array([0.5, 0.5]), 10.0)
    assert find_abstention_bounds(smooth).tolist() == [True, False]


def test_no_row_goes_to_a_human_where_bounds_are_safe(rows):
    fitted = fit(rows, "min abstain s.t. precision[0] >= 0.6, recall[0] >= 0.5")
    assert float(confusion_of(fitted.rule).abstain) == pytest.approx(0, abs=1e-6)
    assert fitted.is_met


def test_no_answers_are_counted_by_the_rule_in_use():
    goal = csst.objective("min abstain s.t. precision[1] >= 0.85, recall[1] >= 0.85").bind(3)
    for fitted, probs in fit_seeds(goal, labeled=300):
        share = float((fitted.rule.predict(probs) == 3).double().mean())
        assert float(fitted.estimate.confusion.abstain) == pytest.approx(share, abs=0.04)


def test_the_share_of_no_answers_is_as_asked(rows):
    for bound in (0.05, 0.2):
        rule = fit(rows, f"max min(recall) s.t. abstain <= {bound}").rule
        assert float(confusion_of(rule).abstain) == pytest.approx(bound, abs=0.03)


def test_more_no_answers_buy_a_higher_lowest_recall(rows):
    lowest = [
        float(confusion_of(fit(rows, f"max min(recall) s.t. abstain <= {bound}").rule).recall.min())
        for bound in (0.02, 0.3)
    ]
    assert lowest[1] > lowest[0] + 0.05


def test_the_estimate_has_a_column_of_no_answers_and_is_close(rows):
    fitted = fit(rows, "max min(recall) s.t. abstain <= 0.1")
    c = confusion_of(fitted.rule)
    assert fitted.estimate.confusion.rates.shape == (3, 4)
    assert fitted.value == pytest.approx(float(c.recall.min()), abs=0.08)
    assert float(fitted.estimate.confusion.abstain) == pytest.approx(float(c.abstain), abs=0.03)
    assert "gives no answer" in fitted.sentence
    stored = rule_from_dict(fitted.as_dict()["rule"])
    assert stored.predict(rows[2]).tolist() == fitted.rule.predict(rows[2]).tolist()


def test_a_sentence_that_always_answers_is_as_before(rows):
    fitted = fit(rows, "max min(recall)")
    assert not fitted.rule.abstains
    assert fitted.estimate.confusion.abstained is None


def test_who_is_always_right_abstains_from_nothing_or_stays_right():
    _, labels = toys.sample(300, seed=5)
    probs = np.eye(3)[labels] * 0.97 + 0.01
    fitted = fit_rule(probs, labels, "max min(recall) s.t. abstain <= 0.1", probs, **PRIORS)
    predictions = fitted.rule.predict(probs).numpy()
    assert ((predictions == labels) | (predictions == 3)).all()
    assert (predictions == 3).mean() <= 0.1
    assert fitted.estimate.confusion.rates.shape == (3, 4)
    assert fitted.is_met


def test_reviews_say_what_a_human_buys(rows):
    fitted = fit(rows, "max min(recall)")
    frontier = trace_frontier(
        fitted.evidence, toys.PRIOR, csst.objective("max min(recall) s.t. abstain <= 0.3").bind(3), steps=2
    )
    assert [review.share for review in frontier.reviews] == list(REVIEWED_SHARES)
    values = {review.share: review.value for review in frontier.reviews}
    assert values[0.0] == pytest.approx(float(fitted.estimate.confusion.recall.min()), abs=0.03)
    exact = {share: confusion_of(fit(rows, f"max min(recall) s.t. abstain <= {share}").rule) for share in (0.1, 0.3)}
    for share, confusion in exact.items():
        assert values[share] == pytest.approx(float(confusion.recall.min()), abs=0.1)  # of the rows it was fitted on
    assert values[0.3] > values[0.1] > values[0.0]
    # The rest of the frontier is that of rules that always answer.
    assert frontier.best.estimate.confusion.abstained is None


def test_reviews_name_the_bounds_that_stay_out_of_reach(rows):
    goal = csst.objective("min abstain s.t. recall >= 0.9").bind(3)
    few, many = trace_reviews(fit(rows, "max min(recall)").evidence, toys.PRIOR, goal, shares=(0.0, 0.5))
    assert few.misses == ("recall >= 0.9 for every class",)
    assert many.misses == ()
