"""A program that uses csst, which `make lint` type-checks and nobody runs: what it gets has real types.

Names of the package are found when they are asked for; a type checker must see them nevertheless.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from typing_extensions import assert_type

import csst
from csst.data.task import Task
from csst.estimators.classifier import CSSTClassifier
from csst.fitting.fitted_model import FittedModel
from csst.maths.gain import Gain
from csst.recipes.recipe import Recipe
from csst.rules.fit import FittedRule


def use_names(rows: Any, labels: Any, recipe: Recipe, task: Task, gain: Gain, target: Tensor) -> None:
    """Use the names that a user meets first."""
    assert_type(csst.CSSTClassifier(), CSSTClassifier)
    assert_type(csst.Gain.optimal_prediction(gain, target), Tensor)
    assert_type(csst.fit_rule(rows, labels, "max min(recall)"), FittedRule)
    assert_type(csst.execute(recipe, "run"), dict[str, Any])
    assert_type(csst.fit(task, "auto", "max min(recall)"), FittedModel)
