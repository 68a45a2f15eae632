"""Names of learners, and which of them are the default for which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.data.tabular.tables import is_sparse
from csst.errors import InputError, nearest
from csst.learners.discriminant import Discriminant
from csst.learners.forest import TREES, Forest
from csst.learners.kernel import Kernel
from csst.learners.linear import PENALTIES, Linear
from csst.learners.projection import fit_projection
from csst.learners.propagation import MOST_NODES, Propagation
from csst.learners.protocol import Learner, Rows
from csst.learners.wrapped import wrap

#: names a learner can be asked for by; the network trains by the paper's method
LEARNERS = ("auto", "linear", "forest", "kernel", "propagation", "lda", "network")
#: dense rows with more columns than this are taken for embeddings
WIDE = 256
#: labels times classes up to which forests have all their trees, and beyond which there is none in the default: every
#: leaf holds a number for every class
FULL_FOREST, LARGEST_FOREST = 200_000, 4_000_000
#: labels times classes up to which the default has a kernel, and rows of the graph times classes for propagation
LARGEST_KERNEL, LARGEST_GRAPH = 1_000_000, 2_000_000
#: unlabeled rows in the graph of the default: six times as many take four times as long for little
DEFAULT_NODES = 10_000


@dataclass(frozen=True, eq=False)
class Problem:
    """What learners are chosen by: the rows, and how many labels and classes there are.

    Args:
        table: what is known about the columns.
        rows: without labels if there are any, else those with labels, (N, D).
        unlabeled: how many of them have no label.
        labels: how many rows have a label.
        classes: how many there are.
        is_embedded: whether rows are embeddings.
    """

    table: Rows
    rows: Any
    unlabeled: int
    labels: int
    classes: int
    is_embedded: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether columns are many and alike: embeddings, pixels, words."""
        return self.is_embedded or is_sparse(self.rows) or len(self.table.sizes) > WIDE

    @property
    def scales(self) -> tuple[Rows, Rows]:
        """Every column by its own deviation, or all by a common one."""
        return self.table, self.table.with_common_scale


def default_members(problem: Problem) -> tuple[str, ...]:
    """linear, forest, kernel and propagation; no forest for embeddings, and only what is quick for many classes."""
    cells = problem.labels * problem.classes
    graph = (problem.labels + min(problem.unlabeled, DEFAULT_NODES)) * problem.classes
    is_used = {
        "linear": True,
        "forest": not problem.is_wide and cells <= LARGEST_FOREST,
        "kernel": cells <= LARGEST_KERNEL,
        "propagation": problem.unlabeled > 0 and graph <= LARGEST_GRAPH,
    }
    return tuple(name for name, used in is_used.items() if used)


def read_learner(learner: Any, problem: Problem) -> list[Sequence[Learner]]:
    """The members of a portfolio, each as its variants: from a name, a classifier, or a list of these.

    Args:
        learner: "auto", another of `LEARNERS`, a scikit-learn classifier with `predict_proba`, or a list of these.
        problem: what is learned from.
    """
    members = learner if isinstance(learner, (list, tuple)) else [learner]
    if not members:
        raise InputError("learner is an empty list: name at least one")
    read: list[Sequence[Learner]] = []
    for member in members:
        if not isinstance(member, str):
            read.append([wrap(member)])
        elif member == "auto":
            read += [make_variants(name, problem, DEFAULT_NODES) for name in default_members(problem)]
        elif member == "network":
            raise InputError('the network is a learner of its own and is not averaged with others: learner="network"')
        elif member not in LEARNERS:
            hint = nearest(member, LEARNERS) or f"; learners: {', '.join(LEARNERS)}, or a scikit-learn classifier"
            raise InputError(f"there is no learner {member!r}{hint}")
        else:
            read.append(make_variants(member, problem))
    return read


def make_variants(name: str, problem: Problem, most_nodes: int = MOST_NODES) -> Sequence[Learner]:
    """A learner by its name, in the variants among which the labels choose.

    Args:
        name: of the learner.
        problem: what is learned from.
        most_nodes: unlabeled rows in the graph of propagation.
    """
    if name == "linear" and problem.labels * problem.classes > LARGEST_KERNEL:
        return [Linear(problem.table)]  # with a thousand classes every fit takes a minute
    if name == "linear":
        return [Linear(table, penalty) for table in problem.scales for penalty in PENALTIES]
    if name == "forest":
        return [Forest(trees=int(np.clip(TREES * FULL_FOREST / (problem.labels * problem.classes), 10, TREES)))]
    if name == "propagation":
        unlabeled = problem.rows[: problem.unlabeled]
        spaces = [fit_projection(problem.rows, table, has_unit_length=True) for table in problem.scales]
        return [Propagation(space, unlabeled, most_nodes) for space in spaces]
    spaces = [fit_projection(problem.rows, table) for table in problem.scales]
    if name == "kernel":
        return [Kernel(space, problem.rows) for space in spaces]
    return [Discriminant(space) for space in spaces]
