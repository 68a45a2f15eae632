"""A rule fitted on labels alone: their own posterior takes the place of unlabeled rows."""

from __future__ import annotations

import numpy as np
import pytest

from csst.rules import fit_rule
from tests.helpers import toys


def test_the_estimate_leans_on_the_posterior_of_the_labeled_rows():
    x, labels = toys.sample(60, seed=3)
    fitted = fit_rule(toys.probs(x), labels, "max min(recall)", train_prior=toys.PRIOR, deployment_prior="uniform")
    estimate = fitted.estimate
    rates = estimate.unlabeled_rates
    assert rates.sum(1) == pytest.approx(np.ones(3))
    assert (estimate.worth > 1).all(), "as many labels as there are rows of a class behind it"
    # By the posterior, most rows of a class are predicted as it; without any, all classes would be as likely.
    assert np.diag(rates).min() > 0.5
    assert not np.allclose(estimate.confusion.rates.numpy(), estimate.labeled_rates)
