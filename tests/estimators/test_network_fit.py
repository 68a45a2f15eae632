"""What a network's fit owes to the one road: the stated class balance, and every generation of a method."""

from __future__ import annotations

import numpy as np
import pytest

from csst import CSSTClassifier, InputError
from tests.helpers.estimators import GROUPS, SINGLE, nest

SMALL = {"steps": 30, "hidden": 8, "depth": 1, "labeled_batch": 16, "unlabeled_batch": 16}


def small(**more):
    """A small network; single settings may be named as such."""
    names = {*GROUPS, *SINGLE}
    single = {**SMALL, **{name: value for name, value in more.items() if name in names}}
    others = {name: value for name, value in more.items() if name not in names}
    return CSSTClassifier(learner="network", settings=nest(**single), **others)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 40, 20])
    x = (np.eye(3)[y] * 2 + rng.normal(size=(120, 3))).astype(np.float32)
    return x, np.where(rng.random(120) < 0.5, y, -1)


@pytest.mark.parametrize("rule", ["none", "fit"])
@pytest.mark.parametrize("validation", [None, 0.3])
def test_estimates_are_under_the_stated_balance(rows, rule, validation):
    prior = [0.2, 0.3, 0.5]
    model = small(rule=rule, validation=validation, deployment_prior=prior).fit(*rows)
    assert model.fit_.expected.confusion.prior.tolist() == prior


def test_crest_trains_all_its_generations(rows):
    model = small(method="crest", validation=0.3, steps_per_update=5).fit(*rows)
    about = model.fit_.full_details.about
    assert sum(about["pseudo_labeled_counts"]) > 0, "the last generation learned from pseudo-labels of those before"
    assert about["steps"] == 30
    with pytest.raises(InputError, match="crest trains in generations, which cross-fitting does not"):
        small(method="crest").fit(*rows)
