"""Estimates of class rates for tests."""

from __future__ import annotations

import numpy as np
import torch

from csst.estimation.class_rates import RateEstimate
from csst.maths.confusion import Confusion


def make_estimate(recalls, n=20, worth=20.0, prior=None, labeled=None, unlabeled=1000):
    """An estimate with these recalls, errors spread evenly; all rows agree unless `labeled` is given."""
    recalls = np.asarray(recalls, dtype=float)
    K = len(recalls)

    def rates(values):
        table = np.repeat(((1 - values) / (K - 1))[:, None], K, 1)
        np.fill_diagonal(table, values)
        return table

    sizes = np.full(K, n) if np.isscalar(n) else np.array(n)
    balance = np.full(K, 1 / K) if prior is None else np.array(prior)
    labeled_rates = rates(recalls if labeled is None else np.asarray(labeled, dtype=float))
    return RateEstimate(
        Confusion(torch.from_numpy(rates(recalls)), torch.from_numpy(balance)),
        labeled_rates,
        rates(recalls),
        sizes,
        np.full(K, worth),
        unlabeled,
        balance,
    )
