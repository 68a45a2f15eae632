"""FlexMatch's curriculum against a reference in plain loops, and where it must be FixMatch."""

from __future__ import annotations

import math
import random

import pytest
import torch

import csst
from csst.selftraining import Confidence, Curriculum, KLThreshold, Setup, Sharpened
from csst.selftraining.stateful import put

CLASSES, EXAMPLES = 4, 23


def curriculum(rule, examples=EXAMPLES) -> Curriculum:
    made = Curriculum(rule)
    made.bind(Setup(CLASSES, examples, torch.full((CLASSES,), 1 / CLASSES), 100))
    return made


def skewed(generator: torch.Generator, rows: int) -> torch.Tensor:
    """Softmaxes of which some are certain and some are not, the later classes rarer."""
    bias = torch.tensor([2.0, 1.0, 0.0, -1.0])
    return torch.softmax(4 * torch.randn(rows, CLASSES, generator=generator) + bias, 1)


def eased(last: dict[int, int]) -> list[float]:
    """T(c) / tau of the FlexMatch paper, from the last trusted label of each example."""
    sigma = [sum(1 for label in last.values() if label == c) for c in range(CLASSES)]
    unused = EXAMPLES - sum(sigma)
    beta = [s / max(max(sigma), unused) for s in sigma]
    return [b / (2 - b) for b in beta]


def kl_by_hand(G, target: list[float], p: list[float]) -> float:
    weights = [sum(G[i][j] * target[i] for i in range(CLASSES)) for j in range(CLASSES)]
    q = [w / sum(weights) for w in weights]
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a > 0)


@pytest.mark.parametrize("kind", ["confidence", "kl diagonal", "kl full", "kl soft"])
def test_the_curriculum_is_the_rule_of_the_paper(kind):
    generator, picker = torch.Generator().manual_seed(1), random.Random(1)
    G = [[1.0 if i == j else 0.0 for j in range(CLASSES)] for i in range(CLASSES)]
    if kind in ("kl full", "kl soft"):
        G = [[picker.uniform(0.5, 2) * (i == j) + picker.uniform(0, 0.05) for j in range(CLASSES)] for i in range(4)]
    gain, tau = csst.Gain(torch.tensor(G)), 0.3
    made = curriculum(Confidence(math.exp(-tau)) if kind == "confidence" else KLThreshold(tau))
    last: dict[int, int] = {}
    seen, some = set(), 0
    for _ in range(40):
        probs = skewed(generator, 9)
        index = torch.randint(EXAMPLES, (9,), generator=generator)  # the same example may occur twice
        target = Sharpened(0.5)(probs, index) if kind == "kl soft" else probs.argmax(1)
        used = made(target, probs, gain, index)
        made.commit()
        ease, trusted = eased(last), []
        for row, example in enumerate(index.tolist()):
            p = probs[row].tolist()
            label = max(range(CLASSES), key=p.__getitem__)
            soft = target[row].tolist() if kind == "kl soft" else [float(c == label) for c in range(CLASSES)]
            score = max(p) if kind == "confidence" else math.exp(-kl_by_hand(G, soft, p))
            assert bool(used[row]) == (score >= math.exp(-tau) * ease[label])
            some += used[row]
            if score >= math.exp(-tau):
                trusted.append((example, label))
        last.update(trusted)  # only now: within a step the state stands still
        assert made.selected.tolist() == [last.get(n, -1) for n in range(EXAMPLES)]
        seen.add(tuple(ease))
    assert len(seen) > 5
    assert 0 < some < 360


def test_at_the_start_everything_is_used_and_thresholds_grow():
    made, gain = curriculum(Confidence(0.9)), csst.Gain(torch.eye(CLASSES))
    assert made.class_thresholds().tolist() == [0, 0, 0, 0]
    made.selected[:5] = 0
    made.selected[5:8] = 1
    # 15 unused are more than 5 learned: the warm-up divides by them
    assert made.class_thresholds().tolist() == pytest.approx([(1 / 3) / (2 - 1 / 3), 0.2 / 1.8, 0, 0])
    made.selected[8:20] = 1
    assert made.class_thresholds().tolist() == pytest.approx([(1 / 3) / (2 - 1 / 3), 1, 0, 0])
    assert made(torch.tensor([3]), torch.full((1, 4), 0.25), gain, torch.tensor([0])).tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_all_classes_learned_it_is_the_rule_itself_to_the_bit(dtype):
    generator = torch.Generator().manual_seed(0)
    probs = skewed(generator, 500).to(dtype)
    probs[:50, 0] = 0.95  # exactly at the threshold
    probs[:50, 1:] = 0.05 / 3
    index, full = torch.arange(500), torch.eye(CLASSES) + 0.1
    for rule in (Confidence(0.95), KLThreshold(-math.log(0.95)), KLThreshold(0.3)):
        for gain in (csst.Gain(torch.eye(CLASSES)), csst.Gain(full)):
            made = curriculum(rule, 500)
            made.selected[:] = torch.arange(500) % CLASSES
            got, expected = (select(probs.argmax(1), probs, gain, index) for select in (made, rule))
            assert torch.equal(got, expected)


def test_of_an_example_that_occurs_twice_the_later_row_stays():
    buffer = torch.zeros(5)
    put(buffer, torch.tensor([3, 1, 3, 1, 3, 0]), torch.tensor([1.0, 2, 3, 4, 5, 6]))
    assert buffer.tolist() == [6, 4, 0, 5, 0]
