"""Networks for tables: numbers standardized, categories one-hot, then hidden layers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


def usable_deviation(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """The deviation of every column, 1 where it is below the resolution of float32: rounding, not information."""
    return np.where(std > np.maximum(1e-6 * np.abs(mean), 1e-12), std, 1.0)


class TableInput(nn.Module):
    """Rows of a table → features: numbers standardized, categories one-hot (none of them for -1)."""

    mean: Tensor
    std: Tensor

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.numbers = [at for at, size in enumerate(sizes) if not size]
        self.categories = [at for at, size in enumerate(sizes) if size]
        self.register_buffer("mean", torch.zeros(len(self.numbers)))
        self.register_buffer("std", torch.ones(len(self.numbers)))

    @property
    def width(self) -> int:
        return len(self.numbers) + sum(self.sizes)

    def fit(self, mean: np.ndarray, std: np.ndarray) -> TableInput:
        """Take the statistics of all columns; a constant column keeps std 1."""
        self.mean = torch.as_tensor(mean[self.numbers], dtype=torch.float32)
        self.std = torch.as_tensor(usable_deviation(mean, std)[self.numbers], dtype=torch.float32)
        return self

    def forward(self, x: Tensor) -> Tensor:
        if not self.categories:
            return (x - self.mean) / self.std
        parts = [(x[:, self.numbers] - self.mean) / self.std] if self.numbers else []
        for at in self.categories:
            codes = x[:, at].round().long()[:, None]
            parts.append((codes == torch.arange(self.sizes[at], device=x.device)).to(x.dtype))
        return torch.cat(parts, 1)


def hidden_layers(width: int, hidden: int, depth: int, classes: int) -> list[nn.Module]:
    """`depth` hidden layers of `hidden` ReLUs on `width` features, and logits of the classes; depth 0 is linear."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return [*layers, nn.Linear(width, classes)]


def table_network(
    sizes: list[int], moments: tuple[np.ndarray, np.ndarray], hidden: int, depth: int, classes: int, seed: int
) -> nn.Module:
    """An untrained network for the rows of a table.

    Args:
        sizes: number of categories of every column, 0 for numbers.
        moments: mean and deviation of every column.
        hidden: width of the hidden layers.
        depth: how many there are; 0 is linear.
        classes: how many outputs.
        seed: of the weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first = TableInput(sizes).fit(*moments)
        return nn.Sequential(first, *hidden_layers(first.width, hidden, depth, classes))
