"""What a comparison is made of: rows, each of which fits on the same task."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from csst.errors import InputError
from csst.learners import LEARNERS
from csst.recipes.recipe import Recipe, with_overrides
from csst.selftraining import method as read_method


class FitPredictor(Protocol):
    """Anything that learns from rows and then predicts: scikit-learn's classifiers are a line away."""

    def __call__(
        self, rows: np.ndarray, labels: np.ndarray, unlabeled: np.ndarray, objective: str, seed: int
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Learn from rows (n, D) with classes (n,) and rows without, (m, D); what predicts the classes of new rows."""
        ...


class Setting(NamedTuple):
    """What an ablation varies, in words, and its value in one row: the x-axis of its curve."""

    name: str
    value: float


@dataclass(frozen=True)
class Row:
    """One row of a comparison: a method for an objective, with settings of its own where `changes` has any.

    Args:
        label: its name in the table.
        method: how the network learns; of a row with `fit`, a name for it.
        objective: a sentence or a short name.
        changes: settings of the recipe that differ in this row.
        setting: what an ablation varies.
        fit: instead of a network, anything that fits on the same rows: it learns from every label of the task, those
            for validation among them.
    """

    label: str
    method: str
    objective: str
    changes: dict[str, Any] = field(default_factory=dict)
    setting: Setting | None = None
    fit: FitPredictor | None = None

    def recipe(self, base: Recipe, seed: int, rule: str) -> Recipe:
        """The recipe of one run of this row."""
        values = {**self.changes, "method": self.method, "objective": self.objective, "seed": seed, "rule": rule}
        return with_overrides(base, {**values, "learner": "network"})

    @property
    def folder(self) -> str:
        """A name for the folder of its runs, without the seed.

        Letters that folders do not take become _, and long names are cut; a hash then tells such names apart.
        """
        text = f"{self.label}-{self.objective}"
        name = "".join(letter if letter.isalnum() or letter in "-+.=_" else "_" for letter in text)[:90]
        return name if name == text else f"{name}-{sha256(text.encode()).hexdigest()[:8]}"


def make_rows(
    methods: Sequence[str],
    objectives: Sequence[str],
    changes: dict[str, Any] | None = None,
    fits: dict[str, FitPredictor] | None = None,
) -> list[Row]:
    """Every method for every objective.

    Args:
        methods: names of methods, or of what `fits` holds.
        objectives: sentences or short names.
        changes: settings of the recipe that differ in these rows.
        fits: names of what is no method of a network.

    Returns:
        The rows, those of one objective together.
    """
    if not methods or not objectives:
        raise InputError("a comparison needs at least one method and one objective")
    fits = fits or {}
    for name in methods:
        if name not in fits:
            read_method(name)  # an unknown name is refused before anything is run
    chosen = [
        Row(name, name, objective, dict(changes or {}), fit=fits.get(name))
        for objective in objectives
        for name in methods
    ]
    if len({row.folder for row in chosen}) < len(chosen):
        raise InputError(f"a method or objective appears twice: {', '.join(methods)}; {', '.join(objectives)}")
    return chosen


def refuse_numbers_only(folder: str | Path, metrics: dict[str, Any]) -> None:
    """Raise an InputError for a row of a comparison that is no network: only its numbers were kept."""
    if "checksums" in metrics:
        return
    method = metrics["method"]
    way_out = "fit it again where it is to be used"
    if method in LEARNERS:
        train = ["csst", "train", metrics["recipe"], "--learner", method, "--objective", metrics["objective"]]
        way_out = f"train it with {shlex.join(train)}, and the settings of its data"
    raise InputError(
        f"{folder} has the numbers of {method} in a comparison and no model, which only rows that train a network "
        f"keep: {way_out}"
    )
