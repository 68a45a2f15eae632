"""Rounds of self-training for any learner: the paper's selection of pseudo-labels, on unlabeled rows in two halves.

    y = argmax p,    used where KL(y || p) = -log p_y <= tau,    p proportional to  p_m pi_u / pi_m

p is the model's posterior under the class prior pi_u of the unlabeled rows, by EM. The pseudo-labels of a half
come from the model taught with the other half, so that no model confirms what it has learned itself; a new row gets the
mean of both. Whether rounds help is judged on rows that neither model has seen (`csst.learners.portfolio`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from csst.data.tabular.tables import stack
from csst.estimation.shift import estimate_prior
from csst.learners.protocol import FittedLearner, Learner, apply
from csst.models.stored import StoredModule

#: unlabeled rows learned from, at most
MOST_ROWS = 10_000


class Student(StoredModule):
    """Scores of a fitted learner without a class prior: log p(x) - log prior, (N, K).

    Args:
        model: the fitted learner.
        prior: the class fractions of all that it has learned from, (K,).
    """

    model: FittedLearner
    prior: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) - torch.log(self.prior)


class FittedRounds(FittedLearner):
    """The students of both halves; their scores are averaged, under the class prior of the labels (K,)."""

    students: Sequence[Student]
    prior: Tensor

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.stack([student(x) for student in self.students]).mean(0)
        return torch.log_softmax(mean + torch.log(self.prior), 1)


@dataclass(frozen=True, eq=False)
class SelfTrained:
    """A learner that also learns from its pseudo-labels.

    Args:
        learner: the learner.
        unlabeled: unlabeled rows, (m, D).
        rounds: how often pseudo-labels are renewed.
        tau: pseudo-labels with -log p <= tau are used.
    """

    learner: Learner
    unlabeled: Any
    rounds: int
    tau: float

    @property
    def name(self) -> str:
        return f"{self.learner.name}, self-trained"

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedRounds:
        prior = np.bincount(labels) / len(labels)
        order = np.random.default_rng(seed).permutation(self.unlabeled.shape[0])[:MOST_ROWS]
        half = self.unlabeled[np.sort(order[0::2])]
        other_half = self.unlabeled[np.sort(order[1::2])]
        student = other_student = Student(model=self.learner.fit(rows, labels, seed), prior=prior)
        for _ in range(self.rounds):
            # A half is labeled by the student of the other half, which has not learned from it.
            pupil = self._teach(rows, labels, half, other_student, seed)
            other_student = self._teach(rows, labels, other_half, student, seed)
            student = pupil
        return FittedRounds(students=[student, other_student], prior=prior)

    def _teach(self, rows: Any, labels: np.ndarray, half: Any, teacher: Student, seed: int) -> Student:
        guesses, is_trusted = label_rows(apply(teacher, half), np.bincount(labels) / len(labels), self.tau)
        lessons = stack(rows, half[np.flatnonzero(is_trusted)])
        answers = np.concatenate([labels, guesses[is_trusted]])
        prior = np.bincount(answers, minlength=len(teacher.prior)) / len(answers)
        return Student(model=self.learner.fit(lessons, answers, seed), prior=prior)


def label_rows(scores: np.ndarray, start: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Return pseudo-labels (N,) of scores without a class prior (N, K), and which of them are trusted, (N,)."""
    logs = log_softmax(scores + np.log(estimate_prior(scores, start)), axis=1)
    return logs.argmax(1), -logs.max(1) <= tau
