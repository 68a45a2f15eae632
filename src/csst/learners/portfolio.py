"""Several learners as one: each scored out of fold, calibrated, and averaged.

    z(x) = sum over models m of  w_m (T_m / g_m (log p_m(x) - log pi_L) + a_m)

Labeled rows are scored by models that have not learned from them (cross-fitting, or a validation set); unlabeled and
new rows by models of all labels, which make up the portfolio. A member is a learner in several variants. A variant
that is clearly worse than the best of its member, by more than three standard errors of their balanced log-losses, is
left out, and so is a member that is clearly worse than the best member. The weight of another member falls with the
standard errors by which it is worse than the best one. (Weights fitted on few labels fit their noise:
docs/explanation/choices.md.)

T_m and a_m are fitted on scores of models that learned from fewer labels than the model in use. The latter is surer: a
penalty, for example, weighs less the more labels there are. g_m is by how much its scores are farther apart on the same
unlabeled rows; without it all members would be overconfident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from csst.estimation.calibration import Calibration, balanced_weights, fit_calibration
from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import MOST_UNLABELED, HeldOutScores
from csst.learners.protocol import FittedLearner, Learner
from csst.learners.self_training import SelfTrained
from csst.models.stored import StoredModule

#: folds of cross-fitting
FOLDS = 5
#: standard errors by which a variant or a member must be worse to be left out
CLEARLY = 3.0
#: unlabeled rows on which the spread of scores is compared
SPREAD_ROWS = 500


class Member(StoredModule):
    """The weighted, calibrated scores of one model of all labels: w (T (log p(x) - log prior) + a), (N, K).

    Args:
        name: name of the learner.
        model: the fitted learner.
        temperature: T, by which its scores are as far apart as the calibrated scores of the models of folds.
        bias: a, (K,).
        weight: w.
        loss: its balanced log-loss on rows it had not seen.
    """

    name: str
    model: FittedLearner
    temperature: float
    bias: Tensor
    weight: float
    loss: float

    def forward(self, x: Tensor, log_prior: Tensor) -> Tensor:
        return self.weight * (self.temperature * (self.model(x) - log_prior) + self.bias)


class Portfolio(FittedLearner):
    """The sum of the members' scores, under the class prior of the labels.

    Args:
        members: the models in use.
        left_out: balanced log-losses of the members left out, by name.
        prior: class fractions of the labels, (K,).
    """

    members: Sequence[Member]
    left_out: dict[str, float]
    prior: Tensor

    def forward(self, x: Tensor) -> Tensor:
        log_prior = torch.log(self.prior)
        total = log_prior
        for member in self.members:
            total = total + member(x, log_prior)
        return torch.log_softmax(total, 1)

    def log_probs(self, rows: Any) -> np.ndarray:
        if not rows.shape[0]:  # a classifier of another package may refuse an empty table
            return np.zeros((0, len(self.prior)))
        return super().log_probs(rows)

    def probs(self, rows: Any) -> np.ndarray:
        """Return calibrated probabilities under the class prior of the labels, (N, K)."""
        return np.exp(self.log_probs(rows))

    @property
    def names(self) -> tuple[str, ...]:
        """The members' names, each once."""
        return tuple(dict.fromkeys(member.name for member in self.members))

    def describe(self) -> list[dict[str, Any]]:
        """Return the weight of each member and the mean balanced log-loss of its variants, as plain values."""
        descriptions = []
        for name in self.names:
            variants = [member for member in self.members if member.name == name]
            loss = np.mean([member.loss for member in variants])
            weight = sum(member.weight for member in variants)
            descriptions.append({"name": name, "balanced_log_loss": float(loss), "weight": float(weight)})
        return descriptions


