"""Whether a fit may lean on its unlabeled rows.

Rates and rules weigh unlabeled rows by their calibrated posteriors, which are right where the labeled classes, in some
balance, explain the rows. That is tested against the labels alone (`csst.estimation.shift_test`). Where it is not so,
the unlabeled rows are left out of the evidence: the balance, the rates and the rule are then those of the labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from csst.estimation.held_out_scores import HeldOutScores
from csst.estimation.reference import Reference
from csst.estimation.shift_test import ShiftTest, measure_shift

#: chance of leaving out unlabeled rows that the classes explain
LEVEL = 0.01
#: fewest rows that are tested against labels alone: fewer say little
FEWEST_ALONE = 100


def compare_unlabeled(reference: Reference, rows: Any) -> ShiftTest | None:
    """Test whether the labeled classes explain unlabeled rows.

    Args:
        reference: the rows of the fit.
        rows: its unlabeled rows, (N, D), an array or a sparse matrix.

    Returns:
        The test; None if the rows are too few to be tested.
    """
    if rows.shape[0] < FEWEST_ALONE:
        return None
    return measure_shift(reference.without_unlabeled, rows, reference.unlabeled_prior, level=LEVEL)


def lean_on_labels(evidence: HeldOutScores, test: ShiftTest) -> HeldOutScores:
    """Leave unlabeled rows out that the labeled classes do not explain.

    Args:
        evidence: scores of labeled and unlabeled rows.
        test: test that says so.

    Returns:
        The evidence of the labels alone, calibrated as before, with a sentence that says why.
    """
    where = f", new values being in {', '.join(column.name for column in test.columns)}" if test.columns else ""
    doubt = (
        f"no balance of the labeled classes explains the unlabeled rows (p = {test.p_value:.3g}{where}): the rule and "
        "what to expect of it are from the labels alone, and hold for rows like these; label some of the others"
    )
    no_scores = np.zeros((0, evidence.classes))
    return replace(evidence, unlabeled_scores=no_scores, start=evidence.calibration, doubt=doubt)
