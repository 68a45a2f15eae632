"""DARP against a reference in plain loops; the refined labels solve its convex problem; where it changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

import csst
from csst.selftraining import DARPRefiner, Setup, UnlabeledBalance
from csst.selftraining.darp import SMALLEST, align, trim

IDENTITY = csst.Gain(torch.eye(3))


ESTIMATED = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)


def setup(classes, rows, shares, steps, prior):
    """With the labels' prior, or another one that is believed."""
    balance = None
    if prior == "estimated":
        balance = UnlabeledBalance(shares)
        balance.learn(ESTIMATED, shares)
    return Setup(classes, rows, shares, steps, balance=balance)


def softmaxes(rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    bias = torch.tensor([1.5, 0.0, -1.0], dtype=torch.float64)
    return torch.softmax(2 * torch.randn(rows, 3, generator=generator, dtype=torch.float64) + bias, 1)


def trimmed_by_hand(rows: list[list[float]], counts: list[float], delta: float) -> list[list[float]]:
    kept = [[SMALLEST] * len(counts) for _ in rows]
    for k, count in enumerate(counts):
        best = sorted(range(len(rows)), key=lambda m: (-rows[m][k], m))[: int(delta * count)]
        total = sum(rows[m][k] for m in best)
        for m in best:
            kept[m][k] += rows[m][k] * (count + SMALLEST) / (total + SMALLEST)
    return [[value / sum(row) for value in row] for row in kept]


def aligned_by_hand(rows: list[list[float]], counts: list[float], rounds: int) -> list[list[float]]:
    """Coordinate ascent in plain loops, every b_k by bisection."""
    entropy = [-sum(p * math.log(p) for p in row if p > 0) for row in rows]
    n, classes = len(rows), len(counts)
    b, a = [0.0] * classes, [0.0] * n

    def entry(m: int, k: int, at: float) -> float:
        return rows[m][k] * math.exp(-at * entropy[m])

    def normalize() -> None:
        for m in range(n):
            a[m] = sum(entry(m, k, b[k]) for k in range(classes))

    for _ in range(rounds):
        normalize()
        for k in range(classes):
            low, high = -200.0, 200.0
            for _ in range(200):
                middle = (low + high) / 2
                total = sum(entry(m, k, middle) / a[m] for m in range(n))
                low, high = (middle, high) if total > counts[k] else (low, middle)
            b[k] = (low + high) / 2
    normalize()
    return [[entry(m, k, b[k]) / a[m] for k in range(classes)] for m in range(n)]


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_refining_is_coordinate_ascent_on_the_dual(rounds):
    probs, counts = softmaxes(30), torch.tensor([10.0, 12.0, 8.0], dtype=torch.float64)
    expected = aligned_by_hand(probs.tolist(), counts.tolist(), rounds)
    torch.testing.assert_close(align(probs, counts, rounds), probs.new_tensor(expected), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("delta", [0.5, 1.0, 2.0])
def test_trimming_keeps_the_largest_entries_of_each_class(delta):
    probs, counts = softmaxes(30), torch.tensor([10.0, 12.5, 7.5], dtype=torch.float64)
    probs[3:6] = probs[2]  # ties
    got = trim(probs, counts, delta)
    expected = probs.new_tensor(trimmed_by_hand(probs.tolist(), counts.tolist(), delta))
    torch.testing.assert_close(got, expected)
    assert torch.equal(trim(probs, counts, 0), probs)


def test_the_result_meets_the_constraints_at_the_least_cost():
    probs, counts = softmaxes(40, 1), torch.tensor([12.0, 18.0, 10.0], dtype=torch.float64)
    result = align(probs, counts, rounds=500, tolerance=1e-12)
    torch.testing.assert_close(result.sum(0), counts, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(result.sum(1), torch.ones(40, dtype=torch.float64))
    weight = 1 / -(probs * probs.log()).sum(1)

    def cost(x: torch.Tensor) -> float:
        return float((weight * (x * (x / probs).log()).sum(1)).sum())

    generator = torch.Generator().manual_seed(2)
    best, moves = cost(result), 0
    for _ in range(300):  # mass around a square of two examples and two classes keeps every sum
        m, n = torch.randperm(40, generator=generator)[:2].tolist()
        j, k = torch.randperm(3, generator=generator)[:2].tolist()
        moved, bit = result.clone(), 1e-3 * float(result[[m, n]][:, [j, k]].min())
        for row, column, sign in ((m, j, 1), (m, k, -1), (n, j, -1), (n, k, 1)):
            moved[row, column] += sign * bit
        moves += bit > 1e-9
        assert cost(moved) >= best - 1e-12
    assert moves > 200
    assert cost(result) < cost(aligned_by_weight_one(probs, counts)) - 1e-3  # the weights matter


def aligned_by_weight_one(probs: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Plain Sinkhorn scaling: the same constraints, the cost without weights."""
    for _ in range(2000):
        probs = probs * (counts / probs.sum(0))
        probs = probs / probs.sum(1, keepdim=True)
    return probs


def test_a_distribution_that_fits_already_is_left_alone():
    probs = softmaxes(50)
    assert torch.equal(align(probs, probs.sum(0)), probs)
    certain = torch.eye(3, dtype=torch.float64)[torch.arange(30) % 3]
    counts = certain.sum(0)
    torch.testing.assert_close(align(trim(certain, counts, 2.0), counts), certain, rtol=0, atol=1e-5)


def test_certain_examples_never_move_even_if_the_counts_cannot_be_met():
    certain = torch.eye(3, dtype=torch.float64)[torch.zeros(10, dtype=torch.long)]
    counts = torch.tensor([2.0, 4.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(align(certain, counts), certain)
    mixed = torch.cat([certain, softmaxes(10)])
    result = align(mixed, counts * 2)
    torch.testing.assert_close(result[:10], certain)
    torch.testing.assert_close(result.sum(1), torch.ones(20, dtype=torch.float64))


@pytest.mark.parametrize("prior", ["labeled", "estimated"])
def test_the_refinery_keeps_the_last_predictions_and_refines_on_time(prior):
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    made = DARPRefiner(warmup=0.25, every=3, delta=2.0)
    made.bind(setup(3, 12, shares, 20, prior))
    generator = torch.Generator().manual_seed(3)
    known = [[1 / 3] * 3 for _ in range(12)]
    refined: torch.Tensor | None = None
    for step in range(20):
        index = torch.randint(12, (7,), generator=generator)
        probs = torch.softmax(2 * torch.randn(7, 3, generator=generator), 1)
        got = made(probs, index, IDENTITY)
        made.commit()
        if step < 5:
            assert torch.equal(got, probs)
        else:
            torch.testing.assert_close(got, refined[index].float())
        for example, row in zip(index.tolist(), probs.tolist(), strict=True):
            known[example] = row
        if step >= 4 and (step - 4) % 3 == 0:
            table = torch.tensor(known, dtype=torch.float64)
            table = table / table.sum(1, keepdim=True)
            wanted = (shares if prior == "labeled" else ESTIMATED) * 12
            rows = trimmed_by_hand(table.tolist(), wanted.tolist(), 2.0)
            refined = torch.tensor(aligned_by_hand(rows, wanted.tolist(), 10))
    assert refined is not None


def test_the_refinery_changes_nothing_where_the_distribution_is_right():
    probs = softmaxes(20).float()
    made = DARPRefiner(warmup=0, every=1, delta=0)
    made.bind(Setup(3, 20, probs.double().mean(0), 10))
    index = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        torch.testing.assert_close(made(probs[index], index, IDENTITY), probs[index])
        made.commit()


GAINS = {
    "full": [[1.0, 0.2, 0.4], [0.1, 2.0, 0.3], [0.0, 0.5, 3.0]],
    "diagonal": [[7.0, 0, 0], [0, 0.1, 0], [0, 0, 2.0]],
}


def under(matrix: list[list[float]], rows: list[list[float]]) -> list[list[float]]:
    """norm(G^T p) of every row."""
    result = [[sum(row[i] * matrix[i][j] for i in range(3)) for j in range(3)] for row in rows]
    return [[value / sum(row) for value in row] for row in result]


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("prior", ["labeled", "estimated"])
def test_under_another_gain_what_is_refined_are_the_class_probabilities(gain, prior):
    """The softmax is norm(G^T p); p is refined as for G = I, and seen through the gain of the step that uses it."""
    known, matrix = softmaxes(40).tolist(), GAINS[gain]
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    made = DARPRefiner(warmup=0, every=1, delta=2.0)
    made.bind(setup(3, 40, shares, 5, prior))
    made(torch.tensor(under(matrix, known)), torch.arange(40), csst.Gain(torch.tensor(matrix)))
    made.commit()
    counts = [40 * q for q in (shares if prior == "labeled" else ESTIMATED).tolist()]
    refined = aligned_by_hand(trimmed_by_hand(known, counts, 2.0), counts, 10)
    for later in GAINS.values():
        got = made(torch.tensor(under(later, known)), torch.arange(40), csst.Gain(torch.tensor(later)))
        torch.testing.assert_close(got, torch.tensor(under(later, refined)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("gain", GAINS)
def test_under_another_gain_nothing_changes_where_the_distribution_is_right(gain):
    known, matrix = softmaxes(40), GAINS[gain]
    seen = torch.tensor(under(matrix, known.tolist()))
    made = DARPRefiner(warmup=0, every=1, delta=0)
    made.bind(Setup(3, 40, known.mean(0), 5))
    for _ in range(3):
        got = made(seen, torch.arange(40), csst.Gain(torch.tensor(matrix)))
        torch.testing.assert_close(got, seen, rtol=1e-3, atol=1e-5)
        made.commit()


@pytest.mark.parametrize("bad", [{"warmup": 1.5}, {"every": 0}, {"delta": -1}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(csst.InputError, match="DARP needs"):
        DARPRefiner(**bad)
    with pytest.raises(csst.InputError, match=f"darp_{next(iter(bad))}"):
        csst_settings(**{f"darp_{key}": value for key, value in bad.items()})


def csst_settings(**values):
    from csst.settings import SelfTrainingSettings

    return SelfTrainingSettings(**values)
