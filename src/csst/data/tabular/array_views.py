"""Views of plain feature vectors: noise, and features taken from another example."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Noise:
    """Gaussian noise of `size` standard deviations of each feature."""

    scale: Tensor
    size: float

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(batch.shape, generator=generator).to(batch.device)
        return batch + self.size * self.scale.to(batch.device) * noise


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
