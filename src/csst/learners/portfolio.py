"""Several learners as one: each scored out of fold, calibrated, and averaged with equal weights.

    z(x) = mean over members of  T_m (log p_m(x) - log pi_L) + a_m

Labeled rows are scored by models that have not learned from them (cross-fitting, or a validation set); unlabeled and
new rows by models of all labels, which are the ones that are used. A member that is clearly worse than the best, by
more than two standard errors of their balanced log-losses, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax

from csst.learners.protocol import FittedLearner, Learner
from csst.statistics.calibration import Calibration, balanced_weights, fit_calibration
from csst.statistics.evidence import MOST_UNLABELED, Evidence
from csst.statistics.folds import deal_folds

#: folds of cross-fitting
FOLDS = 5
#: standard errors by which a member must be worse to be left out
CLEARLY = 2.0


@dataclass(frozen=True, eq=False)
class Member:
    """One learner: fitted on all labels, with its calibration and its balanced log-loss on rows it had not seen."""

    name: str
    model: FittedLearner
    calibration: Calibration
    loss: float


@dataclass(frozen=True, eq=False)
class Portfolio:
    """The members that are used, the names of those left out, and the class fractions of the labels (K,)."""

    members: tuple[Member, ...]
    left_out: tuple[str, ...]
    prior: np.ndarray

    def scores(self, rows: Any) -> np.ndarray:
        """z, the calibrated scores of the members averaged, with the class prior taken out, (N, K)."""
        prior = np.log(self.prior)
        return np.mean([one.calibration.apply(one.model.log_probs(rows) - prior) for one in self.members], axis=0)

    def probs(self, rows: Any) -> np.ndarray:
        """Calibrated probabilities under the class balance of the labels, (N, K)."""
        return np.exp(log_softmax(self.scores(rows) + np.log(self.prior), axis=1))


@dataclass(frozen=True, eq=False)
class Labeled:
    """Rows with classes 0 .. K-1."""

    rows: Any
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scored:
    """A variant with its scores z on labeled rows it had not seen, (n, K), and their calibration."""

    learner: Learner
    scores: np.ndarray
    calibration: Calibration
    losses: np.ndarray


def fit_portfolio(
    members: Sequence[Sequence[Learner]],
    labeled: Labeled,
    unlabeled: Any,
    validation: Labeled | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> tuple[Portfolio, Evidence]:
    """Fit all members; the portfolio, and the evidence on which a decision rule for it is fitted.

    Args:
        members: each as the variants among which the balanced log-loss chooses.
        labeled: rows that are learned from, every class at least once.
        unlabeled: rows without labels; there may be none.
        validation: rows that are not learned from; None cross-fits the labeled rows.
        folds: of cross-fitting.
        seed: of the folds and of the learners.
    """
    classes = int(labeled.labels.max()) + 1
    prior = np.bincount(labeled.labels, minlength=classes) / len(labeled.labels)
    judge = labeled if validation is None else validation
    deal = deal_folds(labeled.labels, folds, seed) if validation is None else None
    chosen = [
        min((_score(one, labeled, validation, deal, prior, seed) for one in variants), key=lambda s: s.losses.mean())
        for variants in members
    ]
    kept, left_out = drop_worse(chosen)
    fitted = tuple(
        Member(
            one.learner.name,
            one.learner.fit(labeled.rows, labeled.labels, None, seed),
            one.calibration,
            float(one.losses.mean()),
        )
        for one in kept
    )
    portfolio = Portfolio(fitted, left_out, prior)
    scores = np.mean([one.calibration.apply(one.scores) for one in kept], axis=0)
    some = unlabeled
    if unlabeled.shape[0] > MOST_UNLABELED:
        some = unlabeled[np.sort(np.random.default_rng(seed).permutation(unlabeled.shape[0])[:MOST_UNLABELED])]
    more = portfolio.scores(some) if some.shape[0] else np.zeros((0, classes))
    probs = [np.exp(log_softmax(z + np.log(prior), axis=1)) for z in (scores, more)]
    return portfolio, Evidence.from_probs(probs[0], judge.labels, probs[1], train_prior=prior)


def _score(
    learner: Learner,
    labeled: Labeled,
    validation: Labeled | None,
    deal: np.ndarray | None,
    prior: np.ndarray,
    seed: int,
) -> _Scored:
    """A learner on labeled rows that it had not learned from."""
    if deal is None:
        assert validation is not None
        logs = learner.fit(labeled.rows, labeled.labels, None, seed).log_probs(validation.rows)
        return _calibrate(learner, logs - np.log(prior), validation.labels)
    logs = np.zeros((len(labeled.labels), len(prior)))
    alone = np.bincount(labeled.labels)[labeled.labels] < 2  # the only label of a class is always learned from
    for fold in np.unique(deal):
        held, learned = np.flatnonzero(deal == fold), np.flatnonzero((deal != fold) | alone)
        model = learner.fit(labeled.rows[learned], labeled.labels[learned], None, seed)
        logs[held] = model.log_probs(labeled.rows[held])
    return _calibrate(learner, logs - np.log(prior), labeled.labels)


def _calibrate(learner: Learner, scores: np.ndarray, labels: np.ndarray) -> _Scored:
    calibration = fit_calibration(scores, labels)
    own = -log_softmax(calibration.apply(scores), axis=1)[np.arange(len(labels)), labels]
    return _Scored(learner, scores, calibration, own * balanced_weights(labels, scores.shape[1]))


def drop_worse(scored: Sequence[_Scored]) -> tuple[list[_Scored], tuple[str, ...]]:
    """Without the members that are clearly worse than the best, and the names of those."""
    best = min(scored, key=lambda one: one.losses.mean())
    kept: list[_Scored] = []
    left_out: list[_Scored] = []
    for one in scored:
        apart = one.losses - best.losses
        error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else np.inf
        (kept if apart.mean() <= CLEARLY * error else left_out).append(one)
    return kept, tuple(one.learner.name for one in left_out)
