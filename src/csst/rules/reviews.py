"""What a human's answers buy: a sentence's value at growing shares of rows without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.rules.abstention import estimate_abstaining, fit_answering, search_rule
from csst.rules.candidates import sharpness
from csst.rules.feasibility import find_missed
from csst.rules.soft_objective import SoftObjective

#: shares of rows that are left to a human
SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Review:
    """What is expected if a share of the rows gets no answer.

    Args:
        share: share of all rows.
        value: value of the sentence's goal, on what is answered.
        min_recall: the lowest recall of what is answered.
        misses: other bounds of the sentence that are missed.
    """

    share: float
    value: float
    min_recall: float
    misses: tuple[str, ...] = ()


def trace_reviews(
    evidence: HeldOutScores, prior: np.ndarray, sentence: Sentence, shares: Sequence[float] = SHARES
) -> tuple[Review, ...]:
    """Return what the best rules reach that leave these shares of rows to a human.

    Like every point of a frontier, each is estimated from the rows it was fitted on.

    Args:
        evidence: scores of labeled and unlabeled rows.
        prior: the deployment prior, (K,).
        sentence: bound to the classes; its own bounds on the abstention of all rows do not count.
        shares: shares of rows without an answer.
    """
    points = []
    answering = sentence.answering
    for share in shares:
        limited_sentence = replace(answering, constraints=(*answering.constraints, *limit_share(share)))
        goal = SoftObjective(limited_sentence, prior, sharpness(evidence))
        rule, _ = search_rule(goal, evidence, fit_answering(goal, evidence))
        estimate = estimate_abstaining(evidence, rule.decide(evidence.scores), rule, prior)
        misses = tuple(bound for _, bound, _ in find_missed(limited_sentence, estimate) if "abstain" not in bound)
        value = float(limited_sentence.value(estimate.confusion))
        points.append(Review(share, value, float(estimate.confusion.recall.min()), misses))
    return tuple(points)


def limit_share(share: float) -> tuple:
    """Return the bound on the share of rows without an answer."""
    limit = read_objective(f"max accuracy s.t. abstain <= {share:.6g}")
    assert isinstance(limit, Sentence)
    return limit.constraints
