"""The inputs of a fitted model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from csst.data.examples import Examples


@dataclass(frozen=True)
class InputSpec:
    """The inputs of a fitted model.

    Args:
        kind: array, image or text.
        shape: shape of one input, after the encoder; () for texts.
        preprocessing: how raw examples become inputs, as a phrase; derived from kind and shape if empty.
        embed: function from raw examples to vectors, if a frozen encoder is part of the model.
        is_embedded: whether inputs are embeddings, made by the model or by the user.
    """

    kind: str
    shape: tuple[int, ...]
    preprocessing: str = ""
    embed: Callable[[Examples], Examples] | None = None
    is_embedded: bool = False
