"""A learner of one's own: one file with a learner and its module is fitted, stored, loaded and exported."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from csst import CSSTClassifier, FittedModel, InputError
from csst.cli import main
from csst.models.stored import StoredModule
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import gaussians

pytestmark = SHORT_RUN

FILE = """
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csst.learners import FittedLearner


class Centroids(FittedLearner):
    centers: Tensor

    def forward(self, x):
        return torch.log_softmax(-((x[:, None] - self.centers) ** 2).sum(2) / 2, 1)


@dataclass
class NearestCentroid:
    name: str = "centroid"

    def fit(self, rows, labels, seed=0):
        return Centroids(centers=np.stack([rows[labels == k].mean(0) for k in range(labels.max() + 1)]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory that holds the user's file and an array file."""
    (tmp_path / "centroids.py").write_text(FILE)
    X, y = gaussians(90)
    np.savez(tmp_path / "mine.npz", x=X, y=np.where(np.arange(90) < 60, y, -1), x_test=X, y_test=y)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget_class()


def forget_class():
    """Undo the import of the user's file."""
    sys.modules.pop("centroids", None)
    StoredModule.classes.pop("centroids:Centroids", None)


def test_in_python(folder):
    from centroids import NearestCentroid

    X, y = gaussians(90)
    fitted = CSSTClassifier(learner=["linear", NearestCentroid()]).fit(X, y).fit_
    assert fitted.model.names == ("linear", "centroid")
    fitted.save(folder / "run")
    loaded = FittedModel.load(folder / "run")
    assert torch.equal(loaded.predict_proba(X), fitted.predict_proba(X))
    path, _ = loaded.export(folder / "model.pt2", "torch-export")
    probs, _ = torch.export.load(path).module()(torch.from_numpy(X))
    np.testing.assert_allclose(probs, fitted.predict_proba(X), atol=1e-5)
    StoredModule.classes.pop("centroids:Centroids")
    with pytest.raises(InputError, match="holds a centroids:Centroids, which is not loaded: import its module first"):
        FittedModel.load(folder / "run")


def test_on_the_command_line(folder, capsys):
    words = ["train", "array", "--data.path", "mine.npz", "--learner", "centroids:NearestCentroid", "--out", "run"]
    assert main(words) == 0
    # As in another process, the class is known by the recipe alone.
    forget_class()
    assert main(["predict", "run", "mine.npz", "-o", "out.csv"]) == 0
    assert main(["export", "run", "--to", "safetensors", "-o", "model.safetensors"]) == 0
    words[words.index("centroids:NearestCentroid")] = "centroids:Centroid"
    assert main([*words[:-1], "other"]) == 2
    assert "module 'centroids' has no 'Centroid'" in capsys.readouterr().err
