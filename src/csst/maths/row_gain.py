"""Gains that differ between the rows of a batch: a row of group a has the gain G_a."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from csst.maths.gain import Gain


class RowGain(Gain):
    """One of several gains for each row; losses and selectors take it as they take a `Gain`.

    Args:
        gains: the gains, of the same classes.
        rows: the place of each row's gain among them, (B,); -1 is the last.
    """

    def __init__(self, gains: Sequence[Gain], rows: Tensor) -> None:
        self.gains = tuple(gains)
        self.rows = rows
        self.entries = self.cached_as("entries", self.gains[0].entries)

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self.gains[0].classes

    @property
    def is_diagonal(self) -> bool:
        """Whether all gains are diagonal."""
        return all(gain.is_diagonal for gain in self.gains)

    def cached_as(self, name: str, like: Tensor) -> Tensor:
        """Return a property of the gain of each row.

        Args:
            name: name of the property: `mixing`, `log_diagonal`, ...
            like: a tensor with the wanted dtype and device, of any shape.

        Returns:
            The values, (B, K) or (B, K, K).
        """
        values = [self._read(gain, name, like) for gain in self.gains]
        return torch.stack(values)[self.rows.to(values[0].device)]

    def _read(self, gain: Gain, name: str, like: Tensor) -> Tensor:
        """Return a property of one gain; beside gains that are not diagonal, a diagonal one is a matrix, too."""
        if self.is_diagonal or not gain.is_diagonal or name not in ("entries", "scaled", "inverse"):
            return gain.cached_as(name, like)
        if name == "inverse":
            return torch.diag(1 / gain.cached_as("scaled", like))
        return torch.diag(gain.cached_as(name, like))

    def rows_of(self, name: str, target: Tensor, like: Tensor) -> Tensor:
        """Return the row of each label in a property of its gain.

        Args:
            name: name of the property.
            target: class indices, (B,).
            like: a tensor with the wanted dtype and device, of any shape.

        Returns:
            The entries (B,) or rows (B, K).
        """
        values = self.cached_as(name, like)
        return values[torch.arange(len(target), device=values.device), target]

    def transpose_apply(self, target: Tensor, entries: Tensor) -> Tensor:
        """Return G_a^T p of each row.

        Args:
            target: distributions p, (B, K).
            entries: (B, K) if all gains are diagonal, else (B, K, K).

        Returns:
            G_a^T p, (B, K).
        """
        target = target.to(entries.dtype)
        return target * entries if entries.ndim == 2 else (target[:, None, :] @ entries).squeeze(1)

    def weigh_classes(self, weights: Tensor) -> Gain:
        """Return diag(weights) G_a for each row.

        Args:
            weights: positive, (K,).

        Returns:
            The gains whose rows are weighed.
        """
        return RowGain([gain.weigh_classes(weights) for gain in self.gains], self.rows)
