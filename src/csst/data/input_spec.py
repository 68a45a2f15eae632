"""What a fitted model takes as input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from csst.data.task import Examples


@dataclass(frozen=True)
class InputSpec:
    """What a fitted model takes.

    Args:
        kind: array, image or text.
        shape: of one input, after the encoder; () for texts.
        preprocessing: how raw examples become inputs, in words; derived from kind and shape if empty.
        embed: turns raw examples into vectors, where a frozen encoder does.
        is_embedded: whether inputs are embeddings, whoever makes them.
    """

    kind: str
    shape: tuple[int, ...]
    preprocessing: str = ""
    embed: Callable[[Examples], Examples] | None = None
    is_embedded: bool = False
