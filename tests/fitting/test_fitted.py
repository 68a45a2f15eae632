"""A fitted model of a Python user, saved and loaded without a recipe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import csst
from csst.data import Digits
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.learners.network import Network
from csst.models.table import mlp
from csst.settings import Settings, Training
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


def make():
    torch.manual_seed(0)
    return mlp((1, 8, 8), 10, hidden=16, depth=1)


@pytest.mark.parametrize("fits_rule", [True, False])
def test_a_network_fitted_in_python_is_loaded_with_the_function_that_makes_it(tmp_path, fits_rule):
    task = Digits(test=5).load(0)
    learner = Network(make, "csl", Settings(training=Training(steps=40, labeled_batch=16)))
    fitted = csst.fit(task, learner, "max min(recall)", fits_rule=fits_rule)
    fitted.save(tmp_path / "new" / "mine")
    again = FittedModel.load(tmp_path / "new" / "mine", make=make)
    inputs = task.validation.inputs
    assert torch.equal(again.logits(inputs), fitted.logits(inputs))
    assert torch.equal(again.predict(inputs), fitted.predict(inputs))
    assert again.objective == fitted.objective
    assert again.class_names == fitted.class_names
    with pytest.raises(InputError, match=r"recipe\.yaml.*make="):
        FittedModel.load(tmp_path / "new" / "mine")


def test_learners_fitted_in_python_need_nothing_but_their_folder(tmp_path):
    task = Digits(labeled=8, unlabeled=10, imbalance=2, test=5).load(0)
    fitted = csst.fit(replace(task, validation=None), "linear", "max min(recall)")
    fitted.save(tmp_path / "mine")
    again = FittedModel.load(tmp_path / "mine")
    assert torch.equal(again.predict(task.unlabeled), fitted.predict(task.unlabeled))
    # Weights that were read lie otherwise in memory, and BLAS may then round the last digit otherwise.
    probs = again.predict_proba(task.unlabeled)
    torch.testing.assert_close(probs, fitted.predict_proba(task.unlabeled), rtol=1e-12, atol=0)
    card = again.as_exportable().card
    assert card["method"] == "linear + rule, recipe none"
    # What the model takes is kept too: vectors that somebody embedded are not raw features.
    embedded = replace(fitted, inputs=replace(fitted.inputs, is_embedded=True))
    embedded.save(tmp_path / "vectors")
    assert FittedModel.load(tmp_path / "vectors").inputs.is_embedded


def test_a_folder_that_is_neither_a_run_nor_a_saved_model_gets_a_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a run"):
        FittedModel.load(tmp_path)
    (tmp_path / "recipe.yaml").write_text("name: digits\n")
    with pytest.raises(InputError, match="is not complete"):
        FittedModel.load(tmp_path)
