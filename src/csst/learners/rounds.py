"""Rounds of self-training for any learner: the paper's selection of pseudo-labels, on unlabeled rows in two halves.

    y = argmax p,    used where KL(y || p) = -log p_y <= tau,    p proportional to  p_m pi_u / pi_m

p is the model's posterior under the unlabeled rows' own class balance pi_u, by EM. The pseudo-labels of a half come
from the model that was taught with the other half, so that no model confirms what it has learned itself; a new row gets
the mean of both. Whether a round helps is for rows to say that neither has seen (`csst.learners.portfolio`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax

from csst.data.tabular.tables import is_sparse
from csst.learners.protocol import FittedLearner, Learner
from csst.statistics.shift import estimate_prior

#: unlabeled rows that are learned from
MOST_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Student:
    """A fitted learner, and the class fractions of all it has learned from, (K,)."""

    model: FittedLearner
    prior: np.ndarray

    def scores(self, rows: Any) -> np.ndarray:
        """Log-probabilities with its own class prior taken out, (N, K)."""
        return self.model.log_probs(rows) - np.log(self.prior)


@dataclass(frozen=True, eq=False)
class FittedRounds:
    """The students of both halves; their scores are averaged, under the class balance of the labels (K,)."""

    students: tuple[Student, Student]
    prior: np.ndarray

    def log_probs(self, rows: Any) -> np.ndarray:
        mean = np.mean([student.scores(rows) for student in self.students], axis=0)
        return log_softmax(mean + np.log(self.prior), axis=1)


@dataclass(frozen=True, eq=False)
class SelfTrained:
    """A learner that also learns from its pseudo-labels.

    Args:
        learner: which.
        unlabeled: rows, (m, D).
        rounds: how often new pseudo-labels are given.
        tau: pseudo-labels with -log p <= tau are used.
    """

    learner: Learner
    unlabeled: Any
    rounds: int
    tau: float

    @property
    def name(self) -> str:
        return f"{self.learner.name}, self-trained"

    def fit(self, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> FittedRounds:
        if weights is not None:
            raise NotImplementedError("self-training counts every row once")
        classes = int(labels.max()) + 1
        prior = np.bincount(labels, minlength=classes) / len(labels)
        order = np.random.default_rng(seed).permutation(self.unlabeled.shape[0])[:MOST_ROWS]
        halves = [self.unlabeled[np.sort(order[at::2])] for at in (0, 1)]
        first = Student(self.learner.fit(rows, labels, None, seed), prior)
        students = (first, first)
        for _ in range(self.rounds):
            teachers = students[::-1]  # each half is labeled by who has not learned from it
            taught = [self._teach(rows, labels, half, t, seed) for half, t in zip(halves, teachers, strict=True)]
            students = (taught[0], taught[1])
        return FittedRounds(students, prior)

    def _teach(self, rows: Any, labels: np.ndarray, half: Any, teacher: Student, seed: int) -> Student:
        guess, trusted = label_rows(teacher.scores(half), np.bincount(labels) / len(labels), self.tau)
        every = np.concatenate([labels, guess[trusted]])
        prior = np.bincount(every, minlength=len(teacher.prior)) / len(every)
        return Student(self.learner.fit(stack(rows, half[np.flatnonzero(trusted)]), every, None, seed), prior)


def label_rows(scores: np.ndarray, start: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """Pseudo-labels (N,) of scores without a class prior (N, K), and which of them are trusted, (N,)."""
    logs = log_softmax(scores + np.log(estimate_prior(scores, start)), axis=1)
    return logs.argmax(1), -logs.max(1) <= tau


def stack(rows: Any, more: Any) -> Any:
    if is_sparse(rows):
        from scipy.sparse import vstack

        return vstack([rows, more], format="csr")
    return np.vstack([rows, more])
