"""Small problems for the tests, and metrics written with plain loops."""

from __future__ import annotations

import math

import numpy as np


def noisy(seed: int, examples: int, classes: int, signal: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that know something of the labels and favour the first classes; every class occurs."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, examples - classes)])
    logits = signal * np.eye(classes)[labels] + rng.normal(size=(examples, classes)) - 0.8 * np.arange(classes)
    probs = np.exp(logits)
    return probs / probs.sum(1, keepdims=True), labels


def recalls(labels, predictions, classes):
    found = []
    for k in range(classes):
        members = [p for y, p in zip(labels, predictions, strict=True) if y == k]
        found.append(sum(p == k for p in members) / len(members))
    return found


def precision(labels, predictions, k):
    chosen = [y for y, p in zip(labels, predictions, strict=True) if p == k]
    return sum(y == k for y in chosen) / len(chosen) if chosen else 0.0


def coverages(predictions, classes):
    return [sum(p == k for p in predictions) / len(predictions) for k in range(classes)]


def accuracy(labels, predictions):
    return sum(y == p for y, p in zip(labels, predictions, strict=True)) / len(labels)


def macro_f1(labels, predictions, classes):
    total = 0.0
    for k in range(classes):
        hit = sum(y == k and p == k for y, p in zip(labels, predictions, strict=True))
        total += 2 * hit / (sum(y == k for y in labels) + sum(p == k for p in predictions))
    return total / classes


#: objective -> (labels, predictions, classes) -> (largest miss of a constraint, value)
REFERENCES = {
    "max min(recall)": lambda y, p, k: (0.0, min(recalls(y, p, k))),
    "max gmean(recall)": lambda y, p, k: (0.0, math.prod(recalls(y, p, k)) ** (1 / k)),
    "max mean(f1)": lambda y, p, k: (0.0, macro_f1(y, p, k)),
    "max 0.5*min(recall) + accuracy": lambda y, p, k: (0.0, 0.5 * min(recalls(y, p, k)) + accuracy(y, p)),
    "max accuracy s.t. recall >= 0.5": lambda y, p, k: (max(0.0, 0.5 - min(recalls(y, p, k))), accuracy(y, p)),
    "max accuracy s.t. precision[1] >= 0.9": lambda y, p, k: (max(0.0, 0.9 - precision(y, p, 1)), accuracy(y, p)),
    "max mean(recall) s.t. coverage >= 0.9/K": lambda y, p, k: (
        max(0.0, 0.9 / k - min(coverages(p, k))),
        sum(recalls(y, p, k)) / k,
    ),
}


def best(options):
    """The best (miss, value): the smallest miss first, up to rounding."""
    return max(options, key=lambda found: (-round(found[0], 9), found[1]))
