"""CSSTClassifier.suggest: rows of the rare class come first, and what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from csst import CSSTClassifier, Gain, InputError
from csst.fitting.metrics import Outputs
from tests.helpers.estimators import quick
from tests.learners.samples import gaussians


def test_rows_of_a_rare_hard_class_are_suggested():
    X, y = gaussians(400, np.array([0.6, 0.35, 0.05]), apart=2.2)
    known = np.r_[np.arange(6), np.flatnonzero(y < 2)[6:60]]
    labels = np.full(400, -1)
    labels[known] = y[known]
    clf = CSSTClassifier(learner="linear").fit(X, labels)
    pool = np.flatnonzero(labels == -1)
    rows = clf.suggest(X[pool], 20)
    assert rows.shape == (20,)
    assert len(set(rows.tolist())) == 20
    fraction = (y[pool][rows] == 2).mean()
    assert fraction > 3 * (y[pool] == 2).mean(), "no more rows of the rare class than chance would give"
    np.testing.assert_array_equal(rows[:5], clf.suggest(X[pool], 5))
    for wrong in (0, len(pool) + 1):
        with pytest.raises(InputError, match=f"n must be from 1 to the {len(pool)} rows of X_pool; found {wrong}"):
            clf.suggest(X[pool], wrong)
    with pytest.raises(ValueError, match="not fitted"):
        CSSTClassifier().suggest(X, 3)


class Tilted(torch.nn.Module):
    """The logits of a network that was trained under a gain with another diagonal."""

    def __init__(self, network, tilt):
        super().__init__()
        self.network, self.tilt = network, tilt

    def forward(self, x):
        return self.network(x) + self.tilt


def test_the_gain_of_a_network_without_a_rule_is_undone():
    """A softmax optimal under a gain with diagonal D g, D undone, suggests the rows that the same under D does."""
    X, y = gaussians(200, np.array([0.5, 0.3, 0.2]), apart=1.5)
    labels = np.where(np.arange(200) % 3 == 0, y, -1)
    clf = quick().fit(X, labels)
    plain = clf.suggest(X, 30)
    details = clf.fit_.full_details
    assert details.outputs.gain.is_diagonal
    tilt = torch.tensor([1.0, 200.0, 0.05])
    parts = {name: (logits + tilt.log(), truth) for name, (logits, truth) in details.outputs.parts.items()}
    outputs = Outputs(parts, details.outputs.unlabeled + tilt.log(), Gain(details.outputs.gain.entries * tilt))
    model = Tilted(clf.fit_.model, tilt.log())
    clf.fit_ = replace(clf.fit_, model=model, details=replace(details, outputs=outputs))
    assert (clf.predict_proba(X).argmax(1) == 1).mean() > 0.6, "the tilt must matter for this test"
    np.testing.assert_array_equal(clf.suggest(X, 30), plain)
