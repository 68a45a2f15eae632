"""What the words of a sentence refer to: the number of classes, their names, the groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from csst.errors import InputError, ObjectiveError, nearest
from csst.maths.costs import CostTable
from csst.maths.language.tree import Node


@dataclass(frozen=True)
class Binding:
    """K, the class names, the groups (as class indices), the costs and the groups of rows; each may be unknown.

    `text` is the sentence as it was written, used only to point at a part of it in errors.
    """

    classes: int | None = None
    class_names: tuple[str, ...] | None = None
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    costs: CostTable | None = None
    #: values of the column that "by column" names
    row_groups: tuple[str, ...] = ()
    text: str = field(default="", compare=False)

    def error(self, why: str, node: Node) -> ObjectiveError:
        """Return an error that points at a part of the sentence."""
        return ObjectiveError(why, self.text, node.start, node.end)

    def extended(
        self,
        classes: int | None,
        class_names: Sequence[Any] | None,
        groups: Mapping[str, Sequence[Any]] | None,
        costs: CostTable | None = None,
    ) -> Binding:
        """Return this binding with more information; raise an error if it contradicts the binding."""
        names = self.class_names if class_names is None else tuple(str(name) for name in class_names)
        if class_names is not None and self.class_names not in (None, names):
            raise InputError(f"the objective is already bound to the class names {list(self.class_names or ())}")
        if names is not None and len(set(names)) != len(names):
            raise InputError(f"class names must differ from each other; found {list(names)}")
        name_count = None if names is None else len(names)
        counts = {count for count in (classes, self.classes, name_count) if count is not None}
        if len(counts) > 1:
            raise InputError(f"the objective cannot have {' and '.join(map(str, sorted(counts)))} classes at once")
        count = counts.pop() if counts else None
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 2):
            raise InputError(f"an objective needs at least 2 classes; found {count!r}")
        indices_by_group = dict(self.groups)
        for name, members in (groups or {}).items():
            indices_by_group[name] = _members(name, members, names, count)
        table = self.costs if costs is None else costs
        if table is not None and count is not None:
            table.matrix(names, count)  # raises if it is for other classes
        groups_by_name = tuple(sorted(indices_by_group.items()))
        return replace(self, classes=count, class_names=names, groups=groups_by_name, costs=table)

    def with_row_groups(self, row_groups: Sequence[str]) -> Binding:
        """Return this binding with the values of the column of groups; raise an error unless they differ."""
        names = tuple(map(str, row_groups))
        if not names or len(set(names)) != len(names):
            raise InputError(f"groups of rows need names that differ from each other; found {list(names)}")
        return replace(self, row_groups=names)

    def row_group_index(self, group: str) -> int:
        """Return the place of a group of rows."""
        if group not in self.row_groups:
            hint = nearest(group, self.row_groups) or f"; groups: {list(self.row_groups)[:20]}"
            raise InputError(f"there is no group of rows {group!r}{hint}")
        return self.row_groups.index(group)

    def group(self, name: str) -> tuple[int, ...] | None:
        return dict(self.groups).get(name)

    def class_index(self, reference: int | str) -> int:
        """Return the place of the class that a sentence refers to by its name or, counted from 0, by its place."""
        if isinstance(reference, int):
            _refuse_name_for_place(reference, self.class_names or ())
        return _class_index(reference, self.class_names, self.classes)

    def named(self, index: int) -> int | str:
        """Return how a class is written: by its name if it has one, else by its index."""
        return self.class_names[index] if self.class_names is not None else index


def _members(name: str, members: Any, names: tuple[str, ...] | None, classes: int | None) -> tuple[int, ...]:
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"a group's name must be a word such as head; found {name!r}")
    if isinstance(members, str) or not hasattr(members, "__iter__"):
        raise InputError(f"group {name!r} must be a list of classes; found {members!r}")
    indices = tuple(_class_index(m if isinstance(m, str) else int(m), names, classes) for m in members)
    if not indices or len(set(indices)) != len(indices):
        raise InputError(f"group {name!r} must name at least one class and none twice; found {list(indices)}")
    return indices


def _refuse_name_for_place(place: int, names: tuple[str, ...]) -> None:
    """Raise an error if a number that counts classes from 0 is at once the name of another class."""
    namesakes = [k for k, name in enumerate(names) if _read_number(name) == place]
    if namesakes and place not in namesakes:
        count = f"is {names[place]!r}" if place < len(names) else "does not exist"
        name = names[namesakes[0]]
        raise InputError(
            f"[{place}] counts classes from 0 and {count}, not the class {name!r}: write names in quotes, ['{name}']"
        )


def _read_number(name: str) -> float | None:
    """Return the number that a class's name is; None for a word."""
    try:
        return float(name)
    except ValueError:
        return None


def _class_index(reference: int | str, names: tuple[str, ...] | None, classes: int | None) -> int:
    if isinstance(reference, str):
        if names is None:
            raise InputError(
                f"class {reference!r} is not known: name the classes (class_names=, or --class-names of csst "
                "objective), or use an index"
            )
        if reference not in names:
            raise InputError(
                f"there is no class {reference!r}{nearest(reference, names) or f'; classes: {list(names)[:20]}'}"
            )
        return names.index(reference)
    if reference < 0 or (classes is not None and reference >= classes):
        raise InputError(f"there is no class {reference}: classes are 0 .. {classes - 1 if classes else 'K-1'}")
    return reference
