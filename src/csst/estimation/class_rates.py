"""Class rates from few labels and many unlabeled rows.

    R_k = (n_k R^L_k + kappa R^U_k) / (n_k + kappa)

R^L are the fractions counted on labeled rows that the model has not learned from, R^U those of the unlabeled rows, each
counted for every class as far as its calibrated posterior says:

    R^U_kj = sum_i Q_ik 1[F(x_i) = j] / sum_i Q_ik.

With many labels it is the counts; with few it leans on what the model itself expects, which has the smaller error. The
labels' own posterior takes the place of unlabeled rows where there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from csst.estimation.held_out_scores import HeldOutScores
from csst.maths.confusion import Confusion

#: how many labels the unlabeled rows are worth for a class; 10 to 30 do alike
UNLABELED_WORTH = 20.0
#: up to so many classes, decisions are counted by a matrix product instead of sorting
FEW_CLASSES = 50
#: dispersion above which labels and unlabeled rows are said to disagree
DISAGREEMENT = 3.0
#: standard errors between labels and unlabeled rows that no class should show
FAR_APART = 4.0


@dataclass(frozen=True, eq=False)
class RateEstimate:
    """An estimate of R_kj = P(F(x) = j | y = k), and the data behind it.

    Args:
        confusion: the estimated rates under the deployment prior.
        labeled_rates: R^L, counted on labels, (K, K).
        unlabeled_rates: R^U, counted on posteriors, (K, K).
        n: labels of every class, (K,).
        worth: how many labels R^U stands for, per class, (K,).
        unlabeled: how many unlabeled rows.
        unlabeled_prior: their class balance as estimated, (K,).
        is_cross_fitted: whether the labels were judged by other models than the one in use, which learned from them.
        prior_covariance: covariance of the error of the deployment prior, (K, K); None where the prior is stated.
    """

    confusion: Confusion
    labeled_rates: np.ndarray
    unlabeled_rates: np.ndarray
    n: np.ndarray
    worth: np.ndarray
    unlabeled: int
    unlabeled_prior: np.ndarray
    is_cross_fitted: bool = False
    prior_covariance: np.ndarray | None = None

    @property
    def classes(self) -> int:
        """K, how many classes there are."""
        return len(self.n)

    @property
    def counts(self) -> np.ndarray:
        """The confusion counts on the labels, (K, K), int64."""
        return np.rint(self.labeled_rates * self.n[:, None]).astype(np.int64)

    def with_prior(self, prior: np.ndarray) -> RateEstimate:
        """Return the same rates under another deployment prior, which is stated.

        Args:
            prior: pi, (K,).

        Returns:
            The estimate under that prior.
        """
        return replace(self, confusion=self.confusion.with_prior(torch.from_numpy(prior)), prior_covariance=None)

    @cached_property
    def differences(self) -> np.ndarray:
        """(R^L_kk - R^U_kk) in standard errors of chance, sqrt(r_k (1 - r_k) (1/n_k + 1/kappa_k)), (K,)."""
        recall = np.diag(self.confusion.rates.numpy())
        noise = np.maximum(recall * (1 - recall), 0.01) * (1 / np.maximum(self.n, 1) + 1 / np.maximum(self.worth, 1))
        return (np.diag(self.labeled_rates) - np.diag(self.unlabeled_rates)) / noise**0.5

    @property
    def dispersion(self) -> float:
        """The mean square of the differences, at least 1: above it, labels and unlabeled rows disagree."""
        return max(1.0, float((self.differences**2).mean()))

    def agreement(self, class_names: Sequence[str] | None = None) -> str:
        """Return how far labels and unlabeled rows disagree, in a plain sentence.

        Args:
            class_names: K names; None takes the indices.

        Returns:
            The sentence.
        """
        if not self.unlabeled:
            return "there are no unlabeled rows: the rates are the labels' counts, drawn to what the model expects"
        k = int(np.abs(self.differences).argmax())
        name = k if class_names is None else repr(class_names[k])
        comparison = (
            f"the recall of class {name} is {self.labeled_rates[k, k]:.2f} by its {self.n[k]} labels and "
            f"{self.unlabeled_rates[k, k]:.2f} by the {self.unlabeled:,} unlabeled rows"
        )
        if self.dispersion > DISAGREEMENT or abs(self.differences[k]) > FAR_APART:
            return f"labels and unlabeled rows disagree by more than chance: {comparison}; label more rows"
        return f"labels and unlabeled rows agree as far as chance allows; at most, {comparison}"

    @property
    def basis(self) -> str:
        """The data behind the estimate, as a phrase."""
        labels = f"{int(self.n.min())} to {int(self.n.max())}" if self.n.min() < self.n.max() else f"{int(self.n[0])}"
        rows = "1 unlabeled row" if self.unlabeled == 1 else f"{self.unlabeled:,} unlabeled rows"
        addition = f" and {rows}" if self.unlabeled else ""
        return f"estimated from {int(self.n.sum()):,} labels ({labels} per class){addition}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "recall": self.confusion.recall.tolist(),
            "coverage": self.confusion.coverage.tolist(),
            "prior": self.confusion.prior.tolist(),
            "prior_error": None if self.prior_covariance is None else np.sqrt(np.diag(self.prior_covariance)).tolist(),
            "n": self.n.tolist(),
            "unlabeled": self.unlabeled,
            "basis": self.basis,
            "unlabeled_prior": self.unlabeled_prior.tolist(),
        }


def decide_rates(weights: np.ndarray, decisions: np.ndarray, classes: int) -> np.ndarray:
    """Return sum_i W_ik 1[F(x_i) = j], (K, K), for weights W (N, K) and decisions (N,)."""
    if classes <= FEW_CLASSES:
        return weights.T @ (decisions[:, None] == np.arange(classes)).astype(float)
    table = np.zeros((classes, classes))
    order = np.argsort(decisions, kind="stable")
    names, starts = np.unique(decisions[order], return_index=True)
    if len(names):
        table[:, names] = np.add.reduceat(weights[order], starts, axis=0).T
    return table


def count_labels(labels: np.ndarray, decisions: np.ndarray, classes: int) -> np.ndarray:
    """Return confusion counts, (K, K), row = truth."""
    return np.bincount(labels * classes + decisions, minlength=classes**2).reshape(classes, classes).astype(float)


def count_unlabeled_worth(evidence: HeldOutScores) -> np.ndarray:
    """Return how many labels of each class the rows without a label are worth, (K,): no more than there are of them."""
    return np.minimum(UNLABELED_WORTH, evidence.soft_posterior.sum(0))


def pool_rates(counts: np.ndarray, soft_counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pooled rates, R^U, and what R^U is worth for each class.

    R^U is worth no more labels than there are rows behind it.

    Args:
        counts: confusion counts on labels, (K, K).
        soft_counts: counts weighted by posteriors, (K, K).

    Returns:
        R and R^U, (K, K), and the worth, (K,).
    """
    totals = counts.sum(1)
    mass = soft_counts.sum(1)
    divisors = np.where(mass > 0, mass, 1.0)
    soft_rates = np.where(mass[:, None] > 0, soft_counts / divisors[:, None], 1 / len(counts))
    weight = np.minimum(UNLABELED_WORTH, mass)
    weight = np.where(totals + weight > 0, weight, 1.0)
    return (counts + weight[:, None] * soft_rates) / (totals + weight)[:, None], soft_rates, weight


