"""Recipes: functions that return a typed, frozen configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from csst.errors import InputError, nearest
from csst.plugins import load
from csst.recipes.images import (
    cifar10_lt,
    cifar10_lt_1500,
    cifar10_lt_encoder,
    cifar10_lt_small,
    cifar100_lt,
    fashion_lt,
    fashion_lt_small,
    folder,
    imagenet100_lt,
    mnist_lt,
    traffic_signs,
)
from csst.recipes.quick import array, custom, digits, toy, toy_overlap
from csst.recipes.recipe import Custom, Recipe, Source, refuse_unused_settings, with_overrides
from csst.recipes.text import dbpedia14_lt, imdb_lt_10, imdb_lt_10_small, imdb_lt_100, imdb_lt_100_small, text

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits": digits,
    "toy": toy,
    "toy-overlap": toy_overlap,
    "array": array,
    "custom": custom,
    "folder": folder,
    "text": text,
    "mnist-lt": mnist_lt,
    "fashion-lt": fashion_lt,
    "traffic-signs": traffic_signs,
    "fashion-lt-small": fashion_lt_small,
    "cifar10-lt-small": cifar10_lt_small,
    "cifar10-lt-encoder": cifar10_lt_encoder,
    "imdb-lt-10-small": imdb_lt_10_small,
    "imdb-lt-100-small": imdb_lt_100_small,
    "cifar10-lt": cifar10_lt,
    "cifar10-lt-1500": cifar10_lt_1500,
    "cifar100-lt": cifar100_lt,
    "imagenet100-lt": imagenet100_lt,
    "imdb-lt-10": imdb_lt_10,
    "imdb-lt-100": imdb_lt_100,
    "dbpedia14-lt": dbpedia14_lt,
}


def recipe(name: str) -> Recipe:
    """Look up a recipe.

    Args:
        name: one of `csst recipes`, or `package.module:name` of a function that returns one.

    Returns:
        The recipe.
    """
    if ":" in name:
        own_recipe = load(name, "a recipe")()
        if not isinstance(own_recipe, Recipe):
            raise InputError(f"{name} must return a csst.recipes.Recipe; found {type(own_recipe).__name__}")
        return replace(own_recipe, name=name)
    if name not in RECIPES:
        raise InputError(f"unknown recipe {name!r}{nearest(name, RECIPES) or '; recipes: ' + ', '.join(RECIPES)}")
    return RECIPES[name]()


def from_dict(values: dict[str, Any]) -> Recipe:
    """Return the recipe that `Recipe.as_dict` (and so a run's recipe.yaml) describes."""
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise InputError("a recipe file needs the recipe's 'name'")
    return with_overrides(recipe(values["name"]), values)


__all__ = [
    "RECIPES",
    "Custom",
    "Recipe",
    "Source",
    "from_dict",
    "recipe",
    "refuse_unused_settings",
    "with_overrides",
]
