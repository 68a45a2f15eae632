"""Several learners as one: each scored out of fold, calibrated, and averaged.

    z(x) = sum over models m of  w_m (T_m (log p_m(x) - log pi_L) + a_m)

Labeled rows are scored by models that have not learned from them (cross-fitting, or a validation set); unlabeled and
new rows by models of all labels, which are the ones that are used. Calibration looks at labels and at how many
unlabeled rows a model claims for every class. A member is a learner in several variants. A variant
that is clearly worse than the best of its member, by more than three standard errors of their balanced log-losses, is
left out, and so is a member that is clearly worse than the best member; what stays has equal weights. (Weights fitted
on few labels fit their noise: docs/explanation/choices.md.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy.special import log_softmax

from csst.learners.protocol import FittedLearner, Learner
from csst.learners.rounds import SelfTrained
from csst.statistics.calibration import (
    MATCHED_RIDGE,
    MATCHED_ROWS,
    RIDGE,
    Calibration,
    Unlabeled,
    balanced_weights,
    fit_calibration,
)
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
class _Data:
    """What a learner is fitted and judged on.

    Args:
        labeled: rows that are learned from.
        validation: rows that are not; None for folds.
        deal: the fold of every labeled row, (n,); None for validation rows.
        sample: of the unlabeled rows, (m, D); there may be none.
    """

    labeled: Labeled
    validation: Labeled | None
    deal: np.ndarray | None
    sample: Any

    @property
    def judge(self) -> Labeled:
        return self.labeled if self.validation is None else self.validation

    @property
    def counts(self) -> np.ndarray:
        """Labels of every class, (K,)."""
        return np.bincount(self.labeled.labels)

    @property
    def prior(self) -> np.ndarray:
        """Their fractions, (K,)."""
        return self.counts / len(self.labeled.labels)


@dataclass(frozen=True, eq=False)
class _Scored:
    """A variant with its scores z on labeled rows it had not seen, (n, K), their calibration and their losses (n,).

    model: learned from all labels.
    """

    learner: Learner
    scores: np.ndarray
    calibration: Calibration
    losses: np.ndarray
    model: FittedLearner

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

    data = _Data(
        labeled,
        validation,
        deal_folds(labeled.labels, folds, seed) if validation is None else None,
        draw_rows(unlabeled, MATCHED_ROWS, seed),
    )
    run = Parallel(n_jobs=n_jobs, prefer="threads")
    every = [learner for variants in members for learner in variants]
    scored = iter(run(delayed(_score)(learner, data, seed) for learner in every))
    if rounds and unlabeled.shape[0]:
        pupils = [SelfTrained(learner, unlabeled, rounds, tau) for learner in every]
        taught = run(delayed(_score)(pupil, data, seed) for pupil in pupils)
        scored = iter([keep_better(plain, pupil) for plain, pupil in zip(scored, taught, strict=True)])
    groups = [_average([next(scored) for _ in variants], data.judge.labels) for variants in members]
    kept, dropped = drop_worse(groups)
    used = [(variant, 1 / len(kept) / len(group.variants)) for group in kept for variant in group.variants]
    portfolio = Portfolio(
        tuple(
            Member(each.learner.name, each.model, each.calibration, float(each.losses.mean()), weight)
            for each, weight in used
        ),
        tuple(group.name for group in dropped),
        data.prior,
    )
    scores = np.mean([group.calibrated for group in kept], axis=0)
    more = portfolio.scores(draw_rows(unlabeled, MOST_UNLABELED, seed))
    probs = [np.exp(log_softmax(z + np.log(data.prior), axis=1)) for z in (scores, more)]
    evidence = Evidence.from_probs(probs[0], data.judge.labels, probs[1], train_prior=data.prior)
    return portfolio, replace(evidence, matches=True)


def draw_rows(rows: Any, most: int, seed: int) -> Any:
    """At most so many of the rows, by chance, in their order."""
    count = rows.shape[0]
    return rows if count <= most else rows[np.sort(np.random.default_rng(seed).permutation(count)[:most])]


def _score(learner: Learner, data: _Data, seed: int) -> _Scored:
    """A learner on labeled rows that it had not learned from, calibrated."""
    rows, labels, log_prior = data.labeled.rows, data.labeled.labels, np.log(data.prior)
    logs = np.zeros((len(labels), len(log_prior)))
    if data.deal is not None:
        alone = data.counts[labels] < 2  # the only label of a class is always learned from
        for fold in np.unique(data.deal):
            held, learned = np.flatnonzero(data.deal == fold), np.flatnonzero((data.deal != fold) | alone)
            logs[held] = learner.fit(rows[learned], labels[learned], None, seed).log_probs(rows[held])
    model = learner.fit(rows, labels, None, seed)
    if data.validation is not None:
        logs = model.log_probs(data.validation.rows)
    scores, unlabeled, ridge = logs - log_prior, None, RIDGE
    if data.sample.shape[0]:
        unlabeled, ridge = Unlabeled(model.log_probs(data.sample) - log_prior, data.counts), MATCHED_RIDGE
    calibration = fit_calibration(scores, data.judge.labels, ridge=ridge, unlabeled=unlabeled)
    return _Scored(learner, scores, calibration, compute_losses(calibration.apply(scores), data.judge.labels), model)


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
