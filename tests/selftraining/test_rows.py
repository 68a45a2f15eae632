"""The table of methods, row by row: what the gain follows, and which pseudo-labels are used under a full gain."""

from __future__ import annotations

import math

import pytest
import torch

import csst
from csst.selftraining import METHODS, Setup
from csst.settings import SelfTrainingSettings

K, N = 4, 60
TAU, CONFIDENCE, TEMPERATURE = 0.3, 0.6, 0.5  # exp(-0.3) = .74: the two rules differ even for G = I
SETTINGS = SelfTrainingSettings(tau=TAU, confidence=CONFIDENCE, temperature=TEMPERATURE, darp_warmup=0)
G = [[3.0, 0.2, 0.1, 0.0], [0.3, 2.0, 0.0, 0.2], [0.0, 0.1, 4.0, 0.3], [0.2, 0.0, 0.1, 1.0]]
EASE = [1.0, 0.5, 0.9, 0.2]

LEARNS = {
    "accuracy": ("erm", "fixmatch", "uda", "flexmatch", "darp", "crest", "crest+"),
    "mean-recall": ("la",),
    "objective": ("csl", "csst-fixmatch", "csst-uda", "csst-no-kl", "csst-flexmatch", "csst-darp", "csst-balanced"),
}
#: rule, whether targets are soft, whether the threshold is eased per class
ROWS = {
    "fixmatch": ("confidence", False, False),
    "uda": ("confidence", True, False),
    "flexmatch": ("confidence", False, True),
    "darp": ("confidence", False, False),
    "crest": ("confidence", False, False),
    "crest+": ("confidence", False, False),
    "csst-fixmatch": ("kl", False, False),
    "csst-uda": ("kl", True, False),
    "csst-no-kl": ("confidence", False, False),
    "csst-flexmatch": ("kl", False, True),
    "csst-darp": ("kl", False, False),
}


def expected(rule: str, soft: bool, eased: bool, rows: list[list[float]]) -> list[bool]:
    used = []
    for p in rows:
        label = max(range(K), key=lambda k: p[k])
        sharp = [value ** (1 / TEMPERATURE) for value in p]
        target = [value / sum(sharp) for value in sharp] if soft else [float(k == label) for k in range(K)]
        ease = EASE[label] if eased else 1.0
        if rule == "confidence":
            used.append(p[label] >= CONFIDENCE * ease)
            continue
        pulled = [sum(target[i] * G[i][j] for i in range(K)) for j in range(K)]
        best = [value / sum(pulled) for value in pulled]
        kl = sum(b * math.log(b / q) for b, q in zip(best, p, strict=True) if b > 0)
        used.append(kl <= TAU - math.log(ease))
    return used


def test_what_each_gain_follows():
    assert {name: follows for follows, names in LEARNS.items() for name in names} == {
        name: row.gain_follows for name, row in METHODS.items()
    }
    # csst-balanced labels by other probabilities: tests/selftraining/test_balance.py
    assert {*ROWS, "csst-balanced"} == {name for name, row in METHODS.items() if row.label is not None}


@pytest.mark.parametrize("name", ROWS)
def test_which_pseudo_labels_are_used(name):
    made = METHODS[name].selftraining(SETTINGS, Setup(K, N, torch.full((K,), 1 / K, dtype=torch.float64), 10))
    assert made is not None
    if hasattr(made.select, "class_thresholds"):
        made.select.class_thresholds = lambda: torch.tensor(EASE)
    logits = 2 * torch.randn(N, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, used = made.pseudo_labels(logits, torch.arange(N), csst.Gain(torch.tensor(G, dtype=torch.float64)))
    wanted = expected(*ROWS[name], torch.softmax(logits, 1).tolist())
    assert used.bool().tolist() == wanted
    assert 2 < sum(wanted) < N - 2


def test_the_rules_of_this_test_can_be_told_apart():
    rows = torch.softmax(2 * torch.randn(N, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
    distinct = {tuple(expected(*row, rows.tolist())) for row in set(ROWS.values())}
    assert len(distinct) >= 4  # soft targets change nothing for the confidence rule
