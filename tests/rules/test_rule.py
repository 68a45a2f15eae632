"""The decision rule on probabilities, and the candidates on scores that become one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.estimation.held_out_scores import HeldOutScores, undo_gain
from csst.maths.gain import ConstantGain, Gain
from csst.maths.objectives import Objective
from csst.rules.bias_search import WeightedRows
from csst.rules.candidates import (
    Candidate,
    clip_positive,
    fit_closed_form,
    fit_pooled,
    hard_rates,
    sharpness,
    softness,
    weigh_classes,
)
from csst.rules.fit import bind
from csst.rules.rule import DecisionRule, rule_from_dict
from csst.rules.soft_objective import SoftObjective
from tests.helpers import toys

K = 4


def random_probs(n=200, seed=0, K=K):
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.7), n)


def random_rule(matrix=False, undo=None, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.1, 1, (K, K) if matrix else K)
    return DecisionRule(scale, rng.normal(size=K) * 0.1, 1.7, rng.normal(size=K), undo)


def plain_scores(rule, p):
    """m_j softmax(T log p + d)_j + c_j, or sum_i m_ij q_i + c_j, by loops."""
    p = [max(float(x), 1e-12) for x in p]
    raw = [math.exp(rule.temperature * math.log(p[k]) + float(rule.shift[k])) for k in range(K)]
    q = [x / sum(raw) for x in raw]
    m, c = rule.scale.tolist(), rule.offset.tolist()
    if rule.scale.ndim == 1:
        return [m[j] * q[j] + c[j] for j in range(K)]
    return [sum(m[i][j] * q[i] for i in range(K)) + c[j] for j in range(K)]


@pytest.mark.parametrize("matrix", [False, True])
def test_scores_are_the_formula(matrix):
    rule, given = random_rule(matrix), random_probs(50)
    given[0] = [1, 0, 0, 0]
    found = rule.scores(given)
    for row, p in zip(found.tolist(), given, strict=True):
        assert row == pytest.approx(plain_scores(rule, p), abs=1e-12)
    expected = [max(range(K), key=plain_scores(rule, p).__getitem__) for p in given]
    assert rule.predict(given).tolist() == expected
    assert rule.predict(torch.from_numpy(given)).tolist() == expected
    assert found.dtype == torch.float64
    assert len(set(expected)) > 1


def test_the_posterior_is_a_distribution_under_another_prior():
    """With T = 1 and d = log(new / old) it is Bayes' rule for another class balance."""
    old, new = np.array([0.7, 0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    given = random_probs(20)
    found = DecisionRule(np.ones(K), np.zeros(K), 1.0, np.log(new / old)).posterior(given).numpy()
    for row, p in zip(found, given, strict=True):
        raw = [p[k] * new[k] / old[k] for k in range(K)]
        assert row == pytest.approx([x / sum(raw) for x in raw])


def test_the_identity_is_the_plain_argmax():
    given = random_probs()
    rule = DecisionRule.identity(K)
    assert rule.predict(given).tolist() == given.argmax(1).tolist()
    assert rule.scores(given).numpy() == pytest.approx(given)
    assert rule.classes == K
    assert rule.predict([[0.25] * 4, [0.1, 0.4, 0.4, 0.1]]).tolist() == [0, 1]  # the first of equals


def test_counts_have_the_truth_in_rows():
    labels, given = [0, 0, 1, 3], np.eye(K)[[0, 1, 1, 2]]
    counts = DecisionRule.identity(K).counts(given, labels)
    assert counts.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    confusion = DecisionRule.identity(K).confusion(np.eye(K)[[0, 1, 2, 2]], [0, 1, 2, 3])
    assert confusion.recall.tolist() == [1, 1, 1, 0]


UNDO = [None, torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.linalg.inv(torch.eye(K) + 0.2)]


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("undo", UNDO, ids=["none", "diagonal", "full"])
def test_a_rule_survives_json(matrix, undo):
    rule, given = random_rule(matrix, undo), random_probs()
    again = rule_from_dict(json.loads(json.dumps(rule.as_dict())))
    assert again.scores(given).numpy() == pytest.approx(rule.scores(given).numpy(), abs=1e-12)
    assert again.predict(given).equal(rule.predict(given))
    assert again.as_dict() == rule.as_dict()
    assert ("undo" in rule.as_dict()) is (undo is not None)


GAINS = [
    torch.diag(torch.tensor([1.0, 5.0, 2.0, 8.0])),
    torch.eye(K) * 3 + torch.rand(K, K, generator=torch.Generator()),
]


@pytest.mark.parametrize("matrix", GAINS, ids=["diagonal", "full"])
def test_undoing_a_gain_is_its_posterior(matrix):
    gain = Gain(matrix.double())
    behind = torch.from_numpy(random_probs(100))
    trained = gain.optimal_prediction(behind)
    inverse = gain.softmax_inverse
    assert inverse.ndim == gain.entries.ndim
    found = undo_gain(trained, inverse)
    assert found.numpy() == pytest.approx(gain.posterior(trained).clamp(min=1e-6).numpy(), abs=1e-9)
    assert found.numpy() == pytest.approx(behind.clamp(min=1e-6).numpy(), abs=1e-6)
    rule = DecisionRule(torch.ones(K), torch.zeros(K), 1.0, torch.zeros(K), inverse)
    assert rule.predict(trained).tolist() == behind.argmax(1).tolist()
    assert trained.argmax(1).tolist() != behind.argmax(1).tolist()


def test_softmaxes_that_no_distribution_has_are_clipped():
    gain = Gain(torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64))
    assert undo_gain(torch.tensor([[1.0, 0.0]], dtype=torch.float64), gain.softmax_inverse).tolist() == [[1.0, 1e-6]]


def test_nothing_is_undone_without_a_gain():
    given = torch.from_numpy(random_probs(5))
    assert undo_gain(given, None) is given
    assert Gain(torch.full((K,), 2.0)).softmax_inverse is None


ONES, ZEROS = torch.ones(3), torch.zeros(3)
BAD_RULES = {
    "scale of other length": ((torch.ones(2), ZEROS, 1.0, ZEROS), r"found shapes \(2,\), \(3,\) and \(3,\)"),
    "offset of other length": ((ONES, torch.zeros(4), 1.0, ZEROS), r"found shapes \(3,\), \(4,\) and \(3,\)"),
    "a matrix not square": ((torch.ones(3, 2), ZEROS, 1.0, ZEROS), r"found shapes \(3, 2\)"),
    "one class": ((torch.ones(1), torch.zeros(1), 1.0, torch.zeros(1)), "at least 2 classes"),
    "a shift of two axes": ((ONES, ZEROS, 1.0, torch.zeros(3, 3)), "at least 2 classes"),
    "undo of other length": ((ONES, ZEROS, 1.0, ZEROS, torch.ones(2)), "at least 2 classes"),
    "NaN scale": ((torch.tensor([1, np.nan, 1]), ZEROS, 1.0, ZEROS), "the scale of a decision rule must be finite"),
    "infinite undo": (
        (ONES, ZEROS, 1.0, ZEROS, torch.tensor([1, np.inf, 1])),
        "the undo of a decision rule must be fi",
    ),
    "words": ((["a", "b", "c"], ZEROS, 1.0, ZEROS), "the scale of a decision rule must be numbers"),
    "temperature 0": ((ONES, ZEROS, 0.0, ZEROS), "temperature of a decision rule is a positive number; found 0.0"),
    "temperature infinite": ((ONES, ZEROS, float("inf"), ZEROS), "positive number; found inf"),
    "temperature NaN": ((ONES, ZEROS, float("nan"), ZEROS), "positive number; found nan"),
}


@pytest.mark.parametrize("case", BAD_RULES)
def test_bad_rules_are_refused(case):
    given, message = BAD_RULES[case]
    with pytest.raises(InputError, match=message):
        DecisionRule(*given)


def test_bad_probabilities_are_refused():
    rule = DecisionRule.identity(3)
    with pytest.raises(InputError, match=r"shape \(N, 3\).*found \(5, 4\)"):
        rule.predict(random_probs(5))
    with pytest.raises(InputError, match="NaN"):
        rule.predict([[0.5, 0.5, np.nan]])
    with pytest.raises(InputError, match="a stored rule has offset, scale, shift, temperature; found the keys"):
        rule_from_dict({"scale": [1, 1], "offset": [0, 0]})


def random_candidate(form, seed):
    rng = np.random.default_rng(seed)
    calibration = Calibration(float(rng.uniform(0.4, 2.5)), rng.normal(size=K) * 0.5)
    prior = rng.dirichlet(np.full(K, 3.0))
    if form == "bias":
        return Candidate("pooled", calibration, prior, bias=rng.normal(size=K))
    scale = rng.uniform(0.5, 5, K) if form == "scale" else rng.normal(size=(K, K)) + 5 * np.eye(K)
    return Candidate("pooled", calibration, prior, scale=scale, offset=rng.normal(size=K) * 0.5)


@pytest.mark.parametrize("form", ["bias", "scale", "matrix"])
@pytest.mark.parametrize("seed", range(4))
def test_a_candidate_on_scores_is_its_rule_on_probabilities(form, seed):
    train_prior = np.array([0.5, 0.3, 0.15, 0.05])
    one, given = random_candidate(form, seed), random_probs(400, seed)
    scores = np.log(given) - np.log(train_prior)
    rule = one.as_rule(train_prior)
    decided = one.decide(scores)
    assert rule.predict(given).tolist() == decided.tolist()
    assert len(set(decided.tolist())) > 1
    calibrated = one.calibration.apply(scores) + np.log(one.prior)
    posterior = np.exp(calibrated) / np.exp(calibrated).sum(1, keepdims=True)
    assert rule.posterior(given).numpy() == pytest.approx(posterior, abs=1e-9)
    assert float(rule.scale.abs().max()) == pytest.approx(1)


@pytest.mark.parametrize("form", ["bias", "scale", "matrix"])
def test_candidates_decide_by_their_formula(form):
    one, scores = random_candidate(form, 7), np.random.default_rng(7).normal(size=(60, K)) * 2
    expected = []
    for z in scores:
        if form == "bias":
            values = [z[j] + one.bias[j] for j in range(K)]
        else:
            T, a = one.calibration.temperature, one.calibration.bias
            raw = [one.prior[k] * math.exp(T * z[k] + a[k]) for k in range(K)]
            q = [x / sum(raw) for x in raw]
            if form == "scale":
                values = [one.scale[j] * q[j] + one.offset[j] for j in range(K)]
            else:
                values = [sum(q[i] * one.scale[i, j] for i in range(K)) + one.offset[j] for j in range(K)]
        expected.append(max(range(K), key=values.__getitem__))
    assert one.decide(scores).tolist() == expected


def test_undo_stands_in_front_of_the_rule():
    gain = Gain(torch.tensor([1.0, 4.0, 2.0, 0.5], dtype=torch.float64))
    one, behind = random_candidate("bias", 3), torch.from_numpy(random_probs(200, 3)).clamp(min=1e-3)
    behind = behind / behind.sum(1, keepdim=True)
    train_prior = np.full(K, 0.25)
    trained = gain.optimal_prediction(behind)
    assert (
        one.as_rule(train_prior, gain.softmax_inverse).predict(trained).equal(one.as_rule(train_prior).predict(behind))
    )


def toy_evidence(n=60, m=300, **options):
    x, labels = toys.sample(n, seed=1)
    unlabeled = toys.probs(toys.sample(m, seed=2)[0])
    return HeldOutScores.from_probs(toys.probs(x), labels, unlabeled, train_prior=toys.PRIOR, **options)


def closed(text, calibration=None, prior=toys.PRIOR):
    smooth = SoftObjective(bind(text, toy_evidence()), np.asarray(prior), 5.0)
    return fit_closed_form(smooth, calibration or Calibration.identity(3), "closed form")


def test_closed_forms():
    """1/pi for recall and coverage objectives, the plain argmax for accuracy."""
    given = random_probs(300, K=3)
    for text in ("max min(recall)", "max mean(recall)", "max mean(recall) s.t. coverage >= 0.9/K"):
        found = closed(text).as_rule(toys.PRIOR).predict(given).tolist()
        assert found == (given / toys.PRIOR).argmax(1).tolist()
    assert closed("max accuracy").as_rule(toys.PRIOR).predict(given).tolist() == given.argmax(1).tolist()
    # accuracy where all classes will be as frequent: 1/pi again
    even = closed("max accuracy", prior=[1 / 3] * 3).as_rule(toys.PRIOR).predict(given).tolist()
    assert even == (given / toys.PRIOR).argmax(1).tolist()


def test_the_closed_form_of_a_ratio_has_offsets():
    """mean f1 at random predictions: 2/(pi + 1/K) q_j - 2 pi/K/(pi + 1/K)^2, all over K."""
    given = random_probs(300, K=3)
    weight = [2 / (p + 1 / 3) for p in toys.PRIOR]
    price = [-2 * p / 3 / (p + 1 / 3) ** 2 for p in toys.PRIOR]
    expected = (given * weight + price).argmax(1)
    assert closed("max mean(f1)").as_rule(toys.PRIOR).predict(given).tolist() == expected.tolist()
    assert expected.tolist() != given.argmax(1).tolist()


def test_the_closed_form_of_a_constant_gain_is_the_gain():
    gain = np.array([[2.0, 0, 1], [1, 5, 0], [0, 0, 5]])
    for prior in (toys.PRIOR, [1 / 3] * 3):
        assert closed(ConstantGain(gain), prior=prior).scale == pytest.approx(gain)


class Mistakes(Objective):
    """Class 1 must not be taken for class 0."""

    def utility(self, c):
        return c.recall.mean() - 2 * c.rates[1, 0] ** 2


def test_the_pooled_rule_of_single_mistakes_is_that_of_their_gain():
    evidence, gain = toy_evidence(), np.array([[2.0, 0, 1], [1, 5, 0], [0, 0, 5]])
    found = fit_pooled(SoftObjective(ConstantGain(gain), toys.PRIOR, 5.0), evidence)
    assert found.scale == pytest.approx(gain)
    assert found.bias is None
    # d/dR of the goal, over the prior of the row, at the rates of the best bias
    scale = fit_pooled(SoftObjective(Mistakes(), toys.PRIOR, 5.0), evidence).scale
    assert np.diag(scale) == pytest.approx(1 / 3 / toys.PRIOR)
    mistaken = -scale[1, 0] * toys.PRIOR[1] / 4
    assert 0.01 < mistaken < 0.3
    rest = scale - np.diag(np.diag(scale))
    rest[1, 0] = 0
    assert not rest.any()


def test_calibration_enters_the_closed_form():
    calibration = Calibration(2.0, np.array([0.5, -0.1, -0.4]))
    assert closed("max min(recall)", calibration).bias == pytest.approx(calibration.bias / 2)
    smooth = SoftObjective(bind("max accuracy", toy_evidence()), toys.PRIOR, 5.0)
    expected = (calibration.bias + np.log(toys.PRIOR)) / 2
    assert weigh_classes(smooth, calibration) == pytest.approx(expected - expected.mean())


def test_softness_and_sharpness_follow_the_labels():
    free = SoftObjective(bind("max min(recall)", toy_evidence()), toys.PRIOR, 5.0)
    bound = SoftObjective(bind("max min(recall) s.t. coverage >= 0.5/K", toy_evidence()), toys.PRIOR, 5.0)

    def labeled(*counts):
        labels = np.repeat([0, 1, 2], counts)
        return HeldOutScores.from_probs(random_probs(len(labels), K=3), labels)

    assert softness(free, labeled(40, 16, 3)) == pytest.approx(0.3)
    assert softness(free, labeled(300, 200, 3)) == pytest.approx(0.3 * (50 / 200) ** 0.5)
    assert softness(free, labeled(9000, 9000, 3)) == pytest.approx(0.03)
    assert softness(bound, labeled(40, 16, 3)) == pytest.approx(0.1)
    assert sharpness(labeled(40, 16, 3)) == pytest.approx(10.0)
    assert sharpness(labeled(1, 1, 1)) == pytest.approx(2.5)
    assert sharpness(labeled(400, 400, 3)) == pytest.approx(2.5 * (400 * 400 / 50) ** 0.5)
    assert sharpness(labeled(9000, 9000, 3)) == pytest.approx(200.0)


def test_hard_rates_by_loops():
    rows = WeightedRows.pool(toy_evidence(12, 30))
    decisions = np.random.default_rng(0).integers(0, 3, 42)
    found = hard_rates(rows, decisions)
    for k in range(3):
        for j in range(3):
            assert found[k, j] == pytest.approx(sum(rows.fractions[i, k] for i in range(42) if decisions[i] == j))
    empty = WeightedRows(rows.scores, rows.fractions * [1, 0, 1])
    assert hard_rates(empty, decisions)[1] == pytest.approx([1 / 3] * 3)


def test_weights_are_positive():
    assert clip_positive(np.array([2.0, -1.0, 0.0])).tolist() == [2.0, 2e-6, 2e-6]
