"""Networks for rows of numbers, and for tables: numbers standardized, categories one-hot, then hidden layers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from csst.models.stored import StoredModule


def choose_deviation(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
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
        self.std = torch.as_tensor(choose_deviation(mean, std)[self.numbers], dtype=self.std.dtype)
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


def make_layers(width: int, hidden: int, depth: int, classes: int) -> list[nn.Module]:
    """Return `depth` hidden layers of `hidden` ReLUs on `width` features, and the output layer; depth 0 is linear."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return [*layers, nn.Linear(width, classes)]


def make_table_network(
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
        return nn.Sequential(table, *make_layers(table.width, hidden, depth, classes))


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
        self.std = torch.as_tensor(choose_deviation(mean, std), dtype=torch.float32)
        return self

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.std


class Projected(nn.Module):
    """A head on the principal components of an encoder's vectors: head((x - mean) basis).

    Vectors of a task that was projected beforehand pass to the head as they are.

    Args:
        head: network of vectors (B, components).
        mean: mean of the encoder's vectors, (D,).
        basis: the principal directions, (D, components), fewer than D.
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
    """Return Standardize → flatten → `depth` hidden layers of `hidden` ReLUs → logits; depth 0 is linear."""
    width = int(torch.Size(inputs).numel())
    return nn.Sequential(Standardize(inputs), nn.Flatten(), *make_layers(width, hidden, depth, classes))
