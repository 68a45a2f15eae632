"""The interface of learners, and the standardization of columns that they share."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from csst.data.tabular.tables import is_sparse
from csst.models.stored import StoredModule
from csst.models.table import TableInput

#: probabilities of a forest or a scikit-learn classifier below this count as this: few trees say 0 too easily
SMALLEST_PROBABILITY = 1e-4
#: rows scored at a time
CHUNK = 20_000


class FittedLearner(StoredModule):
    """A learner that has learned: a module from rows (N, D) to log-probabilities of all classes (N, K).

    A subclass declares its tensors and modules as a dataclass does, see `StoredModule`, and has a `forward`. It is then
    stored and exported like csst's own.

    Args:
        **parts: all declared attributes by name.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Compute log-probabilities.

        Args:
            x: rows, (N, D); sparse (CSR) if the user's rows are.

        Returns:
            Log-probabilities, (N, K).
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(x)")

    @torch.no_grad()
    def log_probs(self, rows: Any) -> np.ndarray:
        """Compute log-probabilities of an array or a sparse matrix, some rows at a time.

        Args:
            rows: rows, (N, D).

        Returns:
            Log-probabilities, (N, K).
        """
        pieces = []
        for start in range(0, max(1, rows.shape[0]), CHUNK):
            pieces.append(self(as_tensor(rows[start : start + CHUNK])).numpy())
        return np.concatenate(pieces)


@runtime_checkable
class Learner(Protocol):
    """Learns classes from rows.

    A learner must not correct for the class prior: it learns from unweighted rows, and the class prior of its labels is
    subtracted from its log-probabilities later.
    """

    @property
    def name(self) -> str:
        """Name in summaries and tables."""
        ...

    def fit(self, rows: Any, labels: np.ndarray, seed: int = 0) -> FittedLearner:
        """Learn from labeled rows.

        Args:
            rows: rows, (n, D), an array or a sparse matrix.
            labels: classes 0 .. K-1 of the rows, each at least once, (n,).
            seed: seed of random numbers.

        Returns:
            The fitted learner.
        """
        ...


@dataclass(frozen=True)
class Rows:
    """The standardization of the columns of a table, measured without labels.

    Args:
        mean: mean of each column, (D,).
        std: deviation of each column, (D,); 1 for a constant column.
        sizes: number of categories of each column, 0 for numbers.
    """

    mean: np.ndarray
    std: np.ndarray
    sizes: tuple[int, ...]

    def as_input(self, rows: Any) -> TableInput:
        """Return the first layer of a model fitted on these rows: sparse rows are scaled but not centered.

        Dense rows, sparse rows and exports then get the same scores from the model.
        """
        is_number = np.array(self.sizes) == 0
        mean = self.mean[is_number]
        return TableInput(
            [int(size) for size in self.sizes],
            (np.zeros_like(mean) if is_sparse(rows) else mean).astype(np.float64),
            self.std[is_number].astype(np.float64),
        )

    @property
    def with_common_scale(self) -> Rows:
        """The standardization with one deviation for all columns of numbers, so that columns that vary most count most.

        Columns of embeddings, pixels or word frequencies share their unit; columns that vary little are mostly noise.
        """
        is_number = np.array([not size for size in self.sizes])
        varies = is_number & (self.std != 1)  # constant columns do not count
        deviation = float(np.sqrt(np.mean(self.std[varies] ** 2))) if varies.any() else 1.0
        return replace(self, std=np.where(is_number, deviation, self.std))


def as_tensor(rows: Any) -> Tensor:
    """Return rows as a tensor: an array as it is, a sparse matrix in CSR layout."""
    if not is_sparse(rows):
        array = np.ascontiguousarray(rows)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    matrix = rows.tocsr()
    starts, columns, values = (
        torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(starts, columns, values, matrix.shape, check_invariants=False)


def as_array(tensor: Tensor) -> Any:
    """Return a tensor as an array, or as a sparse matrix if its layout is CSR."""
    if tensor.layout is not torch.sparse_csr:
        return tensor.numpy()
    from scipy.sparse import csr_matrix

    parts = (tensor.values(), tensor.col_indices(), tensor.crow_indices())
    return csr_matrix(tuple(part.numpy() for part in parts), shape=tuple(tensor.shape))


@torch.no_grad()
def apply(module: Any, rows: Any) -> Any:
    """Return a module's outputs on an array or a sparse matrix, as an array or a sparse matrix."""
    return as_array(module(as_tensor(rows)))
