"""Confusion: where it comes from, what it refuses."""

from __future__ import annotations

import pytest
import torch

import csst

SENTENCE = "min-recall"
COUNTS = torch.tensor([[8, 1, 1], [2, 5, 3], [1, 1, 0]])


def test_batches_and_processes_add_up():
    labels, predictions = torch.randint(3, (60,)), torch.randint(3, (60,))
    labels[:3] = torch.arange(3)
    whole = csst.Confusion.from_predictions(labels, predictions, 3)
    parts = [csst.confusion_counts(labels[i::4], predictions[i::4], 3) for i in range(4)]
    for counts in (sum(parts), parts, torch.stack(parts), torch.stack(parts).numpy()):
        again = csst.Confusion.from_counts(counts)
        torch.testing.assert_close(again.rates, whole.rates)
        torch.testing.assert_close(again.prior, whole.prior)


def test_rates_and_prior_rebuild_it_under_another_prior():
    c = csst.Confusion.from_counts(COUNTS)
    moved = csst.Confusion(c.rates, [0.2, 0.3, 0.5])
    assert torch.equal(moved.recall, c.recall)
    torch.testing.assert_close(moved.matrix.sum(1), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64))
    torch.testing.assert_close(c.with_prior(moved.prior).accuracy, moved.accuracy)
    assert c.rates.dtype == c.prior.dtype == torch.float64


@pytest.mark.parametrize("metric", ["recall", "precision", "f1", "jaccard", "coverage", "accuracy"])
def test_every_metric_is_differentiable_in_the_rates(metric):
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def value(logits: torch.Tensor) -> torch.Tensor:
        return getattr(csst.Confusion(torch.softmax(logits, 1), prior), metric)

    assert torch.autograd.gradcheck(value, torch.randn(3, 3, dtype=torch.float64, requires_grad=True))


def test_precision_of_a_class_never_predicted_is_zero_with_a_finite_gradient():
    rates = torch.tensor([[1.0, 0], [1.0, 0]], dtype=torch.float64, requires_grad=True)
    precision = csst.Confusion(rates, [0.5, 0.5]).precision
    assert precision.tolist() == [0.5, 0.0]
    precision.sum().backward()
    assert torch.isfinite(rates.grad).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: csst.Confusion.from_counts([[1, 0], [0, 0]]), r"classes \[1\] have none"),
        (lambda: csst.Confusion.from_counts([[1, 0], [0, 0]], class_names=["a", "rare"]), r"classes \['rare'\]"),
        (lambda: csst.Confusion.from_counts([[1, -1], [0, 1]]), "non-negative"),
        (lambda: csst.Confusion.from_counts([[1, float("inf")], [0, 1]]), "finite"),
        (lambda: csst.Confusion.from_counts(torch.ones(2, 4)), r"\(K, K\)"),
        (lambda: csst.Confusion.from_counts("counts"), "numbers"),
        (lambda: csst.Confusion.from_predictions([0, 1], [0, 1], 3), r"classes \[2\]"),
        (lambda: csst.Confusion.from_predictions([], [], 3), r"classes \[0, 1, 2\]"),
        (lambda: csst.Confusion.from_predictions([0, 3], [0, 1], 3), "from 0 to 3"),
        (lambda: csst.Confusion.from_predictions([0, 1], [0, -1], 2), "from -1 to 0"),
        (lambda: csst.Confusion.from_predictions([0, 1], [0], 2), "same length"),
        (lambda: csst.Confusion.from_predictions([0.5, 1], [0, 1], 2), "integers"),
        (lambda: csst.Confusion.from_predictions(["a"], [0], 2), "integers"),
        (lambda: csst.Confusion([[0.5, 0.4], [0, 1]], [0.5, 0.5]), "row 0 sums to 0.9"),
        (lambda: csst.Confusion([[1.5, -0.5], [0, 1]], [0.5, 0.5]), "non-negative"),
        (lambda: csst.Confusion([[1, 0], [0, 1]], [0.5, 0.4]), "sum to 1"),
        (lambda: csst.Confusion([[1, 0], [0, 1]], [1.0, 0.0]), r"classes \[1\]"),
        (lambda: csst.Confusion([[1, 0], [0, 1]], [0.2, 0.3, 0.5]), r"\(K,\)"),
        (lambda: csst.Multipliers(csst.objective("min-recall"), [3.0, 1.0]), "divide the counts by their sum"),
        (lambda: csst.Multipliers(csst.objective("min-recall"), [1.0]), "K >= 2"),
        (lambda: csst.Multipliers(csst.objective("min-recall"), [0.5, 0.5], step_size=-1), "step_size"),
        (lambda: csst.Multipliers(csst.objective("min-recall"), [0.5, 0.5], initial="random"), "initial"),
        (lambda: csst.Multipliers(3, [0.5, 0.5]), "an Objective is needed.*found int"),
        (lambda: csst.Multipliers(SENTENCE, [0.5, 0.5]), r'csst.objective\("max min\(recall\)"\).*found the text'),
        (
            lambda: csst.gain_matrix(SENTENCE, [1.0], csst.Confusion.uniform([0.5, 0.5]), [0.5, 0.5]),
            "an Objective is needed.*found the text 'min-recall'",
        ),
        (
            lambda: csst.Multipliers(csst.objective("min-recall"), [0.5, 0.5]).update(
                csst.Confusion.from_counts(COUNTS)
            ),
            "classes at once",
        ),
        (
            lambda: csst.gain_matrix(
                csst.objective("min-recall"), [0.5], csst.Confusion.uniform([0.5, 0.5]), [0.5, 0.5]
            ),
            "a multiplier for each",
        ),
        (lambda: csst.objective("accuracy", metric_prior="test"), "metric_prior"),
        (
            lambda: csst.Multipliers(csst.objective("accuracy"), [0.5, 0.5]).update(
                csst.Confusion.uniform([0.5, 0.5]), -1
            ),
            "step_size",
        ),
        (
            lambda: csst.gain_matrix(
                csst.objective("min-recall"), [-1, 2], csst.Confusion.uniform([0.5, 0.5]), [0.5, 0.5]
            ),
            "non-negative",
        ),
        (lambda: csst.objective("accuracy", epsilon=0), "epsilon"),
        (lambda: csst.objective("min-recall", floor=2).domain, "floor"),
        (lambda: csst.objective("accuracy", groups={"g": []}), "at least one class"),
        (lambda: csst.objective("accuracy", groups={"g": "ab"}), "list of classes"),
        (lambda: csst.objective("accuracy", class_names=["a", "a"]), "differ"),
        *(
            (lambda x=x: csst.Confusion([[x, 1 - x], [0.5, 0.5]], [0.5, 0.5]), "rates must be finite and non-negative")
            for x in (float("nan"), float("inf"), -0.1)
        ),
        *(
            (lambda x=x: csst.Confusion.from_counts([[x, 1], [1, 1]]), "counts must be finite and non-negative")
            for x in (float("nan"), float("inf"), -1)
        ),
        *(
            (lambda x=x: csst.Confusion.uniform([x, 0.5]), "positive and finite")
            for x in (float("nan"), float("inf"), -0.5)
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, says):
    with pytest.raises(csst.InputError, match=says):
        call()
