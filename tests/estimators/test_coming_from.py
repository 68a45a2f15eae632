"""Classifiers of other libraries as learners: the lines of the page, with stubs that have their interface."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from csst import CSSTClassifier, InputError
from tests.helpers.estimators import blobs

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"


class InContext(ClassifierMixin, BaseEstimator):
    """Keeps the rows it is given and compares new ones with them: fit takes no weights, as TabPFN's and TabICL's."""

    def __init__(self, n_estimators: int = 4, device: str = "auto") -> None:
        self.n_estimators = n_estimators
        self.device = device

    def fit(self, X, y):
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.rows_ = np.asarray(X)
        self.targets_ = np.eye(len(self.classes_))[labels]
        return self

    def predict_proba(self, X):
        near = np.exp(-((np.asarray(X)[:, None] - self.rows_[None]) ** 2).sum(2))
        votes = near @ self.targets_ + 1e-3
        return votes / votes.sum(1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]


def test_the_lines_of_the_page_run(monkeypatch):
    block = re.search(r"```text\n(from tabpfn.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    for package, name in (("tabpfn", "TabPFNClassifier"), ("tabicl", "TabICLClassifier")):
        module = ModuleType(package)
        setattr(module, name, type(name, (InContext,), {}))
        monkeypatch.setitem(sys.modules, package, module)
        assert name in block
    X, y = blobs(90)
    names = {"CSSTClassifier": CSSTClassifier, "X": X, "y": y}
    exec(compile(block, str(PAGE), "exec"), names)
    clf = names["clf"]
    assert clf.score(X, y) > 0.8
    assert "TabPFNClassifier" in " ".join(one.name for one in clf.leaderboard_)


def test_such_a_learner_decides_and_is_not_stored(tmp_path):
    X, y = blobs(90)
    clf = CSSTClassifier("max min(recall)", learner=InContext()).fit(X, y)
    assert clf.predict_proba(X).shape == (90, 3)
    assert clf.decide("max accuracy").score(X, y) > 0.8
    with pytest.raises(InputError, match="InContext"):
        clf.export(tmp_path / "a.onnx")
