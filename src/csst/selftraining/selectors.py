"""Selectors: which pseudo-labels are trusted.

A selector is any callable (target, probs (B, K), gain, index (B,)) -> weight in [0, 1] per example. `probs` is the
raw softmax p_m(x) of the weak view, not the logit-adjusted one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.maths.losses import kl_to_optimal


class Selector(Protocol):
    """(target, probs (B, K), gain, index (B,)) -> weight in [0, 1] of every pseudo-label, (B,)."""

    def __call__(self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor) -> Tensor: ...


class Threshold(Protocol):
    """A selector whose threshold can be lowered: the required confidence is multiplied by `scale`, in [0, 1]."""

    def __call__(
        self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor, scale: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class Confidence:
    """1(max_i p_m(x)_i >= threshold): FixMatch's own rule, blind to the gain (paper, Sec. 4).

    Args:
        threshold: smallest confidence that is used.
        undoes_gain: whether to use the class probabilities behind the softmax, `gain.posterior(p_m)`, instead of p_m.
    """

    threshold: float = 0.95
    undoes_gain: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise InputError(f"the confidence threshold must lie in [0, 1]; found {self.threshold}")

    def __call__(self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor, scale: Tensor | None = None) -> Tensor:
        threshold = self.threshold if scale is None else self.threshold * scale
        probs = gain.posterior(probs) if self.undoes_gain else probs
        return (probs.amax(1) >= threshold).to(probs.dtype)


@dataclass(frozen=True)
class KLThreshold:
    """1(KL(norm(G^T p) || p_m(x)) <= tau), CSST's rule (paper, Sec. 4, Eq. 9 [loss:CSST-KL]).

    For a diagonal gain and hard labels it is the confidence threshold exp(-tau) (paper, appendix "diagonal Gain
    Matrix", Eq. 24).

    Args:
        tau: largest divergence that is used.
    """

    tau: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise InputError(f"tau must be a finite number >= 0; found {self.tau}")

    def __call__(self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor, scale: Tensor | None = None) -> Tensor:
        if gain.is_diagonal and not target.is_floating_point():
            # The same condition without the rounding of the logarithm, so that exact ties agree with `Confidence`.
            threshold = math.exp(-self.tau) if scale is None else math.exp(-self.tau) * scale
            return (probs.gather(1, target[:, None]).squeeze(1) >= threshold).to(probs.dtype)
        limit = self.tau if scale is None else self.tau - scale.log()
        return (kl_to_optimal(target, probs, gain) <= limit).to(probs.dtype)


@dataclass(frozen=True)
class Either:
    """The larger of the weights of two selectors: a pseudo-label is used if either trusts it.

    A gain that lifts rare classes lowers the softmax of frequent ones: KL <= tau then rejects labels of frequent
    classes however certain the class probabilities behind the softmax are. A threshold on these probabilities rejects
    labels of rare classes instead. `csst-balanced` uses what either accepts.

    Args:
        first: one selector.
        second: the other.
    """

    first: Threshold
    second: Threshold

    def __call__(self, target: Tensor, probs: Tensor, gain: Gain, index: Tensor, scale: Tensor | None = None) -> Tensor:
        weights = [select(target, probs, gain, index, scale) for select in (self.first, self.second)]
        return torch.maximum(*weights)
