"""Who is labeled, unlabeled, validation and test: long tails, stratified cuts, and a hash to prove equality.

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
    """Indices into one pool of examples, disjoint; validation and test may also come from a pool of their own."""

    labeled: np.ndarray
    unlabeled: np.ndarray
    validation: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    test: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def hash(self) -> str:
        return split_hash(self.labeled, self.unlabeled, self.validation, self.test)


def split_hash(*parts: np.ndarray) -> str:
    """A short fingerprint of arrays: their dtype, shape and content."""
    digest = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(part)
        array = array.astype(np.int64) if array.dtype.kind in "iu" and array.dtype != np.uint8 else array
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def long_tail_counts(head: int, imbalance: float, classes: int, reverse: bool = False) -> list[int]:
    """The exponential long tail: n_i = floor(head * imbalance^(-i/(K-1))), at least 1 (paper, Sec. 5, Fig. 3).

    Args:
        head: examples of the most frequent class.
        imbalance: rho = n_1/n_K.
        classes: K.
        reverse: whether the last class is the most frequent.

    Returns:
        Examples of every class, K of them.
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
        """Examples of every class, (K,)."""
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
        unlabeled: the unlabeled part; none if its head is 0.
        labeled_fraction: less than 1 takes labels away, more adds some that no part had; the other parts stay as they
            are.
        validation: examples per class.
        test: examples per class.
        seed: of the choice.
    """
    labels = np.asarray(labels)
    classes = int(labels.max()) + 1
    wanted = {
        "test": [test] * classes,
        "validation": [validation] * classes,
        "labeled": labeled.counts(classes),
        "unlabeled": unlabeled.counts(classes) if unlabeled.head else [0] * classes,
    }
    more = scale_counts(wanted["labeled"], labeled_fraction)
    wanted["more labels"] = [max(0, kept - count) for kept, count in zip(more, wanted["labeled"], strict=True)]
    rng = np.random.default_rng(seed)
    parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    for c in range(classes):
        order = rng.permutation(np.flatnonzero(labels == c))
        need = sum(counts[c] for counts in wanted.values())
        if need > len(order):
            raise InputError(
                f"the split needs {need} examples of class {c} "
                f"({', '.join(f'{counts[c]} {name}' for name, counts in wanted.items() if any(counts))}); "
                f"the pool has {len(order)}: lower the counts"
            )
        start = 0
        for name, counts in wanted.items():
            parts[name].append(order[start : start + counts[c]])
            start += counts[c]
        parts["labeled"][c] = np.concatenate([parts["labeled"][c], parts["more labels"][c]])[: more[c]]
    joined = {name: np.sort(np.concatenate(pieces)) for name, pieces in parts.items()}
    return Split(joined["labeled"], joined["unlabeled"], joined["validation"], joined["test"])


def scale_counts(counts: Sequence[int], fraction: float) -> list[int]:
    """A fraction of every class's examples, at least 1; more than they are where it is above 1."""
    if not fraction > 0:
        raise InputError(f"labeled_fraction must be positive; found {fraction}")
    return [max(1, round(fraction * count)) for count in counts]


def hold_out(labels: np.ndarray, fraction: float, seed: int, class_names: Sequence[str] | None = None) -> np.ndarray:
    """The indices of a held-out part with the same fraction of every class, at least one and never all of a class."""
    if not 0 < fraction < 1:
        raise InputError(f"the held-out fraction must lie between 0 and 1; found {fraction}")
    labels = np.asarray(labels)
    rng = np.random.default_rng(seed)
    held = []
    for c in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == c))
        if len(members) < 2:
            name = class_names[c] if class_names is not None else c
            raise InputError(
                f"class {name!r} has {len(members)} labeled examples, and holding some out for validation needs 2: "
                "label more, merge classes, or give a validation set"
            )
        held.append(members[: min(len(members) - 1, max(1, round(fraction * len(members))))])
    return np.sort(np.concatenate(held))


def split_held_out(
    labels: np.ndarray, seed: int, class_names: tuple[str, ...], validation: int = 0, test: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Held-out examples cut in two per class: validation and test. 0 means half, else examples per class."""

    def sizes(c: int, count: int) -> tuple[int, int]:
        first = validation or count // 2
        second = test or (count // 2 if validation else count - first)
        if min(first, second) < 1 or first + second > count:
            raise InputError(
                f"class {class_names[c]!r} has {count} held-out examples; {max(first, 1)} for validation and "
                f"{max(second, 1)} for test are needed: add examples, or lower the counts"
            )
        return first, second

    return stratified_pair(labels, seed, sizes)


def stratified_pair(
    labels: np.ndarray, seed: int, sizes: Callable[[int, int], tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Two disjoint random parts: `sizes(class, count)` says how many of a class's examples go into each."""
    rng, parts = np.random.default_rng(seed), ([], [])  # type: tuple[np.random.Generator, tuple[list, list]]
    for c in range(int(labels.max()) + 1):
        order = rng.permutation(np.flatnonzero(labels == c))
        first, second = sizes(c, len(order))
        parts[0].append(order[:first])
        parts[1].append(order[first : first + second])
    return np.sort(np.concatenate(parts[0])), np.sort(np.concatenate(parts[1]))
