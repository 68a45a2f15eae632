"""Views of table rows and of embeddings.

Weak: small noise on the numbers. Strong, of a table: SCARF's corruption, a fraction of the columns replaced by values
drawn from that column's own values in the training data (its empirical marginal), which suits numbers and categories
alike (Bahri et al., SCARF, 2022), and dropout. Strong, of embeddings: dropout, noise, and a step towards a near
neighbor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NumberNoise:
    """Gaussian noise of `size` standard deviations on the columns of numbers; `scale` is 0 for categories."""

    scale: Tensor
    size: float = 0.02

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        return batch + self.size * self.scale * torch.randn(batch.shape, generator=generator)


@dataclass(frozen=True, eq=False)
class ScarfCorruption:
    """A fraction of the cells replaced by that column's value in a random row of the pool; noise on the other numbers.

    Some cells more are dropped: set to `empty`, the mean of a column of numbers and -1, no category, for the others.
    """

    pool: Tensor
    scale: Tensor
    empty: Tensor
    fraction: float = 0.3
    noise: float = 0.05
    drop: float = 0.1

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        donors = torch.randint(len(self.pool), batch.shape, generator=generator)
        drawn, chance = self.pool.gather(0, donors), torch.rand(batch.shape, generator=generator)
        changed = torch.where(chance < self.fraction, drawn, NumberNoise(self.scale, self.noise)(batch, generator))
        return torch.where(chance > 1 - self.drop, self.empty.expand_as(batch), changed)


@dataclass(frozen=True, eq=False)
class NeighborMix:
    """For embeddings: features dropped (set to their mean), noise, and a step of up to `mix` towards a near neighbor.

    Neighbors are found among `pool`, a sample of the training embeddings, by Euclidean distance, at every call.
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
            # The nearest of all is often the example itself, which would be no change: it is left out.
            nearest = torch.cdist(batch, self.pool).topk(self.near + 1, largest=False).indices[:, 1:]
            pick = torch.randint(self.near, (len(batch), 1), generator=generator)
            neighbor = self.pool[nearest.gather(1, pick).squeeze(1)]
            batch = torch.lerp(batch, neighbor, self.mix * torch.rand((len(batch), 1), generator=generator))
        batch = batch + self.noise * self.scale * torch.randn(batch.shape, generator=generator)
        dropped = torch.rand(batch.shape, generator=generator) < self.drop
        return torch.where(dropped, self.mean.expand_as(batch), batch)
