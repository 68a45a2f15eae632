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


@dataclass(frozen=True)
class ShiftAndErase:
    """For tiny single-channel pictures (B, H, W): a shift of up to `pixels`, noise, and a square of zeros."""

    pixels: int
    noise: float = 0.0
    erase: int = 0

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        count, height, width = batch.shape
        across = torch.arange(width)
        down = torch.arange(height)
        low = -self.pixels
        high = self.pixels + 1
        rows = down + torch.randint(low, high, (count, 1), generator=generator)
        columns = across + torch.randint(low, high, (count, 1), generator=generator)
        is_inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        places = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
        pictures = batch.reshape(count, -1).gather(1, places.reshape(count, -1).to(batch.device)).reshape(batch.shape)
        pictures = pictures * is_inside.to(batch)
        if self.noise:
            pictures = pictures + self.noise * torch.randn(batch.shape, generator=generator).to(batch.device)
        if self.erase:
            top = torch.randint(0, height - self.erase + 1, (count, 1), generator=generator)
            start = torch.randint(0, width - self.erase + 1, (count, 1), generator=generator)
            in_rows = ((down >= top) & (down < top + self.erase))[:, :, None]
            in_columns = ((across >= start) & (across < start + self.erase))[:, None, :]
            pictures = pictures.masked_fill((in_rows & in_columns).to(batch.device), 0)
        return pictures
