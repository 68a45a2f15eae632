"""Small tables for the learners' tests, and a learner that remembers what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.special import log_softmax

from csst.learners.catalog import Problem
from csst.learners.portfolio import Member, Portfolio
from csst.learners.protocol import FittedLearner, Rows

PRIOR = np.array([0.6, 0.3, 0.1])


def gaussians(n, prior=PRIOR, features=4, apart=2.0, seed=0):
    """Rows (n, D) as float32 and classes (n,): class k is moved along column k; every class twice at least."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(prior), n, p=prior)
    y[: 2 * len(prior)] = np.tile(np.arange(len(prior)), 2)
    X = rng.normal(size=(n, features))
    X[np.arange(n), y] += apart
    return X.astype(np.float32), y


def bent(n, seed=0):
    """The same with class 1 on both sides of the others, so that a linear model and a forest do about as well."""
    X, y = gaussians(n, apart=2.2, seed=seed)
    X[(y == 1) & (np.random.default_rng([seed, 1]).random(n) < 0.4), 1] *= -1
    return X, y


def mixed(n=120, classes=3, seed=0):
    """Numbers and categories that tell the class: rows, labels, and what is known about the columns."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    shade = np.where(rng.random(n) < 0.7, y, rng.integers(0, 4, n))  # one of 4 categories
    rows = np.stack([5 + 3 * (rng.normal(size=n) + y), shade, rng.normal(size=n) - y, rng.integers(0, 2, n)], 1)
    rows = rows.astype(np.float32)
    return rows, y, Rows(rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64), (0, 4, 0, 2))


def table_of(rows):
    """What is known about columns of numbers."""
    return Rows(rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64), (0,) * rows.shape[1])


def problem_of(rows, unlabeled=None, labels=30, classes=3, is_embedded=False):
    """What learners are chosen by; the rows have no labels unless said otherwise."""
    count = rows.shape[0] if unlabeled is None else unlabeled
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    return Problem(table_of(dense), rows, count, labels, classes, is_embedded)


def member_of(model, name="linear", temperature=1.0, bias=(0.0, 0.0, 0.0), weight=1.0, loss=0.0):
    """A fitted learner as a member of a portfolio."""
    return Member(name=name, model=model, temperature=temperature, bias=np.array(bias), weight=weight, loss=loss)


def portfolio_of(*members, prior=PRIOR, left_out=()):
    """Members, or fitted learners, as a portfolio."""
    members = [member if isinstance(member, Member) else member_of(member) for member in members]
    return Portfolio(members=members, left_out=dict(left_out), prior=np.array(prior))


def soften(scores):
    """The log-softmax of every row, by plain loops."""
    out = np.zeros(np.shape(scores))
    for i, row in enumerate(np.asarray(scores, dtype=np.float64)):
        total = sum(np.exp(value - max(row)) for value in row)
        for k, value in enumerate(row):
            out[i, k] = value - max(row) - np.log(total)
    return out


@dataclass
class Spy:
    """A learner whose answers depend on the fit, and that remembers who learned what and who scored whom.

    The first column of a row is its number; `answer(model, ids)` gives log-probabilities.
    """

    answer: object
    name: str = "spy"
    fits: list = field(default_factory=list)

    def fit(self, rows, labels, seed=0):
        self.fits.append(SpyModel(self, len(self.fits), rows[:, 0].astype(int), np.array(labels), seed))
        return self.fits[-1]

    def scored_by(self, ids):
        """The fits that were asked about any of these rows."""
        return [one for one in self.fits if any(set(asked) & set(ids) for asked in one.asked)]


class SpyModel(FittedLearner):
    """One fit of a spy: which rows, in which order, with which labels and seed, and what it was asked about."""

    def __init__(self, spy, number, learned, labels, seed):
        super().__init__()
        self.spy = spy
        self.number = number
        self.learned = learned
        self.labels = labels
        self.seed = seed
        self.asked = []

    def forward(self, x):
        ids = x[:, 0].long().numpy()
        self.asked.append(ids.tolist())
        return torch.from_numpy(log_softmax(self.answer(ids), axis=1))

    def answer(self, ids):
        return self.spy.answer(self, ids)


def numbered(n, start=0):
    """Rows that are nothing but their number."""
    return np.arange(start, start + n, dtype=np.float64)[:, None]
