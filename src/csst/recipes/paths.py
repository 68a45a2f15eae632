"""Files and folders that a recipe names, so that a run finds them from wherever it is looked at again."""

from __future__ import annotations

import os
from typing import Any

from csst.recipes.recipe import Recipe, with_overrides

#: settings that name a file or a folder, besides those that end in _path
PATHS = ("path", "table", "cache", "costs")
HUGGING_FACE = "hf:"


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with every relative path of a file or folder spelled from the root."""
    values = recipe.as_dict()
    changes = {key: value for key, value in absolute_paths(values).items() if value != values[key]}
    return with_overrides(recipe, changes)


def absolute_paths(values: dict[str, Any]) -> dict[str, Any]:
    """The same settings, relative paths spelled from the root; hf:NAME is one only where there is such a folder."""
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
