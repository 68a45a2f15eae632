"""What exact tests need and prove: references for `csst.rules.certificates`."""

from __future__ import annotations

import numpy as np

from csst.rules.certificates import POWER, binomial_tail


def count_passed(p_values: np.ndarray, delta: float) -> np.ndarray:
    """How many rules pass, (...), each tested only if all before it passed (fixed-sequence testing)."""
    return np.cumprod(np.asarray(p_values) <= delta, axis=-1).sum(-1)


def labels_for_power(value: float, truth: float, delta: float, power: float = POWER) -> int:
    """The fewest trials with which a chance of success of at least `value` is proved as often as `power` says.

    Returns:
        n with  P(Bin(n, truth) >= c_n) >= power  for it and all larger ones up to twice as many.
    """
    largest_trial = 64
    while True:
        trials = np.arange(1, largest_trial + 1)
        successes = np.arange(largest_trial + 1)[:, None]
        p = np.where(successes <= trials, binomial_tail(np.minimum(successes, trials), trials, value), 1.0)
        critical = np.where((p <= delta).any(0), (p <= delta).argmax(0), trials + 1)
        powers = np.where(critical <= trials, binomial_tail(np.minimum(critical, trials), trials, truth), 0.0)
        misses = np.flatnonzero(powers < power)
        fewest = int(misses[-1]) + 2 if len(misses) else 1
        if 2 * fewest <= largest_trial:
            return fewest
        largest_trial *= 4