def combine_rates(
    evidence: HeldOutScores, counts: np.ndarray, soft_counts: np.ndarray, deployment_prior: np.ndarray
) -> RateEstimate:
    """Return the estimate from counts on labels and counts weighted by posteriors, both (K, K), row = truth."""
    rates, soft_rates, weight = pool_rates(counts, soft_counts)
    totals = counts.sum(1)
    return RateEstimate(
        Confusion(torch.from_numpy(rates), torch.from_numpy(deployment_prior)),
        np.where(totals[:, None] > 0, counts / np.maximum(totals, 1)[:, None], soft_rates),
        soft_rates,
        totals.astype(np.int64),
        weight,
        len(evidence.unlabeled_scores),
        evidence.unlabeled_prior,
        evidence.is_cross_fitted,
        evidence.prior_covariance,
    )


def estimate_rates(
    evidence: HeldOutScores, decisions: np.ndarray, soft_decisions: np.ndarray, deployment_prior: np.ndarray
) -> RateEstimate:
    """Return the rates of a classifier from its decisions on the labeled rows (n,) and the soft rows (m,)."""
    counts = count_labels(evidence.labels, decisions, evidence.classes)
    soft_counts = decide_rates(evidence.soft_posterior, soft_decisions, evidence.classes)
    return combine_rates(evidence, counts, soft_counts, deployment_prior)
