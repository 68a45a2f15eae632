"""What a summary says of constraints."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import csst
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import estimate_intervals
from csst.estimators.measuring import write_summary
from csst.maths.confusion import Confusion


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
