"""The class shares of unlabeled examples, estimated from a model's scores.

A model trained for a metric is not calibrated, so its scores are first calibrated on validation with one temperature
and one bias per class (Alexandari, Kundaje and Shrikumar, 2020), then EM finds the class shares that explain the
unlabeled examples best (Saerens, Latinne and Decaestecker, 2002).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def estimate_prior(unlabeled: Tensor, validation: Tensor, labels: Tensor) -> Tensor:
    """The class prior behind unlabeled logits (N, K), given validation logits and labels."""
    classes = validation.shape[1]
    temperature, bias = calibration(validation, labels)
    prior = torch.bincount(labels, minlength=classes).double() / len(labels)
    return em(torch.softmax(temperature * unlabeled.double() + bias, 1), prior)


def em(posterior: Tensor, prior: Tensor, rounds: int = 2000) -> Tensor:
    """The prior q of examples whose posterior is known under another prior.

    w_ij ∝ (q_j / prior_j) p_j(x_i);   q_j <- mean_i w_ij
    """
    ratio, estimate = posterior / prior, prior
    for _ in range(rounds):
        weights = ratio * estimate
        moved = (weights / weights.sum(1, keepdim=True)).mean(0)
        if float((moved - estimate).abs().max()) < 1e-9:
            return moved
        estimate = moved
    return estimate


def calibration(logits: Tensor, labels: Tensor, ridge: float = 1e-2) -> tuple[Tensor, Tensor]:
    """The temperature and the biases that make softmax(temperature · s + bias) fit the labels, kept small."""
    scores = logits.double()
    scale = scores.std().clamp(min=1e-12)
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(scores.shape[1], dtype=torch.float64, requires_grad=True)
    fit = torch.optim.LBFGS([log_temperature, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        fit.zero_grad()
        value = F.cross_entropy(log_temperature.exp() * scores / scale + bias, labels)
        value = value + ridge * (bias.square().mean() + log_temperature.square())
        value.backward()
        return value

    fit.step(loss)
    return (log_temperature.exp() / scale).detach(), bias.detach()
