"""Losses that are calibrated for a gain matrix.

    cost_sensitive_loss   -sum_i (M^T p)_i log softmax(s - log D)_i      the logit-adjusted form, the default
    weighted_consistency  -sum_i (G^T p)_i log softmax(s)_i              the plain form
    kl_to_optimal         KL(norm(G^T p) || p_m)                          compared with the threshold tau

Both losses have the same optimum, softmax(s) = norm(G^T p). Multiplying G by a constant changes the second and not
the first. All take raw logits s or the raw softmax p_m = softmax(s); all compute in float32, or in the logits'
dtype if that is wider; all return one value per example, with a graph through the logits only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain, check_target


class BrokenLoss(InputError):
    """A loss that is not finite.

    Args:
        what: the sentence without advice, for callers that give better advice.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: lower the learning rate or clip gradients")
        self.what = what


def cost_sensitive_loss(logits: Tensor, target: Tensor, gain: Gain) -> Tensor:
    """Return the hybrid loss (paper, Sec. 2.2, Eq. 5 [loss:hyb] and App. I.1 [eq:lgt-adj-wt-cons]).

        -sum_i (M^T p)_i log softmax(s - log D)_i,      G = M D

    Equals cross-entropy for G = I, and CE(s + log pi) for logit adjustment, G = diag(1/(K pi)). Unchanged by G -> c G.

    Args:
        logits: s, raw scores, (B, K).
        target: class indices (B,) or distributions p (B, K).
        gain: G.

    Returns:
        One loss per example, (B,).
    """
    scores, target = _checked(logits, target, gain)
    scores = scores - gain.cached_as("log_diagonal", scores)
    if target.is_floating_point():
        weights = target.to(scores.dtype)
        if not gain.is_diagonal:
            weights = gain.transpose_apply(target, gain.cached_as("mixing", scores))
        loss = -(weights * F.log_softmax(scores, 1)).sum(1)
    elif gain.is_diagonal:
        loss = F.cross_entropy(scores, target, reduction="none")
    else:
        loss = -(gain.rows_of("mixing", target, scores) * F.log_softmax(scores, 1)).sum(1)
    return _finite(loss, logits)


def weighted_consistency(logits: Tensor, target: Tensor, gain: Gain) -> Tensor:
    """Return the weighted consistency regularizer (paper, Sec. 4, Eq. 8 [eq:wt-consistency-reg]).

        -sum_i (G^T p)_i log softmax(s)_i,      minimal at softmax(s) = norm(G^T p) (paper, Sec. 4 [prop:kl-weighted])

    Args:
        logits: s, raw scores, (B, K).
        target: class indices (B,) or distributions p (B, K).
        gain: G.

    Returns:
        One loss per example, (B,).
    """
    scores, target = _checked(logits, target, gain)
    if target.is_floating_point():
        loss = -(gain.transpose_apply(target, gain.cached_as("entries", scores)) * F.log_softmax(scores, 1)).sum(1)
    elif gain.is_diagonal:
        loss = gain.rows_of("entries", target, scores) * F.cross_entropy(scores, target, reduction="none")
    else:
        loss = -(gain.rows_of("entries", target, scores) * F.log_softmax(scores, 1)).sum(1)
    return _finite(loss, logits)


@torch.no_grad()
def kl_to_optimal(target: Tensor, probs: Tensor, gain: Gain) -> Tensor:
    """Return how far a softmax is from the optimal one for its target (paper, Sec. 4, Eq. 9 [loss:CSST-KL]).

        KL(norm(G^T p) || p_m)

    0 log 0 = 0 and nothing is added to p_m: a needed class at probability 0 gives infinity. For a diagonal G and hard
    labels it is -log p_m[y], so KL <= tau is the confidence threshold exp(-tau) (paper, App. L).

    Args:
        target: class indices (B,) or distributions p (B, K).
        probs: p_m, the raw softmax, (B, K).
        gain: G.

    Returns:
        One divergence per example, (B,), without a graph.
    """
    probs, target = _checked(probs, target, gain)
    if not target.is_floating_point() and gain.is_diagonal:
        return -probs.gather(1, target[:, None]).squeeze(1).log()
    optimal = gain.optimal(target, probs)
    if target.is_floating_point():
        entropy = -torch.special.xlogy(optimal, optimal).sum(1)
    else:
        entropy = gain.rows_of("entropy", target, probs)
    return (cross_entropy(optimal, probs) - entropy).clamp(min=0)


def cross_entropy(target: Tensor, probs: Tensor) -> Tensor:
    """Return -sum_i target_i log probs_i per example, with 0 log 0 = 0."""
    # On the CPU xlogy costs three times a logarithm, and it is only needed where a probability is exactly 0.
    if probs.device.type == "cpu" and probs.numel() and float(probs.amin()) > 0:
        return -probs.log().mul_(target).sum(1)
    return -torch.special.xlogy(target, probs).sum(1)


def _checked(scores: Tensor, target: Tensor, gain: Gain) -> tuple[Tensor, Tensor]:
    """Return scores (B, K) in the computing dtype and a checked target of the same length."""
    if scores.ndim != 2 or scores.shape[1] != gain.classes or not scores.is_floating_point():
        raise InputError(
            f"scores must have shape (B, {gain.classes}) for a gain of {gain.classes} classes; "
            f"found {tuple(scores.shape)} of {scores.dtype}"
        )
    target = check_target(target, gain.classes)
    if len(target) != len(scores):
        raise InputError(
            f"there must be one target per example; found {len(target)} targets for {len(scores)} examples"
        )
    return scores.to(torch.promote_types(scores.dtype, torch.float32)), target


def _finite(loss: Tensor, logits: Tensor) -> Tensor:
    """Return the loss; on the CPU, raise an error that names a row where it is not finite (a GPU would stall)."""
    if loss.device.type == "cpu" and not torch.isfinite(loss.detach()).all():
        rows = (~torch.isfinite(loss.detach())).nonzero().flatten().tolist()
        are_finite = bool(torch.isfinite(logits.detach()).all())
        why = "the logits or gains there overflow" if are_finite else "the logits there are not finite"
        places = f"{len(rows)} of {len(loss)} examples of the batch, the first at place {rows[0]}"
        raise BrokenLoss(f"the loss is not finite for {places} ({why})")
    return loss