def add_prior(scores: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return softmax(z + log prior), (N, K)."""
    return np.exp(log_softmax(scores + np.log(prior), axis=1))


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows with classes 0 .. K-1."""

    rows: Any
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class _Scored:
    """A variant as judged by labeled rows it had not seen.

    Args:
        learner: the variant.
        scores: z on these rows, (n, K).
        calibration: fitted on them.
        losses: of calibrated scores, (n,).
        spread: the spread of its fold models' scores on unlabeled rows; 0 if there are no folds or no such rows.
    """

    learner: Learner
    scores: np.ndarray
    calibration: Calibration
    losses: np.ndarray
    spread: float = 0.0

    @property
    def calibrated(self) -> np.ndarray:
        return self.calibration.apply(self.scores)

    def as_member(self, model: FittedLearner, weight: float, sample: Any) -> Member:
        """Return the variant's model of all labels as a member of the portfolio, on the scale of its fold models."""
        spread = measure_spread(model.log_probs(sample)) if self.spread else 0.0
        growth = spread / self.spread if spread else 1.0
        return Member(
            name=self.learner.name,
            model=model,
            temperature=self.calibration.temperature / growth,
            bias=self.calibration.bias,
            weight=weight,
            loss=float(self.losses.mean()),
        )


@dataclass(frozen=True, eq=False)
class _Group:
    """A member: the variants that stay, and the losses of their mean, (n,)."""

    variants: list[_Scored]
    losses: np.ndarray

    @property
    def name(self) -> str:
        return self.variants[0].learner.name

    @property
    def loss(self) -> float:
        """The mean balanced log-loss of the variants."""
        return float(np.mean([variant.losses.mean() for variant in self.variants]))

    @property
    def calibrated(self) -> np.ndarray:
        return np.mean([variant.calibrated for variant in self.variants], axis=0)


def fit_portfolio(
    members: Sequence[Sequence[Learner]],
    labeled: LabeledRows,
    unlabeled: Any,
    validation: LabeledRows | None = None,
    *,
    folds: int = FOLDS,
    rounds: int = 0,
    tau: float = 0.05,
    seed: int = 0,
    n_jobs: int | None = None,
) -> tuple[Portfolio, HeldOutScores]:
    """Fit all members, drop the clearly worse ones, and average the others.

    Args:
        members: members, each as its variants.
        labeled: rows to learn from, every class at least once.
        unlabeled: rows without labels; may be empty.
        validation: rows to judge by; None cross-fits the labeled rows.
        folds: number of folds of cross-fitting.
        rounds: rounds of self-training, used only for learners whose balanced log-loss they lower by more than a
            standard error of the difference; within a fold, only that fold's models give pseudo-labels.
        tau: largest -log p of a pseudo-label, see `csst.learners.self_training`.
        seed: seed of the folds and of the learners.
        n_jobs: variants fitted at a time, in threads; None for what `joblib.parallel_config` says, else one.

    Returns:
        The portfolio, and the scores on rows it had not seen, to which a decision rule is fitted.
    """
    from sklearn.utils.parallel import Parallel, delayed

    prior = np.bincount(labeled.labels) / len(labeled.labels)
    judge = labeled if validation is None else validation
    deal = deal_folds(labeled.labels, folds, seed) if validation is None else None
    run = Parallel(n_jobs=n_jobs, prefer="threads")
    unlabeled_sample = _sample(unlabeled, seed)
    spread_sample = _sample(unlabeled, seed, SPREAD_ROWS)

    def score_all(learners: Sequence[Learner]) -> list[_Scored]:
        return run(delayed(_score)(learner, labeled, validation, deal, spread_sample, seed) for learner in learners)

    # All variants are scored in one go, so that no thread waits for the slowest variant of a member.
    learners = [learner for variants in members for learner in variants]
    scored_variants = score_all(learners)
    if rounds and unlabeled.shape[0]:
        pupils = score_all([SelfTrained(learner, unlabeled, rounds, tau) for learner in learners])
        scored_variants = [keep_better(*pair) for pair in zip(scored_variants, pupils, strict=True)]
    groups = []
    for variants in members:
        groups.append(_average(scored_variants[: len(variants)], judge.labels))
        scored_variants = scored_variants[len(variants) :]
    groups, dropped_groups = drop_worse(groups)
    weights = weigh(groups)
    pairs = [
        (variant, weight / len(group.variants))
        for group, weight in zip(groups, weights, strict=True)
        for variant in group.variants
    ]
    models = run(delayed(variant.learner.fit)(labeled.rows, labeled.labels, seed) for variant, _ in pairs)
    portfolio = Portfolio(
        members=[
            variant.as_member(model, weight, spread_sample)
            for (variant, weight), model in zip(pairs, models, strict=True)
        ],
        left_out={group.name: group.loss for group in dropped_groups},
        prior=prior,
    )
    scores = np.average([group.calibrated for group in groups], axis=0, weights=weights)
    evidence = HeldOutScores.from_probs(
        add_prior(scores, prior),
        judge.labels,
        portfolio.probs(unlabeled_sample),
        train_prior=prior,
        is_cross_fitted=validation is None,
    )
    return portfolio, evidence


def weigh(groups: Sequence[_Group]) -> list[float]:
    """Return the weight of each member, proportional to exp(-t / 2).

    t is by how many standard errors of the difference a member's balanced log-loss is above that of the best member.
    """
    winner = min(groups, key=lambda group: group.losses.mean())
    lags = [compare_losses(group.losses, winner.losses) for group in groups]
    weights = np.array([np.exp(-lag / (2 * error)) if lag > 0 else 1.0 for lag, error in lags])
    return (weights / weights.sum()).tolist()


def _sample(unlabeled: Any, seed: int, most: int = MOST_UNLABELED) -> Any:
    """Return a random choice of at most so many of the unlabeled rows."""
    if unlabeled.shape[0] <= most:
        return unlabeled
    order = np.random.default_rng(seed).permutation(unlabeled.shape[0])
    return unlabeled[np.sort(order[:most])]


def _score(
    learner: Learner,
    labeled: LabeledRows,
    validation: LabeledRows | None,
    deal: np.ndarray | None,
    spread_sample: Any,
    seed: int,
) -> _Scored:
    """Score a learner on labeled rows that it has not learned from, and measure its spread on unlabeled rows."""
    prior = np.bincount(labeled.labels) / len(labeled.labels)
    if deal is None:
        assert validation is not None
        logs = learner.fit(labeled.rows, labeled.labels, seed).log_probs(validation.rows)
        return _calibrate(learner, logs - np.log(prior), validation.labels)
    is_only_label = np.bincount(labeled.labels)[labeled.labels] < 2  # the only label of a class is always learned from
    scores = np.zeros((len(labeled.labels), len(prior)))
    spreads = []
    for fold in np.unique(deal):
        fold_rows = np.flatnonzero(deal == fold)
        other_rows = np.flatnonzero((deal != fold) | is_only_label)
        model = learner.fit(labeled.rows[other_rows], labeled.labels[other_rows], seed)
        # The rows of a fold are missing from what its model learns, which makes their classes rarer there than among
        # all labels. The prior of all labels would take that for evidence against these classes.
        fractions = np.bincount(labeled.labels[other_rows], minlength=len(prior)) / len(other_rows)
        scores[fold_rows] = model.log_probs(labeled.rows[fold_rows]) - np.log(fractions)
        spreads.append(measure_spread(model.log_probs(spread_sample)) if spread_sample.shape[0] else 0.0)
    return replace(_calibrate(learner, scores, labeled.labels), spread=float(np.mean(spreads)))


def measure_spread(scores: np.ndarray) -> float:
    """Return how far scores (N, K) are from the mean of their row and of their class, root of the mean square."""
    differences = scores - scores.mean(1, keepdims=True)
    return float((differences - differences.mean(0)).std())


def _calibrate(learner: Learner, scores: np.ndarray, labels: np.ndarray) -> _Scored:
    calibration = fit_calibration(scores, labels)
    return _Scored(learner, scores, calibration, compute_losses(calibration.apply(scores), labels))


def _average(variants: Sequence[_Scored], labels: np.ndarray) -> _Group:
    """Return the variants that are not clearly worse than the best one, as one member."""
    variants, _ = drop_worse(variants)
    mean = np.mean([variant.calibrated for variant in variants], axis=0)
    return _Group(variants, compute_losses(mean, labels))


def compute_losses(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the log-loss of each row, weighted so that all classes count the same, (n,)."""
    losses_of_rows = -log_softmax(scores, axis=1)[np.arange(len(labels)), labels]
    return losses_of_rows * balanced_weights(labels, scores.shape[1])


def compare_losses(losses: np.ndarray, other_losses: np.ndarray) -> tuple[float, float]:
    """Return the mean of losses - other_losses over the rows, and its standard error (infinite for a single row)."""
    difference = losses - other_losses
    if len(difference) < 2:
        return difference.mean(), np.inf
    return difference.mean(), difference.std(ddof=1) / len(difference) ** 0.5


def keep_better(teacher: _Scored, pupil: _Scored) -> _Scored:
    """Return the self-trained pupil if it is better by more than a standard error of the difference."""
    lead, error = compare_losses(teacher.losses, pupil.losses)
    return pupil if lead > error else teacher


S = TypeVar("S", _Scored, _Group)


def drop_worse(candidates: Sequence[S]) -> tuple[list[S], list[S]]:
    """Split candidates into those that are not clearly worse than the best one, and the others."""
    winner = min(candidates, key=lambda candidate: candidate.losses.mean())
    survivors: list[S] = []
    losers: list[S] = []
    for candidate in candidates:
        lag, error = compare_losses(candidate.losses, winner.losses)
        if lag <= CLEARLY * error:
            survivors.append(candidate)
        else:
            losers.append(candidate)
    return survivors, losers
