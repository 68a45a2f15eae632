"""What is known about a classifier: its scores on labeled rows it has not learned from, and on unlabeled rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor

from csst.errors import InputError, nearest
from csst.estimation.calibration import Calibration, balanced_weights, fit_calibration
from csst.estimation.folds import deal_folds
from csst.estimation.shift import estimate_prior
from csst.maths.confusion import as_float64, check_prior, read_class_indices, refuse_empty_classes
from csst.maths.gain import Gain

#: unlabeled rows beyond this many are left out: the rates are known to a hundredth by then
MOST_UNLABELED = 10_000
#: probabilities below this count as this: a zero has no logarithm
SMALLEST_PROBABILITY = 1e-12
#: probabilities that come out of an inverted gain are at least this
SMALLEST_POSTERIOR = 1e-6
#: a probability of 0 that n labels speak for counts as 1 / (ZERO_ROWS n) where scores are calibrated
ZERO_ROWS = 10
#: folds on which the information of scores is measured
INFORMATION_FOLDS = 5
#: how far a row of probabilities may be from summing to 1: enough for a softmax in single precision
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Blocks:
    """How K columns of scores fall into groups of rows: a row has scores in the block of its group only.

    Args:
        number: number of groups, each with K / number columns.
        are_tied: whether one bias per class serves all groups.
    """

    number: int = 1
    are_tied: bool = False

    def spread(self, bias: np.ndarray) -> np.ndarray:
        """Return one bias for each column."""
        return np.tile(bias, self.number) if self.are_tied else bias

    def gather(self, slopes: np.ndarray) -> np.ndarray:
        """Return slopes by biases, the sums over columns that share one."""
        return slopes.reshape(self.number, -1).sum(0) if self.are_tied else slopes

    def merge(self, bias: np.ndarray) -> np.ndarray:
        """Return the biases that come nearest to one bias for each column, weights being added up."""
        return np.logaddexp.reduce(bias.reshape(self.number, -1), axis=0) if self.are_tied else bias


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Scores z = log p - log pi_train of labeled and of unlabeled rows.

    Labeled rows are scored by a model that has not learned from them (validation rows, or out of fold), unlabeled rows
    by the model that is used.

    Args:
        scores: z of the labeled rows, (n, K).
        labels: their classes, (n,), every class at least once.
        unlabeled_scores: z of the unlabeled rows, (m, K); m may be 0.
        train_prior: pi_train, the class prior that was taken out, (K,).
        labeled_prior: the class fractions of the labels that were learned from, (K,); the unlabeled rows' balance is
            thought to be near it.
        start: where the calibration begins; None for no calibration.
        is_cross_fitted: whether labeled rows were scored out of fold, by other models than the one in use.
        doubt: why unlabeled rows were left out, in a sentence; "" if they were not.
        undo: the inverse of the gain that a network was trained under, (K,) or (K, K), which the scores have lost; None
            where there was none.
        prior_covariance: covariance of the error of the deployment prior, (K, K); None where the prior is stated.
    """

    scores: np.ndarray
    labels: np.ndarray
    unlabeled_scores: np.ndarray
    train_prior: np.ndarray
    labeled_prior: np.ndarray
    start: Calibration | None = None
    is_cross_fitted: bool = False
    doubt: str = ""
    undo: Tensor | None = None
    prior_covariance: np.ndarray | None = None
    #: fields with an entry for every labeled row, and for every unlabeled row
    labeled_fields: ClassVar[tuple[str, ...]] = ("scores", "labels")
    unlabeled_fields: ClassVar[tuple[str, ...]] = ("unlabeled_scores",)

    @classmethod
    def from_probs(
        cls,
        probs: Any,
        labels: Any,
        unlabeled_probs: Any = None,
        *,
        train_prior: Any = "labels",
        labeled_prior: Any = None,
        gain: Gain | None = None,
        class_names: Sequence[str] | None = None,
        most_unlabeled: int = MOST_UNLABELED,
        seed: int = 0,
        is_cross_fitted: bool = False,
    ) -> HeldOutScores:
        """Return scores from probabilities (n, K), labels (n,) and probabilities of unlabeled rows (m, K), all checked.

        Args:
            probs: probabilities of the labeled rows.
            labels: class indices.
            unlabeled_probs: probabilities of rows without a label, by the model that is used.
            train_prior: the class prior behind the probabilities: "labels" for the fractions of these labels, "uniform"
                for a class-weighted or logit-adjusted model, or one number per class.
            labeled_prior: the class fractions of the labels that were learned from; the train_prior if it is an array,
                else the fractions of these labels.
            gain: the gain that a network was trained under, if any: its probabilities are taken back first.
            class_names: for messages.
            most_unlabeled: a random choice of so many unlabeled rows is used.
            seed: seed of that choice.
            is_cross_fitted: whether probs are out of fold.

        Returns:
            The scores of both kinds of rows.
        """
        values = check_probs(probs)
        classes = values.shape[1]
        truth = check_labels(labels, len(values), classes)
        counts = np.bincount(truth, minlength=classes)
        refuse_empty_classes(as_float64(counts, "labels"), class_names, "a decision rule", "the labeled rows")
        unlabeled = np.zeros((0, classes)) if unlabeled_probs is None else check_probs(unlabeled_probs, classes)
        undo = None if gain is None else gain.softmax_inverse
        if gain is not None:
            values = take_gain_out(values, undo)
            unlabeled = take_gain_out(unlabeled, undo)
        if len(unlabeled) > most_unlabeled:
            sample = np.random.default_rng(seed).permutation(len(unlabeled))[:most_unlabeled]
            unlabeled = unlabeled[np.sort(sample)]
        fractions = counts / counts.sum()
        prior = read_prior(train_prior, "train_prior", {"labels": fractions}, classes)
        if labeled_prior is None:
            labeled_prior = fractions if isinstance(train_prior, str) else prior
        learned_prior = read_prior(labeled_prior, "labeled_prior", {}, classes)
        return cls(
            take_out(values, prior),
            truth,
            take_out(unlabeled, prior),
            prior,
            learned_prior,
            is_cross_fitted=is_cross_fitted,
            undo=undo,
        )

    @property
    def classes(self) -> int:
        """K, how many classes there are."""
        return self.scores.shape[1]

    @property
    def blocks(self) -> Blocks:
        """How classes fall into groups of rows: into one, unless classes are cells of group and class."""
        return Blocks()

    @cached_property
    def counts(self) -> np.ndarray:
        """Labeled rows of every class, (K,)."""
        return np.bincount(self.labels, minlength=self.classes)

    @cached_property
    def fractions(self) -> np.ndarray:
        """The class fractions of the labeled rows, (K,)."""
        return self.counts / self.counts.sum()

    @cached_property
    def calibration_scores(self) -> np.ndarray:
        """Scores z of the labeled rows to calibrate on, (n, K): a probability of 0 counts as 1 / (10 n).

        A forest says 0 where no tree has seen the class. Taken at its word, a single label of that class would send
        the temperature, and with it all that the scores say, to 0.
        """
        logs = self.scores + np.log(self.train_prior)
        is_zero = np.abs(logs - np.log(SMALLEST_PROBABILITY)) < 1e-9
        return np.where(is_zero, -np.log(ZERO_ROWS * len(self.labels)), logs) - np.log(self.train_prior)

    @cached_property
    def calibration(self) -> Calibration:
        return fit_calibration(self.calibration_scores, self.labels, start=self.start)

    @cached_property
    def unlabeled_prior(self) -> np.ndarray:
        """The class balance of the unlabeled rows by EM, or of the labels if there are none, (K,)."""
        return estimate_prior(self.calibration.apply(self.unlabeled_scores), self.labeled_prior)

    @cached_property
    def posterior(self) -> np.ndarray:
        """Q, the calibrated class probabilities of the unlabeled rows under their own balance, (m, K)."""
        return softmax(self.calibration.apply(self.unlabeled_scores) + np.log(self.unlabeled_prior), axis=1)

    @cached_property
    def labeled_posterior(self) -> np.ndarray:
        """Calibrated class probabilities of the labeled rows under their balance, as if unlabeled, (n, K)."""
        fractions = np.maximum(self.fractions, SMALLEST_PROBABILITY)
        return softmax(self.calibration.apply(self.scores) + np.log(fractions), axis=1)

    @property
    def information(self) -> float:
        """What part of the uncertainty about the classes calibrated scores take away: 1 - balanced log-loss / log K.

        Calibrated on folds and measured on the rows left out: a calibration flatters the labels it was fitted on.
        """
        return float(self._information_of_rows.mean())

    @property
    def information_error(self) -> float:
        """The standard error of the information."""
        return float(self._information_of_rows.std(ddof=1) / len(self.labels) ** 0.5)

    @cached_property
    def _information_of_rows(self) -> np.ndarray:
        """What every labeled row adds to the information, (n,): its mean is the information."""
        scores = self.calibration_scores
        weights = balanced_weights(self.labels, self.classes)
        folds = deal_folds(self.labels, min(INFORMATION_FOLDS, len(self.labels)), 0)
        losses = np.zeros(len(self.labels))
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            calibration = fit_calibration(scores[folds != fold], self.labels[folds != fold], start=self.calibration)
            logs = log_softmax(calibration.apply(scores[rows]), axis=1)
            losses[rows] = -logs[np.arange(len(rows)), self.labels[rows]]
        return weights * (1 - losses / np.log(self.classes))

    @property
    def is_constant(self) -> bool:
        """Whether all labeled rows have the same scores."""
        return bool(np.ptp(self.scores, axis=0).max() < 1e-9)

    @property
    def has_unlabeled(self) -> bool:
        """Whether there is any unlabeled row."""
        return len(self.unlabeled_scores) > 0

    @property
    def soft_scores(self) -> np.ndarray:
        """Scores z of the unlabeled rows; of the labeled rows if there are none."""
        return self.unlabeled_scores if self.has_unlabeled else self.scores

    @property
    def soft_posterior(self) -> np.ndarray:
        """Class probabilities of `soft_scores`, (m, K)."""
        return self.posterior if self.has_unlabeled else self.labeled_posterior

    def part(self, rows: np.ndarray) -> HeldOutScores:
        """Keep some of the labeled rows; a class may lose all of its labels.

        Args:
            rows: their indices, or a mask, (n,).

        Returns:
            The smaller evidence.
        """
        return replace(
            self, start=self.calibration, **{name: getattr(self, name)[rows] for name in self.labeled_fields}
        )

    def thin(self, limit: int) -> HeldOutScores:
        """Keep every k-th unlabeled row.

        Args:
            limit: how many may be left.

        Returns:
            The smaller evidence.
        """
        step = -(-len(self.unlabeled_scores) // limit)
        if step <= 1:
            return self
        parts = {name: getattr(self, name)[::step] for name in self.unlabeled_fields}
        return replace(self, start=self.calibration, **parts)


def undo_gain(probs: Tensor, inverse: Tensor | None) -> Tensor:
    """Return the class probabilities behind the softmax of a network trained under a gain G: norm(G^-T p).

    None of them is less than 1e-6.

    inverse: the inverse of G, (K, K), or of its diagonal, (K,); None where there is nothing to undo.
    """
    if inverse is None:
        return probs
    products = probs * inverse if inverse.ndim == 1 else probs @ inverse
    positive_probs = products.clamp(min=torch.finfo(products.dtype).tiny)
    return (positive_probs / positive_probs.sum(-1, keepdim=True)).clamp(min=SMALLEST_POSTERIOR)


def take_gain_out(probs: np.ndarray, inverse: Tensor | None) -> np.ndarray:
    """Return probabilities (N, K) with the gain of a network undone, each row of sum 1; see `undo_gain`."""
    posterior = undo_gain(torch.from_numpy(probs), inverse)
    return (posterior / posterior.sum(1, keepdim=True)).numpy()


def take_out(probs: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return z = log p - log pi."""
    return np.log(np.maximum(probs, SMALLEST_PROBABILITY)) - np.log(prior)


def read_prior(prior: Any, what: str, known_priors: dict[str, np.ndarray], classes: int) -> np.ndarray:
    """Return a class prior given by one number per class, "uniform", or one of the names."""
    priors = {**known_priors, "uniform": np.full(classes, 1 / classes)}
    if isinstance(prior, str):
        if prior not in priors:
            # "unlabeled" is only among the priors where it is asked for, and is what another spelling of it means.
            hint = nearest(prior, [*priors, "unlabeled"] if what == "deployment_prior" else priors)
            raise InputError(f"{what} is {', '.join(map(repr, priors))} or one number per class; found {prior!r}{hint}")
        return priors[prior]
    values = check_prior(prior, what).cpu().numpy()
    if len(values) != classes:
        raise InputError(f"{what} has {len(values)} classes and the scores {classes}")
    return values


def check_labels(labels: Any, rows: int, classes: int) -> np.ndarray:
    """Return class indices, (n,), one for each row of scores."""
    values = read_class_indices(labels, "labels", classes).cpu().numpy().copy()
    if len(values) != rows:
        raise InputError(f"there must be one label per row of probs; found {len(values)} for {rows}")
    return values


def check_probs(probs: Any, classes: int | None = None) -> np.ndarray:
    """Return probabilities, (N, K), as float64: finite, non-negative, rows that sum to 1."""
    values = as_float64(probs, "probs").detach().cpu().numpy()
    columns = "K" if classes is None else str(classes)
    if values.ndim != 2 or (classes is not None and values.shape[1] != classes):
        raise InputError(f"probs must have shape (N, {columns}), one row per example; found {values.shape}")
    if values.shape[1] < 2:
        raise InputError(f"probs must have a column for each of at least 2 classes; found {values.shape[1]}")
    if not np.isfinite(values).all():
        rows = np.flatnonzero(~np.isfinite(values).all(1)).tolist()
        raise InputError(f"probs must be finite; found NaN or infinite values in rows {rows[:10]}: check the model")
    if (values < 0).any():
        row = int(np.flatnonzero((values < 0).any(1))[0])
        raise InputError(
            f"probs must be non-negative; row {row} holds {values[row].min():.4g}: pass probabilities, not logits"
        )
    gaps = np.abs(values.sum(1) - 1)
    if len(gaps) and gaps.max() > SUM_TOLERANCE:
        row = int(gaps.argmax())
        raise InputError(
            f"each row of probs must sum to 1; row {row} sums to {values[row].sum():.6g}: pass the softmax of "
            "the logits"
        )
    return values
