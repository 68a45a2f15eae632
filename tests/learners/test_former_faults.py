"""Faults that were there once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from csst import CSSTClassifier, InputError
from csst.cli import main
from csst.estimation.calibration import Calibration
from csst.fitting.fitted_model import MODEL, FittedModel
from csst.learners.catalog import read_learner
from csst.learners.graph import PortfolioScores
from csst.learners.linear import Linear
from csst.learners.portfolio import Member, Portfolio
from csst.learners.sklearn_classifier import wrap
from csst.recipes import recipe
from csst.runs.execute import execute
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import gaussians, problem_of, table_of

pytestmark = SHORT_RUN


def portfolio_of(model):
    return Portfolio((Member("it", model, Calibration.identity(3), 0.0, 1.0),), (), np.ones(3) / 3)


def test_a_network_in_a_list_gets_a_sentence_of_its_own():
    X, _ = gaussians(30)
    with pytest.raises(InputError, match="network") as said:
        read_learner(["linear", "network"], problem_of(X))
    assert "did you mean 'network'" not in str(said.value)


def test_the_graph_of_a_column_far_from_zero():
    X, y = gaussians(90)
    X[:, 0] = 1.6e9 + 1000 * X[:, 0]  # seconds since 1970
    portfolio = portfolio_of(Linear(table_of(X)).fit(X, y))
    found = torch.softmax(PortfolioScores(portfolio)(torch.from_numpy(X)), 1)
    np.testing.assert_allclose(found, portfolio.probs(X), atol=0.1)


@pytest.mark.parametrize("k", [1, 2])
def test_validation_that_takes_all_labels_of_a_class_gets_a_sentence(k):
    X, y = gaussians(60)
    with pytest.raises(InputError):
        CSSTClassifier(learner="linear", validation=np.flatnonzero(y == k)).fit(X, y)


def test_a_class_in_place_of_an_object_gets_a_sentence():
    X, y = gaussians(60)
    with pytest.raises(InputError):
        wrap(LogisticRegression).fit(X, y)


def test_the_seed_reaches_into_a_pipeline():
    X, y = gaussians(60)
    learner = wrap(make_pipeline(StandardScaler(), RandomForestClassifier(3)))
    first, second = (learner.fit(X, y, seed=1).log_probs(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_flipped_byte_of_the_model_is_refused(tmp_path):
    X, y = gaussians(60)
    array_run(tmp_path, x=X, y=y)
    path = tmp_path / "run" / MODEL
    content = bytearray(path.read_bytes())
    content[-20] ^= 64
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="does not match the checksum"):
        FittedModel.load(tmp_path / "run")


def array_run(tmp_path, objective="min-recall", **arrays):
    np.savez(tmp_path / "mine.npz", **arrays)
    base = recipe("array")
    source = replace(base.data, path=str(tmp_path / "mine.npz"))
    return execute(replace(base, data=source, learner="linear", objective=objective), tmp_path / "run")


WRONG = {
    "a class without labels": lambda X, y: {"y": np.where(y == 1, -1, y)},
    "one class": lambda X, y: {"y": np.zeros(60, dtype=int)},
    "validation without labels": lambda X, y: {"x_validation": X, "y_validation": np.where(y == 1, -1, y)},
    "validation of other classes": lambda X, y: {"x_validation": X, "y_validation": y + 1},
    "validation of other columns": lambda X, y: {"x_validation": X[:, :2], "y_validation": y},
    "test of other columns": lambda X, y: {"x_test": X[:, :2], "y_test": y},
    "an empty test set": lambda X, y: {"x_test": X[:0], "y_test": y[:0]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit_get_a_sentence(wrong, tmp_path):
    X, y = gaussians(60)
    with pytest.raises(InputError):
        array_run(tmp_path, **{"x": X, "y": y, **WRONG[wrong](X, y)})


def test_evaluate_knows_the_objective_of_the_run(tmp_path):
    X, y = gaussians(60)
    array_run(tmp_path, "max mean(recall[tail])", x=X, y=y, x_test=X, y_test=y)
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_a_run_of_another_version_gets_a_sentence(tmp_path, capsys):
    X, y = gaussians(60)
    array_run(tmp_path, x=X, y=y)
    recipe_file = tmp_path / "run" / "recipe.yaml"
    recipe_file.write_text(recipe_file.read_text().replace("rule: none", "finish: none"))
    np.savez(tmp_path / "new.npz", x=X)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.npz"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "do not fit this version of csst (there is no setting finish" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "train again in another folder" in capsys.readouterr().err
