"""Sentences that no classifier can meet are refused before training, and only those."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import csst
from csst.errors import InputError
from csst.estimators import CSSTClassifier
from csst.rules.deployment import refuse_contradiction
from csst.rules.possible import Condition, is_possible, refuse_impossible, round_bound

EVEN = np.full(10, 0.1)


def bound(sentence, prior):
    return csst.objective(sentence).bind_prior(torch.from_numpy(np.asarray(prior)))


def check(sentence, prior=EVEN):
    refuse_impossible(bound(sentence, prior), np.asarray(prior))


def solve_whole(sentence, prior):
    """Whether a confusion C (K, K) itself meets constraints on recall, coverage, precision and accuracy, by hand."""
    classes, rows, least = len(prior), [], []
    for part in sentence.split("s.t. ")[1].split(", "):
        metric, sign, value = part.split(" ")
        name, _, rest = metric.partition("[")
        k = int(rest[:-1]) if rest else None
        value, row = float(value), np.zeros((classes, classes))
        if name == "recall":
            row[k, k] = 1 / prior[k]
        elif name == "accuracy":
            row = np.eye(classes)
        elif name == "coverage":
            row[:, k] = 1
        elif name == "precision":
            row[k, k], row[:, k] = 1, row[:, k] - value
            row[k, k], value = 1 - float(part.split(" ")[2]), 0.0
        elif name == "f1":
            row[:, k] = -value
            row[k, k] += 2
            value = value * prior[k]
        direction = 1 if sign == ">=" else -1
        rows.append(direction * row.ravel())
        least.append(direction * value)
    sums = np.kron(np.eye(classes), np.ones(classes))
    found = linprog(np.zeros(classes**2), A_ub=-np.stack(rows), b_ub=-np.array(least) + 1e-7, A_eq=sums, b_eq=prior)
    return found.status == 0


def random_sentence(rng, classes):
    parts = []
    for _ in range(rng.integers(3, 7)):
        name = rng.choice(["recall", "coverage", "precision", "f1", "accuracy"])
        sign = rng.choice([">=", "<="])
        where = "" if name == "accuracy" else f"[{rng.integers(classes)}]"
        parts.append(f"{name}{where} {sign} {rng.uniform(0.02, 0.98):.3f}")
    return "max accuracy s.t. " + ", ".join(parts)


def test_a_sentence_is_refused_if_and_only_if_no_confusion_meets_it():
    """Against a linear program over all K^2 entries of the confusion instead of hits and coverage."""
    rng, answers = np.random.default_rng(0), []
    for _ in range(80):
        classes = int(rng.integers(2, 5))
        prior = rng.dirichlet(np.full(classes, 2.0)) * 0.9 + 0.1 / classes
        sentence = random_sentence(rng, classes)
        read = bound(sentence, prior)
        rows = [Condition.read(constraint, read, prior).rows() for constraint in read.constraints]
        answers.append(solve_whole(sentence, prior))
        assert is_possible(rows, prior) == answers[-1], sentence
    assert 20 < sum(answers) < 60


@pytest.mark.parametrize(
    ("sentence", "shown", "nearest"),
    [
        ("max mean(recall) s.t. coverage >= 0.2", ["coverage >= 0.2 for every class"], ["coverage >= 0.1 for every"]),
        (
            "max accuracy s.t. recall[8] >= 0.8, coverage[8] <= 0.05",
            ["recall[8] >= 0.8 together with coverage[8] <= 0.05"],
            ["recall[8] >= 0.5", "coverage[8] <= 0.08"],
        ),
        (
            "max accuracy s.t. recall[0] >= 0.5, precision[8] >= 0.9, coverage[8] >= 0.2",
            ["precision[8] >= 0.9 together with coverage[8] >= 0.2"],
            ["precision[8] >= 0.5", "coverage[8] >= 0.111"],
        ),
        ("max accuracy s.t. 0.08 <= coverage <= 0.09", ["meet coverage <= 0.09"], ["coverage <= 0.1 for every"]),
        ("max accuracy s.t. 0.2 <= coverage", ["0.2 <= coverage"], ["0.1 <= coverage"]),
        ("max accuracy s.t. f1[3] >= 0.9, coverage[3] >= 0.3", ["f1[3] >= 0.9"], ["f1[3] >= 0.5"]),
        ("max accuracy s.t. jaccard[3] >= 0.9, recall[3] <= 0.5", ["jaccard[3]"], ["jaccard[3] >= 0.5"]),
        ("max recall[0] s.t. accuracy <= 0.5, mean(recall) >= 0.6", ["mean(recall)"], ["mean(recall) >= 0.5"]),
        ("max accuracy s.t. fbeta(2)[3] >= 0.9, recall[3] <= 0.5", ["fbeta(2)[3] >= 0.9"], ["fbeta(2)[3] >= 0.555"]),
        (
            "max accuracy s.t. specificity[3] <= 0.5, coverage[3] <= 0.2",
            ["specificity[3]"],
            ["specificity[3] <= 0.778"],
        ),
        ("max accuracy s.t. 2*coverage[0] >= 1.5, coverage[1]/2 >= 0.2", ["2*coverage"], ["coverage[1]/2 >= 0.125"]),
        (
            "max accuracy s.t. recall[tail] - recall[head] >= 0.3, recall[tail] <= 0.1",
            ["recall[tail] - recall[head] >= 0.3"],
            ["recall[tail] - recall[head] >= 0.1", "recall[tail] <= 0.3"],
        ),
        (
            "max accuracy s.t. recall[head] <= recall[tail] - 0.2, recall[tail] <= 0.1",
            ["recall[head] <= recall[tail] - 0.2 together"],
            ["the nearest is recall[tail] <= 0.2 with"],
        ),
    ],
)
def test_what_contradicts_is_named_with_the_nearest_bounds(sentence, shown, nearest):
    with pytest.raises(InputError) as error:
        check(sentence)
    message = str(error.value)
    assert all(text in message for text in (*shown, *nearest))
    assert "recall[0]" not in message or "recall[0]" in shown[0]  # what has no part in it is not named
    assert message.count("\n") == 0


def test_classes_of_two_pass_their_mistakes_to_each_other():
    """At most 30 % of class 0 is right, so 49 % of all rows are wrongly class 1, of which 30 % of the rows are."""
    with pytest.raises(InputError, match=r"precision\[1\] >= 0.379 or recall\[0\] <= 0.893 with the other"):
        check("max accuracy s.t. precision[1] >= 0.8, recall[0] <= 0.3", [0.7, 0.3])


@pytest.mark.parametrize(
    "sentence",
    [
        "max mean(recall) s.t. coverage >= 0.95/K",
        "max mean(recall) s.t. coverage >= 1/K",
        "max mean(recall) s.t. coverage <= 1/K",
        "max accuracy s.t. recall >= 1",
        "max min(recall) s.t. precision >= 1",
        "max accuracy s.t. recall[8] >= 0.8, precision[8] >= 0.5",
        # not linear in hits and coverage: left alone, though they cannot be met
        "max accuracy s.t. mean(precision) >= 2",
        "max accuracy s.t. gmean(recall) >= 2",
        "max accuracy s.t. precision[0] - precision[1] >= 2",
        "max accuracy s.t. recall[0]*recall[1] >= 2",
        "max accuracy s.t. recall[0]/coverage[0] >= 100",
        "max accuracy s.t. precision[head] >= 2",
    ],
)
def test_others_are_left_alone(sentence):
    check(sentence)


def test_objectives_without_sentence_or_constraints_are_left_alone():
    refuse_impossible(csst.ConstantGain(torch.eye(10)), EVEN)
    check("max min(recall)")


def test_many_classes_take_no_time():
    check("max mean(recall) s.t. coverage >= 0.95/K", np.full(300, 1 / 300))


def test_the_nearest_bound_is_on_the_safe_side():
    assert round_bound(0.37974, True) == 0.379
    assert round_bound(0.8928, False) == 0.893
    assert round_bound(0.1 - 1e-7, True) == round_bound(0.1 + 1e-7, False) == 0.1
    assert round_bound(1e-7, True) == 0
    assert round_bound(-0.12345, True) == -0.124


def test_a_condition_is_loosened_in_the_units_of_its_metric():
    """precision >= 0.9 loosened by 0.2 is hits - 0.7 coverage >= 0."""
    sentence = bound("max accuracy s.t. precision[1] >= 0.9", [0.5, 0.3, 0.2])
    condition = Condition.read(sentence.constraints[0], sentence, np.array([0.5, 0.3, 0.2]))
    np.testing.assert_allclose(condition.rows(0.2), [[0, 1, 0, 0, -0.7, 0, 0]], atol=1e-12)
    assert condition.describe(0.2) == "precision[1] >= 0.7"


def test_the_deployment_prior_decides():
    names, learned, judged = ["a", "b"], [0] * 90 + [1] * 10, [0] * 5 + [1] * 5
    sentence = "max mean(recall) s.t. precision['b'] >= 0.8, coverage['b'] >= 0.4"
    refuse_contradiction(sentence, learned, judged, names)
    refuse_contradiction(sentence, learned, judged, names, "unlabeled")  # not known yet
    for prior in ("train", "0.9, 0.1", [0.9, 0.1]):
        with pytest.raises(InputError, match=r"precision\['b'\] >= 0.25 or coverage\['b'\] >= 0.125"):
            refuse_contradiction(sentence, learned, judged, names, prior)


@pytest.mark.parametrize("learner", ["linear", "network"])
def test_the_estimator_refuses_before_it_learns(learner):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 3)), np.repeat(["a", "b", "c"], 20)
    model = CSSTClassifier("max accuracy s.t. coverage >= 0.5", learner=learner)
    with pytest.raises(InputError, match=r"coverage >= 0\.333 for every class"):
        model.fit(x, y)
