"""Examples that are fetched by index (tensors, sparse rows, and parts of any others), and the inputs of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from csst.data.tabular.tables import is_sparse


class Examples(Protocol):
    """Inputs that can be fetched by index; a tensor is one.

    Examples may also have `part(index)`, which returns some of them, and `prefetch(index)`, which begins to read them.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor) -> Any: ...


class SparseRows:
    """A sparse matrix as examples: rows become dense only in the batches that use them."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix.tocsr()

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix[indices.numpy()].toarray().astype(np.float32, copy=False))

    def part(self, index: np.ndarray) -> SparseRows:
        """Return the rows at these indices."""
        return SparseRows(self.matrix[index])

    def tocsr(self) -> Any:
        """Return the matrix, as sparse matrices themselves do."""
        return self.matrix


class Selection:
    """Some of the examples, fetched when they are used."""

    def __init__(self, examples: Examples, index: Tensor) -> None:
        self.examples = examples
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.examples[self.index[indices]]

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read examples in the background, if their source can."""
        if hasattr(self.examples, "prefetch"):
            self.examples.prefetch(self.index[indices])


def choose(examples: Examples, index: np.ndarray) -> Examples:
    """Return the examples at these indices; examples that cannot be cut are fetched when they are used."""
    if isinstance(examples, Tensor):
        return examples[torch.from_numpy(index)]
    if hasattr(examples, "part"):
        part: Examples = examples.part(index)
        return part
    return Selection(examples, torch.from_numpy(index))


def as_examples(rows: Any) -> Examples:
    """Return dense rows as a tensor, float32 unless they are pixels (uint8), and sparse rows as `SparseRows`."""
    if is_sparse(rows):
        return SparseRows(rows)
    kind = np.uint8 if rows.dtype == np.uint8 else np.float32
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=kind))


def as_rows(inputs: Any) -> Any:
    """Return examples as rows of numbers, (N, D): float32, or a sparse matrix; arrays are returned unchanged."""
    if isinstance(inputs, np.ndarray):
        return inputs
    if is_sparse(inputs):
        return inputs.tocsr()
    values = inputs if isinstance(inputs, Tensor) else inputs[torch.arange(len(inputs))]
    array = np.asarray(values, dtype=np.float32)
    return array.reshape(len(inputs), int(np.prod(array.shape[1:])))  # -1 would fail for zero rows


def join_examples(examples: Examples, other: Examples) -> Examples:
    """Return examples followed by other examples; a tensor if both are, sparse if both are."""
    if isinstance(examples, Tensor) and isinstance(other, Tensor):
        return torch.cat([examples, other])
    if is_sparse(examples) and is_sparse(other):
        from scipy.sparse import vstack

        return SparseRows(vstack([as_rows(examples), as_rows(other)], format="csr"))
    return Joined(examples, other)


class Joined:
    """Examples followed by other examples, fetched when they are used."""

    def __init__(self, examples: Examples, other: Examples) -> None:
        self.examples = examples
        self.other = other

    def __len__(self) -> int:
        return len(self.examples) + len(self.other)

    def __getitem__(self, indices: Tensor) -> Any:
        is_other = indices >= len(self.examples)
        order = torch.cat([(~is_other).nonzero(), is_other.nonzero()]).flatten().argsort()
        pieces = [examples[index] for examples, index in self._split(indices)]
        if all(isinstance(piece, Tensor) for piece in pieces):
            return torch.cat(pieces)[order]
        rows = [row for piece in pieces for row in piece]
        return [rows[place] for place in order.tolist()]

    def prefetch(self, indices: Tensor) -> None:
        """Begin to read examples in the background, if their source can."""
        for examples, index in self._split(indices):
            if hasattr(examples, "prefetch"):
                examples.prefetch(index)

    def _split(self, indices: Tensor) -> list[tuple[Examples, Tensor]]:
        """Split indices by source, skipping sources without any."""
        is_other = indices >= len(self.examples)
        pairs = [(self.examples, indices[~is_other]), (self.other, indices[is_other] - len(self.examples))]
        return [(examples, index) for examples, index in pairs if len(index)]


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
