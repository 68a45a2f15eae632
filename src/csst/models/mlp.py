"""Small networks for feature vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.models.table import hidden_layers, usable_deviation


class Standardize(nn.Module):
    """(x - mean) / std with fixed statistics, kept inside the model so that predictions need nothing else."""

    mean: Tensor
    std: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    def fit(self, inputs: Tensor) -> Standardize:
        """Take the statistics of these inputs; a constant feature keeps std 1."""
        inputs = inputs.float()
        std = inputs.std(0)
        self.mean = inputs.mean(0)
        self.std = torch.where(std > 1e-12, std, torch.ones_like(std))
        return self

    def use_moments(self, mean: np.ndarray, std: np.ndarray) -> Standardize:
        """Take these statistics of every feature; one that hardly varies keeps std 1."""
        self.mean = torch.as_tensor(mean, dtype=torch.float32)
        self.std = torch.as_tensor(usable_deviation(mean, std), dtype=torch.float32)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.std


class Projected(nn.Module):
    """A head on principal components, of vectors as the encoder gives them: head((x - mean) basis).

    Vectors of a task that was projected beforehand pass to the head as they are.

    Args:
        head: takes vectors (B, components).
        mean: of the encoder's vectors, (D,).
        basis: the directions that are kept, (D, components), fewer than D.
    """

    mean: Tensor
    basis: Tensor

    def __init__(self, head: nn.Module, mean: Tensor, basis: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("mean", mean)
        self.register_buffer("basis", basis)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x if x.shape[1] == self.basis.shape[1] else (x - self.mean) @ self.basis)


def mlp(inputs: tuple[int, ...], classes: int, hidden: int = 128, depth: int = 2) -> nn.Sequential:
    """Standardize → flatten → `depth` hidden layers of `hidden` ReLUs → logits; depth 0 is a linear classifier."""
    width = int(torch.Size(inputs).numel())
    return nn.Sequential(Standardize(inputs), nn.Flatten(), *hidden_layers(width, hidden, depth, classes))
