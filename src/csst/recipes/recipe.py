"""A recipe: everything that defines a run, typed and frozen, to and from YAML."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from csst.data.huggingface import HUGGING_FACE
from csst.data.task import Task
from csst.errors import InputError
from csst.fitting.plan import Plan
from csst.plugins import load
from csst.setting_checks import override

#: settings that only training a network heeds, by how their names begin
NETWORK_SETTINGS = (
    "model.",
    "training.",
    "selftraining.",
    "dual.",
    "selection.",
    "folds:",
    "data.validation",
    "data.held_out",
    "data.views.",
    "embedding.draws",
    "embedding.views",
    "embedding.components",
    "embedding.noise",
)
#: settings that name a file or a folder, besides those that end in _path
PATHS = ("path", "table", "cache", "costs")


class Source(Protocol):
    """Where a task comes from: any frozen dataclass with a `load`."""

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Load the examples; `holds_out` holds out validation examples, which a network needs, and makes its views.

        Other learners judge every label out of fold and need neither; a source whose settings name its validation
        examples may ignore it.
        """
        ...


@dataclass(frozen=True)
class Custom:
    """A dataset of the user's own.

    Args:
        source: package.module:name of a function (seed) -> Task.
    """

    source: str = ""

    def load(self, seed: int, holds_out: bool = True) -> Task:
        if ":" not in self.source:
            raise InputError("the custom recipe needs a dataset: csst train custom --data.source package.module:name")
        task = load(self.source, "a dataset")(seed)
        if not isinstance(task, Task):
            raise InputError(f"{self.source} must return a csst.data.Task; found {type(task).__name__}")
        return task


@dataclass(frozen=True)
class Recipe(Plan):
    """Everything that defines a run: a plan of the fit, and its data.

    Args:
        name: which recipe this came from.
        data: where the examples come from.
    """

    name: str
    data: Source

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for YAML: the name and the data first."""
        values = asdict(self)
        return {"name": values.pop("name"), "data": values.pop("data"), **values}


def with_overrides(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Return the recipe with these (nested) values; an unknown name is an error."""
    changed_recipe: Recipe = override(recipe, values)
    return changed_recipe


def differences(before: dict[str, Any], after: dict[str, Any], where: str = "") -> list[str]:
    """Return where two recipes differ, as 'training.steps: 100 → 200'."""
    changes = []
    for key in sorted({*before, *after}):
        a, b = before.get(key), after.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            changes += differences(a, b, f"{where}{key}.")
        elif a != b:
            changes.append(f"{where}{key}: {a} → {b}")
    return changes


def refuse_unused_settings(base: Recipe, recipe: Recipe) -> None:
    """Raise an error if settings of a network were changed and no network is trained, which would ignore them."""
    if recipe.uses_network:
        return
    changes = differences(base.as_dict(), recipe.as_dict())
    if recipe.rounds:  # whose pseudo-labels this selects
        changes = [change for change in changes if not change.startswith("selftraining.tau:")]
    unused_changes = [change for change in changes if change.startswith(NETWORK_SETTINGS)]
    if unused_changes:
        raise InputError(
            f"learner {recipe.learner} trains no network, which these settings are for "
            f"({'; '.join(unused_changes[:5])}): add --learner network, or leave them out"
        )


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """Return the recipe with every relative path of a file or folder spelled from the root."""
    values = recipe.as_dict()
    changes = {key: value for key, value in absolute_paths(values).items() if value != values[key]}
    return with_overrides(recipe, changes)


def absolute_paths(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings with relative paths spelled from the root; hf:NAME is one only if there is such a folder."""
    return {key: _absolute(key, value) for key, value in values.items()}


def _absolute(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return absolute_paths(value)
    if not isinstance(value, str) or not value:
        return value
    if value.startswith(HUGGING_FACE):
        folder = value[len(HUGGING_FACE) :]
        return HUGGING_FACE + os.path.abspath(folder) if os.path.isdir(folder) else value
    return os.path.abspath(value) if key in PATHS or key.endswith("_path") else value
