"""Views of plain feature vectors: noise, and features replaced by another example's."""

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
        noisy = Noise(self.scale, self.size)(batch, generator)
        donor = noisy[torch.randperm(len(batch), generator=generator).to(batch.device)]
        swap = torch.rand(batch.shape, generator=generator) < self.fraction
        return torch.where(swap.to(batch.device), donor, noisy)


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
        low, high = -self.pixels, self.pixels + 1
        rows = down + torch.randint(low, high, (count, 1), generator=generator)
        columns = across + torch.randint(low, high, (count, 1), generator=generator)
        inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        pick = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
        out = batch.reshape(count, -1).gather(1, pick.reshape(count, -1).to(batch.device)).reshape(batch.shape)
        out = out * inside.to(batch)
        if self.noise:
            out = out + self.noise * torch.randn(batch.shape, generator=generator).to(batch.device)
        if self.erase:
            top = torch.randint(0, height - self.erase + 1, (count, 1), generator=generator)
            left = torch.randint(0, width - self.erase + 1, (count, 1), generator=generator)
            tall = ((down >= top) & (down < top + self.erase))[:, :, None]
            wide = ((across >= left) & (across < left + self.erase))[:, None, :]
            out = out.masked_fill((tall & wide).to(batch.device), 0)
        return out
