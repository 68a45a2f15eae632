"""The learners by name, and the default choice for given rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from csst.data.tabular.tables import compute_moments, is_sparse
from csst.data.task import Task
from csst.errors import InputError, nearest
from csst.learners.discriminant import Discriminant
from csst.learners.forest import TREES, Forest
from csst.learners.kernel import Kernel
from csst.learners.linear import PENALTIES, Linear
from csst.learners.projection import Projection, fit_projection
from csst.learners.propagation import MOST_NODES, Propagation
from csst.learners.protocol import Learner, Rows
from csst.learners.sklearn_classifier import as_learner
from csst.plugins import load

#: names of learners; the network trains by the paper's method
LEARNERS = ("auto", "linear", "forest", "kernel", "propagation", "lda", "network")
#: labels times classes up to which forests have all their trees: every leaf holds a number for every class
FULL_FOREST = 200_000
#: rows with more columns may be embeddings, for which a forest is slow and seldom worth much: it has all its trees up
#: to this number of labels times the root of columns, which takes ten seconds
WIDE, FULL_WIDE_FOREST = 256, 20_000
#: labels times classes up to which the default has a forest
LARGEST_FOREST = 4_000_000
#: labels times classes up to which the default has a kernel
LARGEST_KERNEL = 1_000_000
#: rows of the graph times classes up to which the default has propagation
LARGEST_GRAPH = 2_000_000
#: unlabeled rows in the graph of the default: six times as many take four times as long for little
DEFAULT_NODES = 10_000


@dataclass(frozen=True, eq=False)
class Problem:
    """The rows and counts by which learners are chosen.

    Args:
        table: standardization of the columns.
        rows: the unlabeled rows if there are any, else the labeled ones, (N, D).
        unlabeled: number of unlabeled rows.
        labels: number of labeled rows.
        classes: K.
        is_embedded: whether rows are embeddings.
    """

    table: Rows
    rows: Any
    unlabeled: int
    labels: int
    classes: int
    is_embedded: bool = False

    @property
    def scales(self) -> tuple[Rows, Rows]:
        """Standardization with one deviation per column, and with a common deviation."""
        return self.table, self.table.with_common_scale

    @cached_property
    def spaces(self) -> list[Projection]:
        """Principal components of the rows in both scales, computed once for all learners."""
        return [fit_projection(self.rows, table) for table in self.scales]


def describe_rows(task: Task, is_embedded: bool = False) -> Problem:
    """Return what learners are chosen by.

    Args:
        task: rows of numbers.
        is_embedded: whether an encoder made the rows.
    """
    mean, std = compute_moments(task.measured)
    table = Rows(mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0), task.column_sizes)
    return Problem(table, task.measured, len(task.unlabeled), len(task.labeled), task.classes, is_embedded)


def default_members(problem: Problem) -> tuple[str, ...]:
    """Return the default members: no forest for words and rows of an encoder, nothing that is slow for many classes."""
    cells = problem.labels * problem.classes
    graph = (problem.labels + min(problem.unlabeled, DEFAULT_NODES)) * problem.classes
    names = ["linear"]
    has_no_table = problem.is_embedded or is_sparse(problem.rows)
    if not has_no_table and cells <= LARGEST_FOREST:
        names.append("forest")
    if cells <= LARGEST_KERNEL:
        names.append("kernel")
    if problem.unlabeled > 0 and graph <= LARGEST_GRAPH:
        names.append("propagation")
    return tuple(names)


def read_learner(learner: Any, problem: Problem) -> list[Sequence[Learner]]:
    """Return the members of a portfolio, each as its variants, from a name, a classifier, or a list of these.

    Args:
        learner: "auto", another of `LEARNERS`, package.module:name, several of these as "linear,kernel", a
            scikit-learn classifier with `predict_proba`, a `Learner`, or a list of these.
        problem: the rows to learn from.
    """
    if isinstance(learner, str):
        learner = learner.split(",")
    entries = learner if isinstance(learner, (list, tuple)) else [learner]
    if not entries:
        raise InputError("learner is an empty list: name at least one")
    members: list[Sequence[Learner]] = []
    for entry in entries:
        if not isinstance(entry, str):
            members.append([as_learner(entry)])
        elif ":" in entry:
            members.append([load_learner(entry)])
        elif entry == "auto":
            members += [make_variants(name, problem, DEFAULT_NODES) for name in default_members(problem)]
        elif entry == "network":
            raise InputError('the network cannot be averaged with other learners: use learner="network" alone')
        elif entry not in LEARNERS:
            hint = nearest(entry, LEARNERS) or f"; learners: {', '.join(LEARNERS)}, or a scikit-learn classifier"
            raise InputError(f"there is no learner {entry!r}{hint}")
        else:
            members.append(make_variants(entry, problem))
    return members


def load_learner(reference: str) -> Learner:
    """Import a learner of the user's own, named package.module:name; a class is called without arguments."""
    entry = load(reference, "a learner")
    return as_learner(entry() if isinstance(entry, type) else entry)


def count_trees(problem: Problem) -> int:
    """Return how many trees of each kind a forest has: fewer where each takes long."""
    trees = TREES * FULL_FOREST / (problem.labels * problem.classes)
    columns = len(problem.table.sizes)
    if columns > WIDE:
        trees = min(trees, TREES * FULL_WIDE_FOREST / (problem.labels * columns**0.5))
    return int(np.clip(trees, 10, TREES))


def make_variants(name: str, problem: Problem, most_nodes: int = MOST_NODES) -> Sequence[Learner]:
    """Return the variants of a learner, from which the labels choose.

    Args:
        name: name of the learner.
        problem: the rows to learn from.
        most_nodes: unlabeled rows in the graph of propagation.
    """
    if name == "linear" and problem.labels * problem.classes > LARGEST_KERNEL:
        return [Linear(problem.table)]  # with a thousand classes every fit takes a minute
    if name == "linear":
        return [Linear(table, penalty) for table in problem.scales for penalty in PENALTIES]
    if name == "forest":
        return [Forest(trees=count_trees(problem))]
    if name == "propagation":
        unlabeled = problem.rows[: problem.unlabeled]
        return [Propagation(space.with_unit_length(), unlabeled, most_nodes) for space in problem.spaces]
    if name == "kernel":
        return [Kernel(space, problem.rows) for space in problem.spaces]
    return [Discriminant(space) for space in problem.spaces]
