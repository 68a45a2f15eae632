"""Names of learners, and which of them are the default for which rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csst.errors import InputError, nearest
from csst.learners.forest import Forest
from csst.learners.linear import PENALTIES, Linear
from csst.learners.protocol import Learner, Rows
from csst.learners.wrapped import wrap

#: names a learner can be asked for by; the network trains by the paper's method
LEARNERS = ("auto", "linear", "forest", "network")
#: dense rows with more columns than this are taken for embeddings
WIDE = 256


def default_members(table: Rows, dense: bool, embedded: bool) -> tuple[str, ...]:
    """linear and forest for tables, linear alone for embeddings, texts and other wide rows."""
    return ("linear",) if embedded or not dense or len(table.sizes) > WIDE else ("linear", "forest")


def read_learner(learner: Any, table: Rows, dense: bool, embedded: bool) -> list[Sequence[Learner]]:
    """The members of a portfolio, each as the variants among which the labels choose: a name, a classifier, or a list.

    Args:
        learner: "auto", "linear", "forest", a scikit-learn classifier with `predict_proba`, or a list of these.
        table: what is known about the columns.
        dense: whether rows are dense.
        embedded: whether rows are embeddings.
    """
    members = learner if isinstance(learner, (list, tuple)) else [learner]
    if not members:
        raise InputError("learner is an empty list: name at least one")
    read: list[Sequence[Learner]] = []
    for one in members:
        if not isinstance(one, str):
            read.append([wrap(one)])
        elif one == "auto":
            read += read_learner(default_members(table, dense, embedded), table, dense, embedded)
        elif one == "linear":
            scales = (table, table.with_common_scale)
            read.append([Linear(scale, penalty) for scale in scales for penalty in PENALTIES])
        elif one == "forest":
            read.append([Forest()])
        elif one == "network":
            raise InputError('the network is a learner of its own and is not averaged with others: learner="network"')
        else:
            hint = nearest(one, LEARNERS) or f"; learners: {', '.join(LEARNERS)}, or a scikit-learn classifier"
            raise InputError(f"there is no learner {one!r}{hint}")
    return read
