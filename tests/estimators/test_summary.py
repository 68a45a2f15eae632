"""What a summary says of constraints."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import estimate_intervals
from csst.estimators.measuring import describe_constraints, write_summary
from csst.maths.confusion import Confusion
from csst.rules.feasibility import Bound


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("0.5", "constraints met, with a slack of 0.000 (95 % interval about -"),
        ("0.25", "constraints met, with a slack of 0.250 (95 % interval about "),
        ("0.75", "constraints missed by 0.250 (95 % interval about "),
    ],
)
def test_a_constraint_that_is_just_met_is_met(bound, words):
    rates = np.array([[0.5, 0.5], [0.0, 1.0]])
    confusion = Confusion(torch.from_numpy(rates), torch.tensor([0.5, 0.5]).double())
    estimate = RateEstimate(
        confusion, rates, rates, np.array([10, 10]), np.array([20.0, 20.0]), 100, np.array([0.5, 0.5])
    )
    goal = csst.objective(f"max mean(recall) s.t. recall[0] >= {bound}").bind(2)
    intervals = estimate_intervals(goal, estimate)
    printed = write_summary(goal, estimate, ["a", "b"], [10, 10], [], "linear", intervals)
    assert words in printed


@pytest.mark.parametrize(
    ("slacks", "errors", "words"),
    [
        ((0.25, 0.1), (0.2, 0.05), "constraints met, with a slack of 0.250 (95 % interval about -0.50 to 0.75)"),
        ((0.25, 0.1), (0.3, 0.05), "constraints may be met or not, with a slack of 0.250 ("),
        ((0.25, -0.02), (0.1, 0.05), "constraints may be met or not, with a slack of -0.020 ("),
        ((0.25, -0.1), (0.6, 0.05), "constraints missed by 0.100 (95 % interval about -0.40 to 0.85)"),
    ],
)
def test_a_constraint_is_said_to_be_met_if_it_is_by_a_standard_error(slacks, errors, words):
    constraints = [{"slack": slack, "low": slack - 0.75, "high": slack + 0.5} for slack in slacks]
    bounds = [Bound("recall[0] >= 0.5", slack, error) for slack, error in zip(slacks, errors, strict=True)]
    assert words in describe_constraints(constraints, (1.0, 1.0), bounds)


def test_the_summary_says_of_its_bounds_what_its_rule_says():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 150, p=[0.6, 0.3, 0.1])
    X = rng.normal(size=(150, 3)) + 1.5 * np.eye(3)[y]
    goal = "max mean(recall) s.t. precision[2] >= 0.7"
    labels = np.where(np.arange(150) < 70, y, -1)
    fitted = csst.CSSTClassifier(goal, learner="linear", deployment_prior="labels").fit(X, labels)
    bounds = fitted.fit_.full_details.adjusted.bounds
    assert [(bound.status, bound.slack > 0) for bound in bounds] == [("unsure", True)]
    assert "constraints may be met or not, with a slack of 0.0" in fitted.summary()
