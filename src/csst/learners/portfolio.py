"""Several learners as one: each scored out of fold, calibrated, and averaged.

    z(x) = sum over models m of  w_m (T_m (log p_m(x) - log pi_L) + a_m)

Labeled rows are scored by models that have not learned from them (cross-fitting, or a validation set); unlabeled and
new rows by models of all labels, which are the ones that are used. A member is a learner in several variants. A variant
that is clearly worse than the best of its member, by more than three standard errors of their balanced log-losses, is
left out, and so is a member that is clearly worse than the best member; what stays has equal weights. (Weights fitted
on few labels fit their noise: docs/explanation/choices.md.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy.special import log_softmax

from csst.learners.protocol import FittedLearner, Learner
from csst.learners.rounds import SelfTrained
from csst.statistics.calibration import Calibration, balanced_weights, fit_calibration
from csst.statistics.evidence import MOST_UNLABELED, Evidence
from csst.statistics.folds import deal_folds

#: folds of cross-fitting
FOLDS = 5
#: standard errors by which a variant or a member must be worse to be left out
CLEARLY = 3.0
#: rows that are scored at a time
CHUNK = 20_000


@dataclass(frozen=True, eq=False)
class Member:
    """A model of all labels, its calibration, its balanced log-loss on rows it had not seen, and its weight."""

    name: str
    model: FittedLearner
    calibration: Calibration
    loss: float
    weight: float


@dataclass(frozen=True, eq=False)
class Portfolio:
    """The models that are used, the names of members left out, and the class fractions of the labels (K,)."""

    members: tuple[Member, ...]
    left_out: tuple[str, ...]
    prior: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, each once."""
        return tuple(dict.fromkeys(member.name for member in self.members))

    def describe(self) -> list[dict[str, Any]]:
        """Every member's weight, and the mean balanced log-loss of its variants, as plain values."""
        described = []
        for name in self.names:
            variants = [member for member in self.members if member.name == name]
            loss, weight = np.mean([member.loss for member in variants]), sum(member.weight for member in variants)
            described.append({"name": name, "balanced_log_loss": float(loss), "weight": float(weight)})
        return described

    def scores(self, rows: Any) -> np.ndarray:
        """z, the calibrated scores of the members averaged, with the class prior taken out, (N, K)."""
        pieces = [self._scores(rows[start : start + CHUNK]) for start in range(0, rows.shape[0], CHUNK)]
        return np.concatenate(pieces) if pieces else np.zeros((0, len(self.prior)))

    def _scores(self, rows: Any) -> np.ndarray:
        prior, total = np.log(self.prior), np.zeros((rows.shape[0], len(self.prior)))
        for member in self.members:
            total += member.weight * member.calibration.apply(member.model.log_probs(rows) - prior)
        return total

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
    """A variant with its scores z on labeled rows it had not seen, (n, K), their calibration and their losses (n,)."""

    learner: Learner
    scores: np.ndarray
    calibration: Calibration
    losses: np.ndarray

    @property
    def calibrated(self) -> np.ndarray:
        return self.calibration.apply(self.scores)


@dataclass(frozen=True, eq=False)
class _Group:
    """A member: the variants that stay, and the losses of their mean, (n,)."""

    variants: list[_Scored]
    losses: np.ndarray

    @property
    def name(self) -> str:
        return self.variants[0].learner.name

    @property
    def calibrated(self) -> np.ndarray:
        return np.mean([variant.calibrated for variant in self.variants], axis=0)


