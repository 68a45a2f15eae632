"""Hashes of examples, by which a model recognizes the rows it was fitted to; equal examples have equal hashes.

    h(x) = sum_j w_j bits(x_j)  mod 2^64,    w_j random odd numbers

Sparse and dense rows of the same numbers have the same hash, as zeros add nothing.
"""

from __future__ import annotations

import io
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from csst.data.row_order import draw_weights, sum_rows
from csst.data.tabular.tables import is_sparse
from csst.errors import InputError

#: cells hashed at a time
CELLS = 4_000_000
#: probability below which equal rows are not explained by chance
UNLIKELY = 1e-3


def hash_rows(rows: Any) -> np.ndarray:
    """Return a hash of every example.

    Args:
        rows: N examples: an array, a tensor or a sparse matrix of numbers, texts, or other examples fetched by index.

    Returns:
        (N,), uint64.
    """
    if is_sparse(rows):
        matrix = rows.tocsr().astype(np.float32)
        return sum_rows(matrix, _bits(matrix.data) * draw_weights(matrix.shape[1])[matrix.indices])
    if isinstance(rows, (np.ndarray, Tensor)):
        return _hash_array(np.asarray(rows))
    hashes = [_hash_batch(rows[torch.arange(k, min(k + 256, len(rows)))]) for k in range(0, len(rows), 256)]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])


def _hash_batch(batch: Any) -> np.ndarray:
    if isinstance(batch, (np.ndarray, Tensor)):
        return _hash_array(np.asarray(batch))
    return np.array([_hash_text(str(example)) for example in batch], dtype=np.uint64)


def _hash_text(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _hash_array(array: np.ndarray) -> np.ndarray:
    if not len(array):
        return np.zeros(0, dtype=np.uint64)
    table = array.reshape(len(array), -1)
    weights = draw_weights(table.shape[1])
    step = max(1, CELLS // max(1, table.shape[1]))
    return np.concatenate([_bits(table[k : k + step]) @ weights for k in range(0, len(table), step)])


def _bits(values: np.ndarray) -> np.ndarray:
    # Adding 0 makes -0 a 0, whose bits are 0.
    numbers = np.ascontiguousarray(values, dtype=np.float32) + np.float32(0)
    return numbers.view(np.uint32).astype(np.uint64)


def count_seen(hashes: np.ndarray, seen: np.ndarray) -> int:
    """Return how many rows are rows of the fit; 0 if chance explains the number.

    In a table of few distinct rows, new rows equal rows of the fit by chance, about as often as those equal each other.

    Args:
        hashes: hashes of new rows, (n,).
        seen: hashes of the rows of the fit, with repetitions, (N,).

    Returns:
        A number of rows.
    """
    if not len(seen):
        return 0
    count = int(np.isin(hashes, seen).sum())
    _, occurrences = np.unique(seen, return_counts=True)
    twin_fraction = float(occurrences[occurrences > 1].sum() / len(seen))
    chance_count = binom.isf(UNLIKELY, len(hashes), twin_fraction) if twin_fraction > 0 else 0
    return count if count > chance_count else 0


def pack_hashes(hashes: np.ndarray) -> bytes:
    """Return hashes of rows as an .npz file."""
    file = io.BytesIO()
    np.savez(file, rows=np.sort(hashes))
    return file.getvalue()


def read_hashes(path: Path) -> np.ndarray | None:
    """Read hashes of rows from a run's folder; None if it has none."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["rows"]
    except Exception as error:  # a damaged archive can make its reader raise anything
        raise InputError(f"{path} is damaged ({error}): restore it, or train the run again") from None
