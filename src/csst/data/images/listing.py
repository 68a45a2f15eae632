"""Which image files there are and of which class: class folders, flat folders and CSV tables, none of them trusted."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from csst.data.tabular.files import find_delimiter
from csst.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
UNLABELED = -1


@dataclass(frozen=True)
class Files:
    """Real paths, names relative to where they were found, and classes (UNLABELED for none)."""

    paths: list[str]
    names: list[str]
    labels: list[int]

    def __add__(self, other: Files) -> Files:
        return Files(self.paths + other.paths, self.names + other.names, self.labels + other.labels)

    def keep(self, indices: Iterable[int]) -> Files:
        rows = [(self.paths[i], self.names[i], self.labels[i]) for i in indices]
        return Files([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def from_folders(path: str, without: tuple[str, ...] = ()) -> tuple[Files, tuple[str, ...]]:
    """List the images below the class folders, and the class names; folders `without` have another role."""
    root = _resolve_folder(path)
    other_folders = {os.path.realpath(folder) for folder in without if folder}
    entries = sorted(entry for entry in os.listdir(root) if not entry.startswith("."))
    images = {}
    loose_files = []
    for entry in entries:
        place = os.path.join(root, entry)
        if os.path.isdir(place):
            if os.path.realpath(place) not in other_folders:
                _refuse_link(place)
                images[entry] = list(_find_images(place, root))
        elif entry.lower().endswith(SUFFIXES):
            loose_files.append(entry)
    if loose_files:
        raise InputError(
            f"{len(loose_files)} images, such as {loose_files[0]!r}, lie in {path} itself and so in no class: "
            "move them into class folders, or give a folder of them as unlabeled_path"
        )
    names = _sort_class_names(images, path)
    empty_names = [name for name in names if not images[name]]
    if empty_names:
        raise InputError(
            f"every class folder needs images; {empty_names} in {path} have none: add some or remove the folder"
        )
    paths = [file for name in names for file in images[name]]
    return Files(paths, _make_relative(paths, root), [c for c, name in enumerate(names) for _ in images[name]]), names


def list_unlabeled(path: str) -> Files:
    """List the images anywhere below a folder."""
    root = _resolve_folder(path)
    paths = list(_find_images(root, root))
    if not paths:
        raise InputError(f"the folder of unlabeled images {path!r} holds no image ({', '.join(SUFFIXES)})")
    return Files(paths, _make_relative(paths, root), [UNLABELED] * len(paths))


def from_table(path: str) -> tuple[Files, tuple[str, ...]]:
    """List the images of a CSV file with the columns path and label, and the classes; a blank label is unlabeled."""
    if not os.path.isfile(path):
        raise InputError(f"there is no file {path!r}")
    root = os.path.dirname(os.path.realpath(path))
    rows = []
    missing_files = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            delimiter = find_delimiter(file.readline(), os.path.splitext(path)[1])
            file.seek(0)
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            if not {"path", "label"} <= set(reader.fieldnames or ()):
                raise InputError(f"{path} must begin with the line path,label; found {reader.fieldnames}")
            for row in reader:
                name = (row["path"] or "").strip()
                label = (row["label"] or "").strip()
                if not name or "\0" in name:
                    raise InputError(f"line {reader.line_num} of {path} names no file")
                real_path = _resolve_inside(os.path.join(root, name), root)
                rows.append((real_path, label))
                if not os.path.isfile(real_path):
                    missing_files.append(name)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a CSV file in UTF-8: {error}") from None
    if missing_files:
        raise InputError(f"{len(missing_files)} files of {path} do not exist, the first {missing_files[:5]}")
    names = _sort_class_names({label for _, label in rows if label}, path)
    number = {"": UNLABELED, **{name: c for c, name in enumerate(names)}}
    paths = [file for file, _ in rows]
    return Files(paths, _make_relative(paths, root), [number[label] for _, label in rows]), names


def refuse_twice(files: Files) -> None:
    """Raise an error for an image in two places: it could be trained on and measured on."""
    seen_paths = set()
    for file in files.paths:
        if file in seen_paths:
            raise InputError(f"{file} is listed twice; an image has one place, in one class or among the unlabeled")
        seen_paths.add(file)


def _sort_class_names(words: Iterable[str], where: str) -> tuple[str, ...]:
    names = tuple(sorted(words))
    if len(names) < 2:
        raise InputError(f"at least 2 classes are needed; {where} has {len(names)}: {list(names)}")
    spellings: dict[str, str] = {}
    for name in names:
        spelling = spellings.setdefault(name.casefold(), name)
        if spelling != name:
            raise InputError(
                f"the classes {spelling!r} and {name!r} of {where} differ only by case: merge or rename them"
            )
    return names


def _resolve_folder(path: str) -> str:
    if not os.path.isdir(path):
        raise InputError(f"there is no folder {path!r}")
    return os.path.realpath(path)


def _find_images(folder: str, root: str) -> Iterator[str]:
    """Yield the image files below a folder, in a fixed order and without hidden files."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            _refuse_link(os.path.join(place, name))
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield _resolve_inside(os.path.join(place, name), root)


def _resolve_inside(path: str, root: str) -> str:
    """Return the real path if it lies below the root: neither `..` nor a link may lead out of the user's folder."""
    real_path = os.path.realpath(path)
    if not real_path.startswith(os.path.join(root, "")):
        raise InputError(f"{path} leads to {real_path}, outside {root}: put the image itself there")
    return real_path


def _refuse_link(folder: str) -> None:
    if os.path.islink(folder):
        raise InputError(
            f"the folder {folder} is a link to {os.path.realpath(folder)}: put the images themselves there"
        )


def _make_relative(paths: list[str], root: str) -> list[str]:
    return [Path(os.path.relpath(path, root)).as_posix() for path in paths]
