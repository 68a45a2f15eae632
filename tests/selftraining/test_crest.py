"""CReST's sampling and CReST+'s alignment against references in plain loops."""

from __future__ import annotations

import pytest
import torch

import csst
from csst.selftraining import Alignment, GenerationSchedule, Setup
from csst.selftraining.crest import RECENT, SMALLEST, sampling_rates
from csst.settings import SelfTrainingSettings


def rates_by_hand(counts: list[int], alpha: float) -> list[float]:
    """mu_l = (N_(L+1-l) / N_1)^alpha with l the place of a class from frequent to rare."""
    order = sorted(range(len(counts)), key=lambda c: (-counts[c], c))
    ranked = [counts[c] for c in order]
    rates = [0.0] * len(counts)
    for place, label in enumerate(order):
        rates[label] = (ranked[len(counts) - 1 - place] / ranked[0]) ** alpha
    return rates


@pytest.mark.parametrize("counts", [[100, 30, 10, 1], [5, 80, 20, 20, 7], [3, 3, 3]])
@pytest.mark.parametrize("alpha", [0.0, 1 / 3, 1.0])
def test_sampling_rates(counts, alpha):
    prior = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    assert sampling_rates(prior, alpha).tolist() == pytest.approx(rates_by_hand(counts, alpha))


def test_the_papers_example():
    """Ten classes, imbalance 100: the rarest class keeps all, the most frequent one 0.01^alpha."""
    counts = torch.tensor([100 * 100 ** (-c / 9) for c in range(10)], dtype=torch.float64)
    rates = sampling_rates(counts / counts.sum(), 1 / 3)
    assert float(rates[-1]) == 1
    assert float(rates[0]) == pytest.approx(0.01 ** (1 / 3))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_most_confident_pseudo_labels_of_each_class_are_chosen(alpha):
    generator = torch.Generator().manual_seed(4)
    probs = torch.softmax(2 * torch.randn(200, 4, generator=generator) + torch.tensor([1.0, 0, 0, -1]), 1)
    probs[10:14] = probs[9]  # ties
    counts = [40, 5, 20, 10]
    index, labels = GenerationSchedule(3, alpha).choose(probs, torch.tensor(counts, dtype=torch.float64) / sum(counts))
    expected = []
    for label, rate in enumerate(rates_by_hand(counts, alpha)):
        own = [n for n, row in enumerate(probs.tolist()) if max(range(4), key=row.__getitem__) == label]
        own.sort(key=lambda n: (-max(probs[n].tolist()), n))
        expected += [(n, label) for n in own[: int(rate * len(own) + 1e-9)]]
    assert list(zip(index.tolist(), labels.tolist(), strict=True)) == expected
    assert (len(index) == 200) == (alpha == 0)


def test_the_defaults_are_crests():
    """One generation, which is no CReST at all, and alpha = 1/3."""
    assert GenerationSchedule() == GenerationSchedule(generations=1, alpha=1 / 3)
    assert Alignment().temperature == 0.5


def test_the_steps_are_split():
    rule = GenerationSchedule(3)
    assert [rule.steps(100, g) for g in range(3)] == [34, 33, 33]
    assert GenerationSchedule(1).steps(100, 0) == 100
    with pytest.raises(csst.InputError, match="3 generations need at least as many steps"):
        rule.steps(2, 0)


@pytest.mark.parametrize("generation", [0.0, 0.4, 1.0])
def test_alignment_is_the_prior_to_a_power_over_the_running_mean(generation):
    prior, low = [0.6, 0.3, 0.1], 0.5
    made = Alignment(low)
    made.bind(Setup(3, 50, torch.tensor(prior, dtype=torch.float64), 10, generation))
    t = (1 - generation) * 1.0 + generation * low
    wanted = [p**t / sum(q**t for q in prior) for p in prior]
    generator = torch.Generator().manual_seed(5)
    means: list[list[float]] = []
    for step in range(RECENT + 20):
        probs = torch.softmax(torch.randn(6, 3, generator=generator) + step / 50 * torch.tensor([1.0, 0, -1]), 1)
        got = made(probs, torch.arange(6), csst.Gain(torch.eye(3)))
        made.commit()
        if step == 0:
            assert torch.equal(got, probs)
        else:
            latest = means[-RECENT:]
            mean = [sum(row[k] for row in latest) / len(latest) for k in range(3)]
            for row, after in zip(probs.tolist(), got.tolist(), strict=True):
                moved = [row[k] * (wanted[k] + SMALLEST) / (mean[k] + SMALLEST) for k in range(3)]
                assert after == pytest.approx([value / sum(moved) for value in moved], rel=1e-4)
        means.append([sum(row[k] for row in probs.tolist()) / 6 for k in range(3)])


def test_alignment_changes_nothing_where_the_mean_is_right():
    probs = torch.softmax(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), 1)
    made = Alignment()
    made.bind(Setup(3, 40, probs.double().mean(0), 10))
    for _ in range(3):
        torch.testing.assert_close(made(probs, torch.arange(40), csst.Gain(torch.eye(3))), probs)
        made.commit()


@pytest.mark.parametrize(
    "matrix", [[[1.0, 0.2, 0.4], [0.1, 2.0, 0.3], [0.0, 0.5, 3.0]], [[7.0, 0, 0], [0, 0.1, 0], [0, 0, 2]]]
)
def test_under_another_gain_what_is_aligned_are_the_class_probabilities(matrix):
    gain, prior = csst.Gain(torch.tensor(matrix)), torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    known = torch.softmax(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), 1)
    plain, made = Alignment(), Alignment()
    for one, seen, under in ((plain, known, csst.Gain(torch.eye(3))), (made, gain.optimal_prediction(known), gain)):
        one.bind(Setup(3, 40, prior, 10))
        one(seen, torch.arange(40), under)
        one.commit()
    expected = gain.optimal_prediction(plain(known, torch.arange(40), csst.Gain(torch.eye(3))))
    got = made(gain.optimal_prediction(known), torch.arange(40), gain)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(got, gain.optimal_prediction(known), atol=0.01)


def test_bad_settings_are_refused():
    with pytest.raises(csst.InputError, match="at least one generation"):
        GenerationSchedule(0)
    with pytest.raises(csst.InputError, match="alpha >= 0"):
        GenerationSchedule(2, -1.0)
    with pytest.raises(csst.InputError, match="alignment temperature"):
        Alignment(2.0)
    for bad in ({"crest_generations": 0}, {"crest_alpha": -1.0}, {"crest_temperature": 2.0}):
        with pytest.raises(csst.InputError, match=next(iter(bad))):
            SelfTrainingSettings(**bad)
