"""Binding, labels, domains, the user's own objectives: what the equations do not cover."""

from __future__ import annotations

import pytest
import torch

import csst
from csst.maths.domains import NonNegative, Product, Simplex

PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
COUNTS = [[8, 1, 1], [2, 5, 3], [1, 1, 0]]


class TailRecall(csst.Objective):
    def utility(self, c):
        return c.recall[-1]


class WorstOfTwo(csst.Objective):
    domain = Simplex()

    def utility(self, c):
        return c.rates.new_zeros(())

    def payoff(self, c):
        return torch.stack([c.recall.mean(), c.precision.mean()])


def test_multipliers_come_in_the_order_written():
    text = "max 0.5*min(recall[head], recall[tail]) + 2*min(precision) s.t. coverage <= 0.5, recall[1] >= 0.25"
    read = csst.objective(text, groups={"head": [0, 1], "tail": [2]}).bind(3)
    c = csst.Confusion.from_counts(COUNTS)
    recall, precision, coverage = c.recall, c.precision, c.coverage
    expected = [0.5 * recall[:2].mean(), 0.5 * recall[2], *(2 * precision), *(0.5 - coverage), recall[1] - 0.25]
    torch.testing.assert_close(read.payoff(c), torch.stack(expected))
    torch.testing.assert_close(read.slack(c), torch.stack(expected[5:]))
    torch.testing.assert_close(read.value(c), min(expected[0], expected[1]) + 2 * precision.min())
    assert read.labels[:3] == ("recall[head]", "recall[tail]", "precision[0]")
    assert read.labels[5:] == ("coverage[0] <= 0.5", "coverage[1] <= 0.5", "coverage[2] <= 0.5", "recall[1] >= 0.25")
    assert read.domain == Product(((Simplex(), 2), (Simplex(), 3), (NonNegative(), None)))
    start = csst.Multipliers(read, PRIOR).value
    torch.testing.assert_close(start, torch.tensor([2 / 3] + [1 / 3] * 8, dtype=torch.float64))


def test_labels_use_class_names():
    read = csst.objective("max min(recall) s.t. coverage >= 0.95/K", class_names=["cat", "dog", "it's"])
    assert read.labels[2] == "recall['it\\'s']"
    assert read.labels[3] == "coverage['cat'] >= 0.95/K"


@pytest.mark.parametrize(
    ("names", "place", "class_at_place"),
    [(("1", "2", "3"), 1, "is '2'"), (("1", "2", "3"), 3, "does not exist"), (("1.0", "0.0"), 1, "is '0.0'")],
)
def test_a_number_that_is_the_name_of_another_class_is_refused(names, place, class_at_place):
    """Quality 3 to 8 of wines: recall[3] was that of quality 6."""
    with pytest.raises(csst.ObjectiveError, match=f"from 0 and {class_at_place}, not the class '{place}"):
        csst.objective(f"max recall[{place}]", class_names=names)
    assert csst.objective("max recall[1]", class_names=("0", "1"))  # place and name are the same


@pytest.mark.parametrize("sign", [">=", "<="])
def test_a_constraint_met_exactly_has_a_slack_of_plain_zero(sign):
    chance = csst.Confusion.uniform([0.5, 0.5])
    slack = csst.objective(f"max mean(recall) s.t. coverage {sign} 0.5").slack(chance)
    assert slack.tolist() == [0, 0]
    assert not torch.signbit(slack).any()  # -0 would be printed with its sign


def test_no_multipliers_without_worst_case_or_constraint():
    for text in ("accuracy", "mean-recall", "max gmean(recall)"):
        assert csst.Multipliers(csst.objective(text), PRIOR).value.shape == (0,)


def test_tail_is_the_rarest_tenth_by_frequency_not_by_index():
    assert csst.head_tail([0.1, 0.6, 0.3]) == {"head": [1, 2], "tail": [0]}
    assert csst.head_tail([0.1] * 10) == {"head": list(range(9)), "tail": [9]}
    for classes, size in ((14, 1), (15, 2), (24, 2), (36, 4), (100, 10)):
        groups = csst.head_tail(torch.softmax(torch.arange(classes, dtype=torch.float64) / 50, 0))
        assert groups["tail"] == list(range(size))
        assert sorted(groups["head"] + groups["tail"]) == list(range(classes))


def test_groups_given_by_the_user_win_over_the_derived_ones():
    given = csst.objective("min-ht-recall", groups={"head": [2], "tail": [0, 1]})
    assert csst.Multipliers(given, PRIOR).objective.binding.group("tail") == (0, 1)


def test_a_subclass_works_wherever_a_sentence_does():
    game = csst.Multipliers(TailRecall(), PRIOR)
    assert game.value.shape == (0,)
    # Indifferent classes get a row of equal, tiny gains: no Bayes rule changes, and the diagonal stays positive.
    matrix = game.gain.matrix
    assert float(matrix[2, 2]) == pytest.approx(1 / 0.2)
    assert matrix[:2].unique().tolist() == pytest.approx([5e-6])
    read = csst.objective(f"{__name__}:WorstOfTwo")
    c = csst.Confusion.from_counts(COUNTS)
    assert float(read.value(c)) == pytest.approx(float(min(c.recall.mean(), c.precision.mean())))
    assert csst.Multipliers(read, PRIOR).labels == ("payoff 0", "payoff 1")


