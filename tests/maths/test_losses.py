"""Numerical behavior of the losses: stability, dtypes, graphs, and what bad input gets."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import csst

FUNCTIONS = (csst.cost_sensitive_loss, csst.weighted_consistency)


def gains(classes: int = 4) -> list[csst.Gain]:
    spread = torch.logspace(-6, 6, classes, dtype=torch.float64)
    return [
        csst.Gain(torch.eye(classes)),
        csst.Gain(torch.diag(spread)),
        csst.Gain(spread[:, None] * torch.rand(classes, classes) + torch.diag(spread.flip(0))),
        csst.Gain(torch.ones(classes, classes) * spread.flip(0)),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_extreme_logits_and_gains_stay_finite(function, size, dtype):
    torch.manual_seed(0)
    logits = size * torch.tensor([[1, -1, 1, -1], [-1, -1, -1, 1], [1, 1, 1, 1], [0, 0, -1, 1]])
    for gain in gains():
        for target in (torch.tensor([0, 1, 2, 3]), torch.softmax(torch.randn(4, 4), 1)):
            scores = logits.to(dtype).requires_grad_()
            loss = function(scores, target, gain)
            loss.sum().backward()
            assert torch.isfinite(loss).all()
            assert torch.isfinite(scores.grad).all()
            assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            kl = csst.kl_to_optimal(target, torch.softmax(scores.detach(), 1), gain)
            assert not torch.isnan(kl).any()
            assert (kl >= 0).all()


def test_identity_is_cross_entropy_and_the_inverse_prior_is_logit_adjustment():
    logits, labels = torch.randn(8, 5), torch.randint(5, (8,))
    assert torch.equal(
        csst.cost_sensitive_loss(logits, labels, csst.Gain(torch.eye(5))),
        F.cross_entropy(logits, labels, reduction="none"),
    )
    prior = torch.softmax(torch.randn(5), 0)
    adjusted = F.cross_entropy(logits + prior.log(), labels, reduction="none")
    torch.testing.assert_close(
        csst.cost_sensitive_loss(logits, labels, csst.Gain(torch.diag(1 / (5 * prior)))), adjusted
    )


def test_hard_labels_equal_one_hot_distributions():
    logits, labels = torch.randn(8, 4, dtype=torch.float64), torch.randint(4, (8,))
    for gain in gains():
        one_hot = F.one_hot(labels, 4).double()
        for function in FUNCTIONS:
            torch.testing.assert_close(function(logits, labels, gain), function(logits, one_hot, gain))
        probs = torch.softmax(logits, 1)
        torch.testing.assert_close(csst.kl_to_optimal(labels, probs, gain), csst.kl_to_optimal(one_hot, probs, gain))
        torch.testing.assert_close(gain.optimal_prediction(labels), gain.optimal_prediction(one_hot))


def test_only_the_logits_carry_a_graph():
    logits = torch.randn(3, 4, requires_grad=True)
    target = torch.softmax(torch.randn(3, 4, requires_grad=True), 1)
    matrix = (torch.rand(4, 4) + 0.1).requires_grad_()
    gain = csst.Gain(matrix)
    csst.cost_sensitive_loss(logits, target, gain).sum().backward()
    assert logits.grad is not None
    assert matrix.grad is None
    assert not csst.kl_to_optimal(target, torch.softmax(logits, 1), gain).requires_grad
    assert not csst.Multipliers(csst.objective("min-recall"), [0.5, 0.3, 0.2]).gain.matrix.requires_grad


def test_a_gain_keeps_its_dtype():
    for dtype in (torch.float16, torch.float32, torch.float64):
        gain = csst.Gain(torch.eye(3, dtype=dtype))
        assert gain.matrix.dtype == gain.mixing.dtype == gain.diagonal.dtype == dtype
        assert gain.optimal_prediction(torch.tensor([0])).dtype == dtype


def test_the_kl_is_infinite_where_a_needed_class_has_probability_zero():
    gain = csst.Gain([[1.0, 0.5], [0.0, 1.0]])
    probs = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert csst.kl_to_optimal(torch.tensor([0, 1]), probs, gain).tolist() == [float("inf"), 0.0]


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (torch.ones(2, 3), "shape"),
        (torch.ones(1), "shape"),
        (torch.ones(2, 2, 2), "shape"),
        (torch.tensor([1.0, -0.5]), r"classes \[1\]"),
        ([[1.0, float("nan")], [0, 1]], "finite"),
        ([[1.0, -0.1], [0, 1]], r"G\[0,1\] = -0.1"),
        ([[1.0, 0], [1, 0]], r"classes \[1\]"),
        ("abc", "numbers"),
        (None, "numbers"),
    ],
)
def test_bad_gains(matrix, says):
    with pytest.raises(ValueError, match=says):
        csst.Gain(matrix)


def test_a_diagonal_gain_is_a_vector():
    """From either form, every loss is that of the matrix, and nothing of size K x K is kept at 100,000 classes."""
    own, labels = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64), torch.tensor([0, 2, 1])
    vector, matrix = csst.Gain(own), csst.Gain(torch.diag(own))
    assert vector.entries.shape == matrix.entries.shape == (3,)
    assert torch.equal(vector.matrix, torch.diag(own))
    nearly = torch.diag(own).index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(1e-300, dtype=torch.float64))
    full = csst.Gain(nearly)
    assert full.entries.shape == (3, 3)
    logits = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    soft = torch.softmax(logits.flip(0), 1)
    for target in (labels, soft):
        for function in (csst.cost_sensitive_loss, csst.weighted_consistency):
            torch.testing.assert_close(function(logits, target, vector), function(logits, target, full))
        probs = torch.softmax(logits, 1)
        torch.testing.assert_close(csst.kl_to_optimal(target, probs, vector), csst.kl_to_optimal(target, probs, full))
        torch.testing.assert_close(vector.optimal_prediction(target), full.optimal_prediction(target))
    torch.testing.assert_close(vector.mixing, full.mixing)
    torch.testing.assert_close(vector.optimal_rows, full.optimal_rows)
    many = csst.Gain(torch.ones(100_000))
    wide, some = torch.zeros(2, 100_000), torch.tensor([0, 99_999])
    assert float(csst.cost_sensitive_loss(wide, some, many)[0]) == pytest.approx(math.log(100_000), abs=1e-4)
    assert float(csst.weighted_consistency(wide, some, many)[1]) == pytest.approx(math.log(100_000), abs=1e-4)
    csst.kl_to_optimal(some, torch.softmax(wide, 1), many)
    kept = [value.numel() for value in vars(many).values() if isinstance(value, torch.Tensor)]
    assert max(kept) == 100_000


def test_multipliers_load_a_gain_that_changed_its_shape():
    """A coverage constraint at multiplier 0 leaves G diagonal; once it bites, G is a whole matrix, and back."""
    goal = csst.objective("max mean(recall) s.t. coverage >= 0.5").bind(2)
    first = csst.Multipliers(goal, [0.9, 0.1], initial="zero")
    assert first.gain.is_diagonal
    start = {name: value.clone() for name, value in first.state_dict().items()}
    first.update(csst.Confusion.from_counts(torch.tensor([[10, 0], [9, 1]])))
    assert not first.gain.is_diagonal
    second = csst.Multipliers(goal, [0.9, 0.1], initial="zero")
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.gain.matrix, first.gain.matrix)
    second.load_state_dict(start)
    assert second.gain.is_diagonal
    with pytest.raises(RuntimeError, match="size mismatch"):
        second.load_state_dict({**start, "entries": torch.ones(3, 3)})


@pytest.mark.parametrize(
    ("logits", "target", "says"),
    [
        (torch.zeros(2, 3), torch.tensor([0, 3]), "0 .. 2"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), "0 .. 2"),
        (torch.zeros(2, 4), torch.tensor([0, 1]), r"\(B, 3\)"),
        (torch.zeros(2, 3), torch.tensor([0]), "one target per example"),
        (torch.zeros(2, 3), torch.zeros(2, 2), r"\(B, 3\)"),
        (torch.zeros(2, 3), torch.full((2, 3), -1.0), "non-negative"),
        (torch.zeros(2, 3), torch.full((2, 3), float("nan")), "non-negative"),
        (torch.zeros(2, 3), torch.zeros(2, 3), "sum to 1"),
        (
            torch.tensor([[0, 0, float("nan")]]),
            torch.tensor([0]),
            r"the first at place 0 \(the logits there are not finite\)",
        ),
        (torch.zeros(2, 3), [0, 1], "tensor"),
    ],
)
def test_bad_losses(logits, target, says):
    for function in FUNCTIONS:
        with pytest.raises(ValueError, match=says):
            function(logits, target, csst.Gain(torch.eye(3)))
