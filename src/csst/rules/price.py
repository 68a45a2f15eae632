"""What a certificate would take, in labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from csst.maths.confusion import Confusion
from csst.rules.certificates import multiply_labels
from csst.rules.claims import Claim

#: a price is at least this multiple of the labels that were not enough
LEAST_MULTIPLE = 1.25


def price_in_labels(
    bounds: Sequence[Claim],
    expectations: Sequence[Confusion],
    rows: np.ndarray,
    prior: np.ndarray | None,
    delta: float,
    class_names: Sequence[str],
) -> str:
    """What a certificate would take: the bound that needs most labels, for the rule that needs fewest.

    Args:
        bounds: of the sentence.
        expectations: what is expected of every rule of a path.
        rows: fresh labels of every class, (K,).
        prior: see `csst.rules.certificates.p_value`.
        delta: 1 - confidence.
        class_names: K names.

    Returns:
        A sentence.
    """
    # Classes without a fresh label are priced as if they had one.
    there = np.maximum(rows, 1)
    table = [
        [multiply_labels(bound, confusion.rates.numpy(), there, prior, delta) for bound in bounds]
        for confusion in expectations
    ]
    cheapest = int(np.max(table, axis=1).argmin())
    hardest = int(np.argmax(table[cheapest]))
    bound = bounds[hardest]
    # These labels were not enough, whatever is expected.
    multiple = max(LEAST_MULTIPLE, table[cheapest][hardest])
    expectation = measure_bound(bound, expectations[cheapest])
    is_single = len(bound.classes) == 1
    is_own = is_single or bound.metric == "recall"
    number = int(rows[list(bound.classes)].sum()) if is_own else int(rows.sum())
    labels = f"{number} label{'s' if number != 1 else ''}"
    if is_single:
        labels += f" of {class_names[bound.classes[0]]!r}"
    if np.isinf(multiple):
        return (
            f"{labels} cannot promise {bound.text}, and more would not: {expectation:.2f} is expected of it; loosen "
            "the bound, or improve the model"
        )
    extra_labels = max(1, round(multiple * max(number, 1)) - number)
    remark = "" if bound.metric == "recall" else ", with other classes in proportion"
    metric = f"its {bound.metric}" if is_single else f"the {bound.metric}"
    return (
        f"{labels} cannot promise {bound.text}; about {extra_labels:,} more would{remark}, "
        f"if {metric} is {expectation:.2f}"
    )


def measure_bound(bound: Claim, confusion: Confusion) -> float:
    """The metric that a bound is about, of a confusion."""
    if bound.metric == "accuracy":
        return float(confusion.accuracy)
    return float(getattr(confusion, bound.metric)[list(bound.classes)].mean())
