"""Networks for tables: numbers standardized, categories one-hot, then hidden layers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.models.stored import StoredModule


def usable_deviation(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return the deviation of each column; 1 if it is below the resolution of float32, which is mere rounding."""
    return np.where(std > np.maximum(1e-6 * np.abs(mean), 1e-12), std, 1.0)


class TableInput(StoredModule):
    """Rows of a table → features: numbers standardized, categories one-hot (none of them for -1).

    The type of `mean` and `std` is that of the computation; features are float32. Sparse rows (CSR) stay sparse if no
    mean is subtracted and no column becomes indicators; otherwise they become dense.

    Args:
        sizes: number of categories of each column, 0 for numbers.
        mean: mean of each column of numbers.
        std: deviation of each column of numbers.
    """

    sizes: list[int]
    mean: Tensor
    std: Tensor

    def __init__(self, sizes: list[int], mean: Tensor | np.ndarray, std: Tensor | np.ndarray) -> None:
        super().__init__(sizes=sizes, mean=mean, std=std)
        self.numbers = [column for column, size in enumerate(sizes) if not size]
        self.categories = [column for column, size in enumerate(sizes) if size]
        if self.mean.shape != (len(self.numbers),) or self.std.shape != self.mean.shape:
            raise ValueError(f"{len(self.numbers)} columns of numbers need as many means and deviations")

    @classmethod
    def for_network(cls, sizes: list[int], mean: np.ndarray, std: np.ndarray) -> TableInput:
        """Return the input of a network, float32, from statistics of all columns; a constant column gets std 1."""
        count = sizes.count(0)
        return cls(sizes, torch.zeros(count), torch.ones(count)).use_moments(mean, std)

    def use_moments(self, mean: np.ndarray, std: np.ndarray) -> TableInput:
        """Take statistics of all columns; a column of numbers that hardly varies gets std 1."""
        self.mean = torch.as_tensor(mean[self.numbers], dtype=self.mean.dtype)
        self.std = torch.as_tensor(usable_deviation(mean, std)[self.numbers], dtype=self.std.dtype)
        return self

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.numbers) + sum(self.sizes)

    def forward(self, x: Tensor) -> Tensor:
        if x.layout is torch.sparse_csr:
            if not self.categories and not self.mean.any():
                return scale_sparse(x, 1 / self.std)
            x = x.to_dense()
        if not self.categories:
            return self.standardize(x)
        parts = [self.standardize(x[:, self.numbers])] if self.numbers else []
        for column in self.categories:
            codes = x[:, column].round().long()[:, None]
            parts.append((codes == torch.arange(self.sizes[column], device=x.device)).float())
        return torch.cat(parts, 1)

    def standardize(self, numbers: Tensor) -> Tensor:
        """Return (x - mean) / std, float32."""
        return ((numbers.to(self.mean.dtype) - self.mean) / self.std).float()


def scale_sparse(x: Tensor, factors: Tensor) -> Tensor:
    """Return sparse rows with each column multiplied by its factor, float32."""
    values = (x.values() * factors[x.col_indices()]).float()
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)


def hidden_layers(width: int, hidden: int, depth: int, classes: int) -> list[nn.Module]:
    """Return `depth` hidden layers of `hidden` ReLUs on `width` features, and the output layer; depth 0 is linear."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return [*layers, nn.Linear(width, classes)]


def table_network(
    sizes: list[int], moments: tuple[np.ndarray, np.ndarray], hidden: int, depth: int, classes: int, seed: int
) -> nn.Module:
    """Return an untrained network for the rows of a table.

    Args:
        sizes: number of categories of each column, 0 for numbers.
        moments: mean and deviation of each column.
        hidden: width of the hidden layers.
        depth: number of hidden layers; 0 is linear.
        classes: number of outputs.
        seed: seed of the weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        table = TableInput.for_network(sizes, *moments)
        return nn.Sequential(table, *hidden_layers(table.width, hidden, depth, classes))
