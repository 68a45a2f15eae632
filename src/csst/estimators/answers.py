"""What classifiers answer: the names of classes, and the value that stands for no answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from csst.errors import InputError


def choose_abstain_value(value: Any, classes: np.ndarray) -> Any:
    """Return the value that stands for no answer: what means unlabeled, unless another one is given.

    Args:
        value: a value that is no class; "auto" is -1 for integer classes and None otherwise.
        classes: the classes in order, (K,).

    Returns:
        The value.
    """
    if isinstance(value, str) and value == "auto":
        return -1 if classes.dtype.kind in "iu" else None
    if any(value == name for name in classes.tolist()):
        raise InputError(f"abstain_value stands for no answer and cannot be a class; found the class {value!r}")
    return value


def name_answers(decisions: np.ndarray, classes: np.ndarray, abstain_value: Any) -> np.ndarray:
    """Return the classes of decisions, and the value for no answer where a decision is K.

    Args:
        decisions: indices in 0 .. K, (N,).
        classes: the classes in order, (K,).
        abstain_value: see `choose_abstain_value`.

    Returns:
        (N,), of the kind of the classes if the value for no answer is of that kind, else of objects.
    """
    if not (decisions == len(classes)).any():
        return classes[decisions]
    fits = isinstance(abstain_value, int | np.integer) and classes.dtype.kind in "iu"
    names = np.append(classes, abstain_value) if fits else np.array([*classes.tolist(), abstain_value], dtype=object)
    return names[decisions]
