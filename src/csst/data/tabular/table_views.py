"""Views of table rows and of embeddings.

The weak view adds small noise to the numbers. The strong view of a table is SCARF's corruption (Bahri et al., 2022),
which suits numbers and categories: some cells are replaced by values of the same column in random training rows (its
empirical marginal), others are dropped. The strong view of embeddings is dropout, noise, and a step toward a near
neighbor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from csst.data.examples import as_examples
from csst.data.tabular.tables import compute_moments

#: noise in weak views, in standard deviations of each feature
WEAK_NOISE = 0.02
#: rows from which the strong view of a table draws values, at most
POOL = 10_000
#: rows among which the strong view of embeddings finds neighbors, at most
NEIGHBORS = 2_000
#: numbers in these rows, at most
POOL_CELLS = 20_000_000


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise of `size` standard deviations of each feature; `scale` is 0 for categories."""

    scale: Tensor
    size: float

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(batch.shape, generator=generator).to(batch.device)
        return batch + self.size * self.scale.to(batch.device) * noise


@dataclass(frozen=True, eq=False)
class ScarfCorruption:
    """Replaces a fraction of the cells by values of the same column in random rows of the pool; noise on the others.

    A further fraction is dropped, that is set to `empty`: the mean of a column of numbers, or -1 for categories.
    """

    pool: Tensor
    scale: Tensor
    empty: Tensor
    fraction: float = 0.3
    noise: float = 0.05
    drop: float = 0.1

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        donors = torch.randint(len(self.pool), batch.shape, generator=generator)
        chance = torch.rand(batch.shape, generator=generator)
        noisy_rows = Noise(self.scale, self.noise)(batch, generator)
        values = torch.where(chance < self.fraction, self.pool.gather(0, donors), noisy_rows)
        return torch.where(chance > 1 - self.drop, self.empty.expand_as(batch), values)


@dataclass(frozen=True, eq=False)
class NeighborMix:
    """For embeddings: a step of up to `mix` toward a near neighbor, noise, and some features set to their mean.

    Neighbors are the nearest of `pool`, a sample of the training embeddings, by Euclidean distance.
    """

    pool: Tensor
    mean: Tensor
    scale: Tensor
    drop: float = 0.2
    noise: float = 0.1
    mix: float = 0.3
    near: int = 5

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        if self.mix and len(self.pool) > self.near:
            # The nearest row of the pool is often the example itself, so it is left out.
            candidates = torch.cdist(batch, self.pool).topk(self.near + 1, largest=False).indices[:, 1:]
            choices = torch.randint(self.near, (len(batch), 1), generator=generator)
            neighbors = self.pool[candidates.gather(1, choices).squeeze(1)]
            batch = torch.lerp(batch, neighbors, self.mix * torch.rand((len(batch), 1), generator=generator))
        batch = Noise(self.scale, self.noise)(batch, generator)
        is_dropped = torch.rand(batch.shape, generator=generator) < self.drop
        return torch.where(is_dropped, self.mean.expand_as(batch), batch)


def make_table_views(
    rows: Any, sizes: Sequence[int], kind: Literal["table", "embedding"]
) -> tuple[Noise, NeighborMix | ScarfCorruption]:
    """Return the weak and the strong view of embeddings, or of a table of numbers and categories.

    Args:
        rows: rows by which columns are measured, (N, D), an array or a sparse matrix.
        sizes: number of categories of each column, 0 for numbers.
        kind: kind of the rows.
    """
    size = min(NEIGHBORS if kind == "embedding" else POOL, max(1, POOL_CELLS // rows.shape[1]))
    sample = np.random.default_rng(0).permutation(rows.shape[0])[:size]
    pool = as_examples(rows[np.sort(sample)])[torch.arange(len(sample))]
    mean, std = (torch.from_numpy(values.astype(np.float32)) for values in compute_moments(rows))
    is_category = torch.tensor(sizes) > 0
    scale = torch.where(is_category, torch.zeros(()), std)
    if kind == "embedding" and not is_category.any():  # there is nothing between two categories
        return Noise(scale, WEAK_NOISE), NeighborMix(pool, mean, scale)
    return Noise(scale, WEAK_NOISE), ScarfCorruption(pool, scale, torch.where(is_category, -torch.ones(()), mean))


@dataclass(frozen=True, eq=False)
class Corrupt:
    """Noise, then a fraction of the features taken from another example of the batch (their empirical marginals)."""

    scale: Tensor
    size: float
    fraction: float

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        values = Noise(self.scale, self.size)(batch, generator)
        donors = values[torch.randperm(len(batch), generator=generator).to(batch.device)]
        is_swapped = torch.rand(batch.shape, generator=generator) < self.fraction
        return torch.where(is_swapped.to(batch.device), donors, values)
