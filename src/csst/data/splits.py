"""Splits into labeled, unlabeled, validation and test examples: long tails, stratified cuts, and a hash of a split.

All randomness comes from NumPy's PCG64, whose stream is the same on every platform, so a seed names a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from csst.errors import InputError


@dataclass(frozen=True)
class Split:
    """Disjoint indices into one pool of examples; validation and test may also come from another pool."""

    labeled: np.ndarray
    unlabeled: np.ndarray
    validation: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    test: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def hash(self) -> str:
        return split_hash(self.labeled, self.unlabeled, self.validation, self.test)


def split_hash(*parts: np.ndarray) -> str:
    """Return a short fingerprint of arrays: of their dtype, shape and content."""
    digest = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(part)
        if array.dtype.kind in "iu" and array.dtype != np.uint8:
            array = array.astype(np.int64)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def long_tail_counts(head: int, imbalance: float, classes: int, reverse: bool = False) -> list[int]:
    """Return the exponential long tail: n_i = floor(head * imbalance^(-i/(K-1))), at least 1 (paper, Sec. 5, Fig. 3).

    Args:
        head: examples of the most frequent class.
        imbalance: rho = n_1/n_K.
        classes: K.
        reverse: whether the last class is the most frequent.

    Returns:
        Number of examples of each class, K of them.
    """
    if head < 1 or imbalance < 1 or classes < 2:
        raise InputError(
            f"a long tail needs head >= 1, imbalance >= 1 and at least 2 classes; found {head}, {imbalance}, {classes}"
        )
    counts = [max(1, int(head * imbalance ** (-i / (classes - 1)) + 1e-9)) for i in range(classes)]
    return counts[::-1] if reverse else counts


@dataclass(frozen=True)
class Tail:
    """A long tail of examples.

    Args:
        head: examples of the most frequent class (the paper's N1 or M1).
        imbalance: most frequent over rarest class (rho).
        is_reversed: whether the last class is the most frequent.
    """

    head: int
    imbalance: float
    is_reversed: bool = False

    def counts(self, classes: int) -> list[int]:
        """Return the number of examples of each class, (K,)."""
        return long_tail_counts(self.head, self.imbalance, classes, self.is_reversed)


def long_tail(
    labels: np.ndarray,
    labeled: Tail,
    unlabeled: Tail,
    *,
    labeled_fraction: float = 1.0,
    validation: int = 0,
    test: int = 0,
    seed: int = 0,
) -> Split:
    """Cut a pool into a long-tailed training set and balanced validation and test sets.

    Args:
        labels: class indices of the pool, (N,).
        labeled: the labeled part.
        unlabeled: the unlabeled part; empty if its head is 0.
        labeled_fraction: below 1 it removes labels, above 1 it adds labels from outside all parts; the other parts stay
            the same.
        validation: examples per class.
        test: examples per class.
        seed: seed of the random choice.
    """
    labels = np.asarray(labels)
    classes = int(labels.max()) + 1
    counts_by_part = {
        "test": [test] * classes,
        "validation": [validation] * classes,
        "labeled": labeled.counts(classes),
        "unlabeled": unlabeled.counts(classes) if unlabeled.head else [0] * classes,
    }
    label_counts = scale_counts(counts_by_part["labeled"], labeled_fraction)
    # Additional labels come last, so that the other parts are the same for every labeled_fraction.
    counts_by_part["more labels"] = [
        max(0, new_count - count) for new_count, count in zip(label_counts, counts_by_part["labeled"], strict=True)
    ]
    rng = np.random.default_rng(seed)
    pieces: dict[str, list[np.ndarray]] = {name: [] for name in counts_by_part}
    for c in range(classes):
        order = rng.permutation(np.flatnonzero(labels == c))
        need = sum(counts[c] for counts in counts_by_part.values())
        if need > len(order):
            raise InputError(
                f"the split needs {need} examples of class {c} "
                f"({', '.join(f'{counts[c]} {name}' for name, counts in counts_by_part.items() if any(counts))}); "
                f"the pool has {len(order)}: lower the counts"
            )
        start = 0
        for name, counts in counts_by_part.items():
            pieces[name].append(order[start : start + counts[c]])
            start += counts[c]
        pieces["labeled"][c] = np.concatenate([pieces["labeled"][c], pieces["more labels"][c]])[: label_counts[c]]
    indices = {name: np.sort(np.concatenate(arrays)) for name, arrays in pieces.items()}
    return Split(indices["labeled"], indices["unlabeled"], indices["validation"], indices["test"])


def scale_counts(counts: Sequence[int], fraction: float) -> list[int]:
    """Return a fraction of the counts, which may be above 1; at least 1 example per class."""
    if not fraction > 0:
        raise InputError(f"labeled_fraction must be positive; found {fraction}")
    return [max(1, round(fraction * count)) for count in counts]


def hold_out(labels: np.ndarray, fraction: float, seed: int, class_names: Sequence[str] | None = None) -> np.ndarray:
    """Return the indices of a held-out part: the same fraction of every class, at least one and never all of it."""
    if not 0 < fraction < 1:
        raise InputError(f"the held-out fraction must lie between 0 and 1; found {fraction}")

    def sizes(c: int, count: int) -> tuple[int, int]:
        if count < 2:
            name = class_names[c] if class_names is not None else c
            raise InputError(
                f"class {name!r} has {count} labeled examples, and holding some out for validation needs 2: "
                "label more, merge classes, or give a validation set"
            )
        return min(count - 1, max(1, round(fraction * count))), 0

    return stratified_pair(np.asarray(labels), seed, sizes)[0]


def split_held_out(
    labels: np.ndarray, seed: int, class_names: tuple[str, ...], validation: int = 0, test: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Split held-out examples of each class into validation and test; 0 means half, else examples per class."""

    def sizes(c: int, count: int) -> tuple[int, int]:
        validation_size = validation or count // 2
        test_size = test or (count // 2 if validation else count - validation_size)
        if min(validation_size, test_size) < 1 or validation_size + test_size > count:
            raise InputError(
                f"class {class_names[c]!r} has {count} held-out examples; {max(validation_size, 1)} for validation and "
                f"{max(test_size, 1)} for test are needed: add examples, or lower the counts"
            )
        return validation_size, test_size

    return stratified_pair(labels, seed, sizes)


def stratified_pair(
    labels: np.ndarray, seed: int, sizes: Callable[[int, int], tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of two disjoint random parts; `sizes(class, count)` returns the size of each in a class."""
    rng = np.random.default_rng(seed)
    pieces = []
    other_pieces = []
    for c in range(int(labels.max()) + 1):
        order = rng.permutation(np.flatnonzero(labels == c))
        size, other_size = sizes(c, len(order))
        pieces.append(order[:size])
        other_pieces.append(order[size : size + other_size])
    return np.sort(np.concatenate(pieces)), np.sort(np.concatenate(other_pieces))
