"""Import a user's objective, method, model or dataset, named `package.module:name`."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from csst.errors import InputError, nearest


def load(reference: str, what: str) -> Any:
    """Import `package.module:name`, also from the working directory, as `python -m` does."""
    module_name, _, name = reference.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:  # the latter two for names such as ..a and .
        raise InputError(
            f"{what} was asked for as {reference!r}, but {module_name!r} cannot be imported: {error}"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = [word for word in vars(module) if not word.startswith("_")]
        raise InputError(f"module {module_name!r} has no {name!r}{nearest(name, public)}") from None
