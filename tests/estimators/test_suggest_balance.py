"""CSSTClassifier.suggest looks at the pool under the pool's own class balance."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

import csst.estimators.deploying as module
from csst import CSSTClassifier
from tests.learners.samples import gaussians


def test_the_posterior_of_the_pool_is_under_the_balance_of_the_pool(monkeypatch):
    """Neither under that of the labels, of which a third are of the rare class, nor under the deployment prior."""
    X, y = gaussians(900, np.array([0.62, 0.35, 0.03]), apart=3.0)
    known = np.concatenate([np.flatnonzero(y == k)[:15] for k in range(3)])
    labels = np.full(900, -1)
    labels[known] = y[known]
    clf = CSSTClassifier(learner="linear", deployment_prior=[0.1, 0.1, 0.8]).fit(X, labels)
    pool = np.flatnonzero(labels == -1)
    seen = {}

    def rank_rows(posterior, *others):
        seen["posterior"] = posterior
        return original(posterior, *others)

    original = module.rank_rows
    monkeypatch.setattr(module, "rank_rows", rank_rows)
    clf.suggest(X[pool], 5)
    posterior = seen["posterior"]
    # Where EM ends, the balance is the mean of the posterior, drawn to the labels' by one row per class.
    balance = (posterior.sum(0) + 3 * np.full(3, 1 / 3)) / (len(pool) + 3)
    np.testing.assert_allclose(balance, np.bincount(y[pool]) / len(pool), atol=0.05)
    scores = np.log(clf.predict_proba(X[pool])) - np.log([0.1, 0.1, 0.8])
    np.testing.assert_allclose(posterior, softmax(scores + np.log(balance), axis=1), atol=0.01)
