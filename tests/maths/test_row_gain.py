"""Gains that differ between rows: a loop over rows, one gain for all to the bit, and mixtures of shapes."""

from __future__ import annotations

import math

import pytest
import torch

from csst.maths.gain import Gain
from csst.maths.losses import cost_sensitive_loss, kl_to_optimal, weighted_consistency
from csst.maths.row_gain import RowGain

ROWS = torch.tensor([0, 1, 2, 1, -1, 0, 2])


def draw_gains(kind):
    generator = torch.Generator().manual_seed(3)
    diagonals = [Gain(torch.rand(4, generator=generator, dtype=torch.float64) + 0.1) for _ in range(3)]
    matrices = [Gain(torch.rand(4, 4, generator=generator, dtype=torch.float64) + 0.1) for _ in range(3)]
    return {"diagonal": diagonals, "matrices": matrices, "mixture": [diagonals[0], matrices[0], diagonals[1]]}[kind]


def draw_batch(is_soft):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    probs = torch.softmax(torch.randn(7, 4, generator=generator, dtype=torch.float64), 1)
    return logits, probs if is_soft else probs.argmax(1)


def refer(logits, target, gain):
    """The hybrid loss of one row, entry by entry."""
    matrix = gain.matrix.tolist()
    p = [float(target == k) for k in range(4)] if target.ndim == 0 else target.tolist()
    adjusted = [float(s) - math.log(matrix[i][i]) for i, s in enumerate(logits)]
    total = sum(math.exp(value) for value in adjusted)
    weights = [sum(matrix[k][i] / matrix[i][i] * p[k] for k in range(4)) for i in range(4)]
    return -sum(weight * (value - math.log(total)) for weight, value in zip(weights, adjusted, strict=True))


@pytest.mark.parametrize("kind", ["diagonal", "matrices", "mixture"])
@pytest.mark.parametrize("is_soft", [False, True])
def test_each_row_has_the_loss_of_its_gain(kind, is_soft):
    gains = draw_gains(kind)
    logits, target = draw_batch(is_soft)
    gain = RowGain(gains, ROWS)
    losses = cost_sensitive_loss(logits, target, gain)
    for row, place in enumerate(ROWS.tolist()):
        assert float(losses[row]) == pytest.approx(refer(logits[row], target[row], gains[place]), abs=1e-12)
        part = slice(row, row + 1)
        for measure in (weighted_consistency, lambda s, p, g: kl_to_optimal(p, torch.softmax(s, 1), g)):
            expected = measure(logits[part], target[part], gains[place])
            torch.testing.assert_close(measure(logits, target, gain)[part], expected)
        probs = torch.softmax(logits, 1)
        torch.testing.assert_close(gain.posterior(probs)[part], gains[place].posterior(probs[part]))
        weights = torch.tensor([0.5, 2.0, 1.0, 3.0])
        expected = cost_sensitive_loss(logits[part], target[part], gains[place].weigh_classes(weights))
        torch.testing.assert_close(cost_sensitive_loss(logits, target, gain.weigh_classes(weights))[part], expected)


@pytest.mark.parametrize("kind", ["diagonal", "matrices"])
@pytest.mark.parametrize("is_soft", [False, True])
def test_one_gain_for_all_rows_is_that_gain_to_the_bit(kind, is_soft):
    single = draw_gains(kind)[0]
    logits, target = (values.float() if values.is_floating_point() else values for values in draw_batch(is_soft))
    losses = [cost_sensitive_loss(logits, target, gain) for gain in (single, RowGain([single], 0 * ROWS))]
    if kind == "matrices" and is_soft:  # products of matrices are added up in another order
        torch.testing.assert_close(*losses)
    else:
        assert torch.equal(*losses)
