"""Decision rules: what they decide, what changes nothing, how they are stored, what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from csst.errors import InputError
from csst.posthoc import DecisionRule, Randomised, rule_from_dict, rule_from_tensors
from tests.posthoc.examples import noisy

PROBS, LABELS = noisy(0, 50, 3)
MATRIX = torch.tensor([[1.0, 0.2, 0.0], [0.1, 3.0, 0.4], [0.0, 0.5, 2.0]], dtype=torch.float64)


def by_loops(probs, matrix):
    chosen = []
    for p in probs:
        scores = [sum(float(matrix[i, j]) * p[i] for i in range(len(p))) for j in range(len(p))]
        chosen.append(max(range(len(p)), key=scores.__getitem__))
    return chosen


def test_a_rule_is_the_argmax_of_the_gains():
    rule = DecisionRule(MATRIX)
    assert rule.predict(PROBS).tolist() == by_loops(PROBS, MATRIX)
    assert DecisionRule.identity(3).predict(PROBS).tolist() == PROBS.argmax(1).tolist()
    counts = rule.counts(PROBS, LABELS)
    for i in range(3):
        for j in range(3):
            assert counts[i, j] == sum(y == i and p == j for y, p in zip(LABELS, by_loops(PROBS, MATRIX), strict=True))
    assert torch.allclose(rule.confusion(PROBS, LABELS).rates, counts.double() / counts.sum(1, keepdim=True))


def test_the_first_of_equal_scores_wins():
    assert DecisionRule.identity(3).predict([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]).tolist() == [0, 1]


def test_scale_and_row_constants_change_no_decision():
    chosen = DecisionRule(MATRIX).predict(PROBS)
    assert torch.equal(DecisionRule(7.5 * MATRIX).predict(PROBS), chosen)
    assert torch.equal(DecisionRule(MATRIX + torch.tensor([[5.0], [-3.0], [1.0]])).predict(PROBS), chosen)
    assert torch.equal(DecisionRule(DecisionRule(MATRIX - 4).gain.matrix).predict(PROBS), chosen)


def test_a_randomised_rule_has_the_mixture_of_the_confusions():
    rules = (DecisionRule(MATRIX), DecisionRule.identity(3))
    lottery = Randomised(rules, torch.tensor([0.25, 0.75]))
    first, second = (rule.counts(PROBS, LABELS).double() for rule in rules)
    expected = 0.25 * first + 0.75 * second
    assert torch.allclose(lottery.counts(PROBS, LABELS), expected)
    assert torch.allclose(lottery.confusion(PROBS, LABELS).rates, expected / expected.sum(1, keepdim=True))
    assert torch.allclose(lottery.scores(PROBS).sum(1), torch.ones(50, dtype=torch.float64))


def test_a_randomised_rule_draws_for_each_example_by_its_weights():
    rows = np.tile([[0.5, 0.3, 0.2]], (20_000, 1))
    always = tuple(DecisionRule(torch.diag(torch.eye(3, dtype=torch.float64)[k]) + 1e-9) for k in (0, 1))
    lottery = Randomised(always, torch.tensor([0.3, 0.7]))
    drawn = lottery.predict(rows, 0)
    assert abs(float((drawn == 0).double().mean()) - 0.3) < 0.02
    assert set(drawn.tolist()) == {0, 1}
    assert torch.equal(drawn, lottery.predict(rows, 0))
    assert not torch.equal(drawn, lottery.predict(rows, 1))
    assert torch.equal(drawn, lottery.predict(rows, torch.Generator().manual_seed(0)))
    assert lottery.scores(rows[:1]).tolist()[0] == pytest.approx([0.3, 0.7, 0])


@pytest.mark.parametrize("matrices", [1, 3])
def test_rules_are_stored_and_read_back(matrices, tmp_path):
    rules = tuple(DecisionRule(MATRIX + k) for k in range(matrices))
    rule = rules[0] if matrices == 1 else Randomised(rules, torch.full((3,), 1 / 3))
    for again in (rule_from_dict(json.loads(json.dumps(rule.as_dict()))), rule_from_tensors(rule.tensors())):
        assert type(again) is type(rule)
        assert torch.equal(again.tensors()["matrices"], rule.tensors()["matrices"])
        assert torch.equal(again.tensors()["weights"], rule.tensors()["weights"])
    files = pytest.importorskip("safetensors.torch")
    files.save_file(rule.tensors(), tmp_path / "rule.safetensors")
    again = rule_from_tensors(files.load_file(tmp_path / "rule.safetensors"))
    assert torch.equal(again.tensors()["matrices"], rule.tensors()["matrices"])


def test_shrinking_goes_from_the_argmax_to_the_rule():
    weights = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    diagonal = DecisionRule(torch.diag(weights))
    half = diagonal.shrunk(0.5).matrix
    assert torch.allclose(half / half[0, 0], torch.diag(weights.sqrt() / weights[0].sqrt()))
    assert torch.equal(diagonal.shrunk(0).matrix, torch.eye(3, dtype=torch.float64))
    odds = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    for rule in (diagonal, DecisionRule(MATRIX), DecisionRule(MATRIX - 2)):
        assert torch.equal(rule.shrunk(1, odds).predict(PROBS), rule.predict(PROBS))
        # Just below full strength the decisions are those of the rule, just above none those of the argmax.
        assert torch.equal(rule.shrunk(1 - 1e-9, odds).predict(PROBS), rule.predict(PROBS))
        assert torch.equal(rule.shrunk(1e-9, odds).predict(PROBS), DecisionRule.identity(3).predict(PROBS))


def test_shrinking_does_not_depend_on_a_constant():
    for strength in (0.25, 0.75):
        chosen = DecisionRule(MATRIX).shrunk(strength).predict(PROBS)
        assert torch.equal(DecisionRule(3 * MATRIX + 2).shrunk(strength).predict(PROBS), chosen)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DecisionRule(torch.ones(2, 3)), r"matrix \(K, K\).*\(2, 3\)"),
        (lambda: DecisionRule(torch.full((2, 2), float("nan"))), "must be finite"),
        (lambda: DecisionRule.identity(3).predict([[0.5, 0.5]]), r"shape \(N, 3\).*found \(1, 2\)"),
        (lambda: DecisionRule.identity(2).predict([0.5, 0.5]), r"shape \(N, 2\).*found \(2,\)"),
        (lambda: DecisionRule.identity(2).predict([[0.5, 0.9]]), "row 0 sums to 1.4.*softmax"),
        (lambda: DecisionRule.identity(2).predict([[1.5, -0.5]]), "row 0 holds -0.5.*not logits"),
        (lambda: DecisionRule.identity(2).predict([[0.5, 0.5], [float("nan"), 1]]), r"NaN.*rows \[1\]"),
        (lambda: DecisionRule.identity(2).shrunk(1.5), "between 0 .* and 1 .*found 1.5"),
        (lambda: Randomised((DecisionRule.identity(2),), torch.ones(2) / 2), "one weight per rule; found 1 rules"),
        (lambda: Randomised((DecisionRule.identity(2),) * 2, torch.ones(2)), "sum to 1"),
        (lambda: Randomised((DecisionRule.identity(2), DecisionRule.identity(3)), torch.ones(2) / 2), "same classes"),
        (lambda: rule_from_dict({"kind": "magic"}), r"found the keys \['kind'\]"),
        (lambda: rule_from_tensors({"weights": torch.ones(1)}), r"found \['weights'\]"),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(InputError, match=words) as error:
        make()
    assert "\n" not in str(error.value)
