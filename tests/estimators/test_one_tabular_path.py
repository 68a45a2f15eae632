"""The same rows give the same network, by csst train array and by CSSTClassifier."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from csst import CSSTClassifier
from csst.cli import main
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.mark.parametrize(("rule", "noise"), [("none", 0), ("fit", 0), ("none", 200)])
def test_a_network_of_arrays_is_the_estimators(tmp_path, monkeypatch, rule, noise):
    """Also where columns share a scale, as embeddings with many small components do."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 40, 20])
    x = (np.eye(3)[y] * 2 + rng.normal(size=(120, 3))).astype(np.float32)
    labels = np.where(rng.random(120) < 0.5, y, -1)
    x = np.hstack([x, 0.1 * rng.normal(size=(120, noise))]).astype(np.float32)
    np.savez("mine.npz", x=x, y=labels)
    np.savez("new.npz", x=x)
    words = ["--data.path", "mine.npz", "--learner", "network", "--training.steps", "40", "--out", "run"]
    assert main(["train", "array", *words, "--objective", "max min(recall)", "--rule", rule]) == 0
    assert main(["predict", "run", "new.npz", "-o", "out.csv", "--probabilities"]) == 0
    settings = {"training": {"steps": 40}, "rule": rule}
    model = CSSTClassifier("max min(recall)", learner="network", validation=0.2, settings=settings).fit(x, labels)
    with open("out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["prediction"]) for row in rows] == model.predict(x).tolist()
    probs = np.array([[float(row[f"p({k})"]) for k in range(3)] for row in rows])
    np.testing.assert_allclose(probs, model.predict_proba(x), atol=2e-6)