def test_a_constant_gain_is_used_as_given():
    matrix = torch.tensor([[1e-9, 5.0, 0], [0, 1e3, 0], [2, 0, 1e-8]], dtype=torch.float32)
    game = csst.Multipliers(csst.ConstantGain(matrix), PRIOR)
    game.update(csst.Confusion.from_counts(COUNTS))
    assert torch.equal(game.gain.matrix, matrix)
    c = csst.Confusion.from_counts(COUNTS)
    assert float(csst.ConstantGain(matrix).value(c)) == pytest.approx(float((matrix * c.matrix).sum()))


def test_indifference_in_the_middle_of_training_is_not_an_error():
    """A constraint that is met has lambda = 0; the rows it alone gave a gain to become indifferent."""
    game = csst.Multipliers(csst.objective("max recall[0] s.t. recall[1] >= 0.1"), PRIOR, step_size=100)
    game.update(csst.Confusion.from_counts([[9, 1, 0], [0, 9, 1], [0, 0, 9]]))
    assert game.value.tolist() == [0]
    assert (game.gain.diagonal > 0).all()


def test_the_floor_lets_a_class_come_back():
    game = csst.Multipliers(csst.objective("min-recall"), PRIOR, step_size=1.0)
    good, bad = [[9, 1, 0], [3, 7, 0], [3, 0, 7]], [[0, 10, 0], [0, 10, 0], [0, 0, 10]]
    for _ in range(300):
        game.update(csst.Confusion.from_counts(good))
    assert float(game.value[0]) == pytest.approx(1e-4 / 3)
    for _ in range(20):
        game.update(csst.Confusion.from_counts(bad))
    assert int(game.value.argmax()) == 0


def test_starting_at_the_prior_starts_at_the_identity():
    matrix = csst.Multipliers(csst.objective("min-recall"), PRIOR, initial="prior").gain.matrix
    torch.testing.assert_close(matrix, torch.eye(3, dtype=torch.float64))
    grouped = csst.Multipliers(csst.objective("min-ht-recall"), PRIOR, initial="prior")
    torch.testing.assert_close(grouped.value, torch.tensor([0.8, 0.2], dtype=torch.float64))
    zero = csst.Multipliers(csst.objective("max min(recall) s.t. coverage >= 0.1"), PRIOR, initial="zero")
    torch.testing.assert_close(zero.value, torch.tensor([1 / 3] * 3 + [0] * 3, dtype=torch.float64))


def test_metric_prior_defaults_and_override():
    assert csst.objective("max mean(recall) s.t. coverage >= 0.1").metric_prior == "train"
    for text in ("max mean(f1)", "max mean(jaccard)", "max accuracy s.t. precision[0] >= 0.5"):
        assert csst.objective(text).metric_prior == "evaluation"
    balanced = csst.Confusion.from_counts(torch.ones(3, 3) + torch.eye(3))
    multipliers = torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64)
    read = csst.objective("mean-recall-coverage")
    off_train = csst.gain_matrix(read, multipliers, balanced, PRIOR).matrix[0]
    off_evaluation = csst.gain_matrix(read, multipliers, balanced, PRIOR, metric_prior="evaluation").matrix[0]
    torch.testing.assert_close(off_train[1:], multipliers[1:])
    torch.testing.assert_close(off_evaluation[1:], multipliers[1:] / (3 * PRIOR[0]))


def test_state_and_gain_survive_saving_and_moving():
    game, other = (
        csst.Multipliers(csst.objective("mean-recall-coverage"), PRIOR),
        csst.Multipliers(csst.objective("mean-recall-coverage"), PRIOR),
    )
    _ = other.gain
    game.update(csst.Confusion.from_counts(COUNTS))
    other.load_state_dict(game.state_dict())
    assert torch.equal(other.value, game.value)
    assert torch.equal(other.gain.matrix, game.gain.matrix)
    assert other.value.dtype == other.gain.matrix.dtype == torch.float64
    assert other.gain is other.gain


@pytest.mark.parametrize("text", ["max gmean(recall)", "max hmean(recall)", "max qmean(recall)", "max mean(f1)"])
def test_a_class_at_recall_zero_keeps_a_finite_and_large_gain(text):
    read = csst.objective(text)
    c = csst.Confusion.from_counts([[9, 1, 0], [1, 9, 0], [5, 5, 0]])
    gain = csst.gain_matrix(read, [], c, PRIOR).matrix
    assert torch.isfinite(gain).all()
    assert gain[2, 2] > gain[0, 0]
    assert float(csst.objective("max gmean(recall)").value(c)) == 0  # reported with R, not the smoothed rates
    assert c.precision[2] == 0


@pytest.mark.parametrize("sentence", ["max min(recall) s.t. coverage >= 0.1", "max min(recall) + min(precision)"])
def test_an_objective_without_classes_says_so(sentence):
    """Labels and the shape of the multipliers need the number of classes."""
    for ask in (lambda goal: goal.labels, lambda goal: goal.domain):
        with pytest.raises(csst.InputError, match="are not known yet: call objective"):
            ask(csst.objective(sentence))
    assert len(csst.objective(sentence).bind(3).labels) == 6