def fit_portfolio(
    members: Sequence[Sequence[Learner]],
    labeled: Labeled,
    unlabeled: Any,
    validation: Labeled | None = None,
    *,
    folds: int = FOLDS,
    rounds: int = 0,
    tau: float = 0.05,
    seed: int = 0,
    n_jobs: int | None = 1,
) -> tuple[Portfolio, Evidence]:
    """Fit all members; the portfolio, and the evidence on which a decision rule for it is fitted.

    Args:
        members: each as its variants.
        labeled: rows that are learned from, every class at least once.
        unlabeled: rows without labels; there may be none.
        validation: rows that are not learned from; None cross-fits the labeled rows.
        folds: of cross-fitting.
        rounds: of self-training, each kept only for learners whose balanced log-loss it lowers by more than a standard
            error of the difference; within a fold, only that fold's models give pseudo-labels.
        tau: how sure a pseudo-label must be, see `csst.learners.rounds`.
        seed: of the folds and of the learners.
        n_jobs: variants that are scored at a time, in threads.
    """
    from sklearn.utils.parallel import Parallel, delayed

    classes = int(labeled.labels.max()) + 1
    prior = np.bincount(labeled.labels, minlength=classes) / len(labeled.labels)
    judge = labeled if validation is None else validation
    deal = deal_folds(labeled.labels, folds, seed) if validation is None else None
    run = Parallel(n_jobs=n_jobs, prefer="threads")
    every = [learner for variants in members for learner in variants]
    scored = iter(run(delayed(_score)(learner, labeled, validation, deal, prior, seed) for learner in every))
    if rounds and unlabeled.shape[0]:
        pupils = [SelfTrained(learner, unlabeled, rounds, tau) for learner in every]
        taught = run(delayed(_score)(pupil, labeled, validation, deal, prior, seed) for pupil in pupils)
        scored = iter([keep_better(plain, pupil) for plain, pupil in zip(scored, taught, strict=True)])
    groups = [_average([next(scored) for _ in variants], judge.labels) for variants in members]
    kept, dropped = drop_worse(groups)
    used = [(variant, 1 / len(kept) / len(group.variants)) for group in kept for variant in group.variants]
    models = run(delayed(variant.learner.fit)(labeled.rows, labeled.labels, None, seed) for variant, _ in used)
    portfolio = Portfolio(
        tuple(
            Member(variant.learner.name, model, variant.calibration, float(variant.losses.mean()), weight)
            for (variant, weight), model in zip(used, models, strict=True)
        ),
        tuple(group.name for group in dropped),
        prior,
    )
    scores = np.mean([group.calibrated for group in kept], axis=0)
    some = unlabeled
    if unlabeled.shape[0] > MOST_UNLABELED:
        some = unlabeled[np.sort(np.random.default_rng(seed).permutation(unlabeled.shape[0])[:MOST_UNLABELED])]
    more = portfolio.scores(some)
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
    alone = np.bincount(labeled.labels)[labeled.labels] < 2  # the only label of a class is always learned from
    scores = np.zeros((len(labeled.labels), len(prior)))
    for fold in np.unique(deal):
        held, learned = np.flatnonzero(deal == fold), np.flatnonzero((deal != fold) | alone)
        model = learner.fit(labeled.rows[learned], labeled.labels[learned], None, seed)
        # A class is rarer among what a fold's model learned than in all labels where its own rows are held out: with
        # the prior of all labels that would be taken for evidence against it.
        fractions = np.bincount(labeled.labels[learned], minlength=len(prior)) / len(learned)
        scores[held] = model.log_probs(labeled.rows[held]) - np.log(fractions)
    return _calibrate(learner, scores, labeled.labels)


def _calibrate(learner: Learner, scores: np.ndarray, labels: np.ndarray) -> _Scored:
    calibration = fit_calibration(scores, labels)
    return _Scored(learner, scores, calibration, compute_losses(calibration.apply(scores), labels))


def _average(variants: Sequence[_Scored], labels: np.ndarray) -> _Group:
    """The variants of a member that are not clearly worse than its best, as one."""
    kept, _ = drop_worse(variants)
    mean = np.mean([variant.calibrated for variant in kept], axis=0)
    return _Group(kept, compute_losses(mean, labels))


def compute_losses(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log-loss of every row, weighted so that classes count alike, (n,)."""
    losses_of_rows = -log_softmax(scores, axis=1)[np.arange(len(labels)), labels]
    return losses_of_rows * balanced_weights(labels, scores.shape[1])


def keep_better(plain: _Scored, taught: _Scored) -> _Scored:
    """The self-trained learner if it is better by more than a standard error of the difference, else the plain one."""
    apart = plain.losses - taught.losses
    error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else np.inf
    return taught if apart.mean() > error else plain


S = TypeVar("S", _Scored, _Group)


def drop_worse(scored: Sequence[S]) -> tuple[list[S], list[S]]:
    """Those that are not clearly worse than the best, and the others."""
    best = min(scored, key=lambda each: each.losses.mean())
    kept: list[S] = []
    dropped: list[S] = []
    for each in scored:
        apart = each.losses - best.losses
        error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else np.inf
        (kept if apart.mean() <= CLEARLY * error else dropped).append(each)
    return kept, dropped
