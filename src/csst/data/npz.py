"""`.npz` files of plain arrays; pickled objects, which could run code, are never read."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csst.errors import InputError, nearest


def pack_npz(arrays: Mapping[str, Any], compresses: bool = False) -> bytes:
    """Return arrays as the content of an `.npz` file; compressing takes long for large ones."""
    file = io.BytesIO()
    save = np.savez_compressed if compresses else np.savez
    save(file, **arrays)
    return file.getvalue()


def read_npz(path: str | Path, keys: Sequence[str], required_names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file; raise an error for unknown or missing names and for pickled objects."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {str(path)!r}")
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path} holds a single array; an .npz file with {', '.join(required_names)} is needed")
        with file:
            strangers = [key for key in file.files if key not in keys]
            if strangers:
                hint = nearest(strangers[0], keys) or f"; known: {', '.join(keys)}"
                raise InputError(f"{path} has unknown arrays {strangers}{hint}")
            arrays = {key: file[key] for key in file.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive can make its reader raise anything
        reason = explain_unreadable(error)
        raise InputError(f"{path} cannot be read as an .npz file of plain arrays: {reason}") from None
    lacks = [key for key in required_names if key not in arrays]
    if lacks:
        raise InputError(f"{path} lacks {', '.join(lacks)}; found {', '.join(arrays) or 'nothing'}")
    return arrays


def explain_unreadable(error: Exception) -> str:
    """Return why NumPy cannot read a file, without its advice to allow pickles, which would run code from the file."""
    if "pickle" in str(error):
        return "it is of another format, or holds pickled objects, which are never read"
    return str(error)
