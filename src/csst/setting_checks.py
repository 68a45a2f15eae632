"""Checks of settings: words and numbers that make sense, and names and types of what a file changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from csst.errors import InputError, nearest

#: groups of `csst.settings.Settings` whose name is not that of their class
GROUPS = {"SelfTrainingSettings": "selftraining"}
#: the types of the fields of a class, by name; reading them takes as long as all checks of their values
read_types: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def override(old: Any, values: dict[str, Any], where: str = "") -> Any:
    """Settings with these nested values, {"training": {"steps": 100}}; an unknown name or another type is an error."""
    old_values, new_values = {f.name: getattr(old, f.name) for f in fields(old)}, {}
    kinds = read_types(type(old))
    for name, value in values.items():
        if name not in old_values:
            raise InputError(f"there is no setting {where}{name}{nearest(str(name), old_values)}")
        is_group = is_dataclass(old_values[name])
        if is_group and not isinstance(value, dict):
            raise InputError(f"{where}{name} is a group of settings; found {value!r}")
        if not is_group and not _fits(value, kinds[name]):
            type_name = getattr(kinds[name], "__name__", str(kinds[name]))
            raise InputError(f"{where}{name} must be of type {type_name}; found {value!r}")
        new_values[name] = override(old_values[name], value, f"{where}{name}.") if is_group else value
    return replace(old, **new_values)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a file has a setting's type; whole numbers are numbers, and True and False are not."""
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(kind))
    if get_origin(kind) is Literal:  # which word it is, the settings themselves check
        return any(isinstance(value, type(option)) for option in get_args(kind))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    is_plain = isinstance(kind, type) and kind is not Any and get_origin(kind) is None
    return isinstance(value, kind) if is_plain else True


def check_positive(settings: Any, *names: str) -> None:
    """Refuse values of these fields that are not positive."""
    for name in names:
        if getattr(settings, name) is None:  # left open, where the type allows it
            continue
        if not 0 < getattr(settings, name) < float("inf"):
            raise InputError(f"{_path(settings, name)} must be positive; found {getattr(settings, name)!r}")


def check_within(settings: Any, low: float, high: float, *names: str) -> None:
    """Refuse values of these fields outside low ... high."""
    for name in names:
        if getattr(settings, name) is None:
            continue
        if not low <= getattr(settings, name) <= high or getattr(settings, name) == float("inf"):
            raise InputError(
                f"{_path(settings, name)} must be a number from {low} to {high}; found {getattr(settings, name)!r}"
            )


def check_choices(settings: Any, where: str | None = None) -> None:
    """Refuse a word that the `Literal` of a field does not list, with the nearest that it does.

    Args:
        settings: a dataclass.
        where: what comes before a field's name on the command line; None for the group of `Settings`.
    """
    for name, hint in read_types(type(settings)).items():
        words, value = get_args(hint) if get_origin(hint) is Literal else (), getattr(settings, name)
        if words and value not in words:
            place = _path(settings, name) if where is None else f"{where}{name}"
            raise InputError(f"{place} must be one of {', '.join(words)}; found {value!r}{nearest(str(value), words)}")


def _path(settings: Any, name: str) -> str:
    group = type(settings).__name__
    return f"{GROUPS.get(group, group.lower())}.{name}"
