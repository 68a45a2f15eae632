"""Your own images on disk: class folders, a flat folder of unlabeled images, or a CSV of paths and labels.

Every file is checked before training begins. A small set is decoded once into memory, a large one is read as it is
used, by several threads if wanted (`ImageFiles`).
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from csst.data.images.reading import ImageFiles, Readers
from csst.data.images.views import Strong, Weak
from csst.data.splits import Split, Tail, long_tail, split_hash, split_held_out, stratified_pair
from csst.data.tabular.labeled_tables import index_words
from csst.data.task import Labeled, Task
from csst.data.text.files import find_column, read_label_words, read_table, read_texts, warn_about_gaps
from csst.errors import InputError
from csst.maths.confusion import refuse_empty_classes

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
UNLABELED = -1
SHOWN = 20  # bad images named in an error


class File(NamedTuple):
    """An image: its real path, its name relative to where it was found, and its class (UNLABELED for none)."""

    path: str
    name: str
    label: int

    @classmethod
    def below(cls, root: str, path: str, label: int) -> File:
        """Return the image at a path below a folder."""
        return cls(path, Path(os.path.relpath(path, root)).as_posix(), label)


def from_folders(path: str, without: tuple[str, ...] = ()) -> tuple[list[File], tuple[str, ...]]:
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
    return [File.below(root, file, c) for c, name in enumerate(names) for file in images[name]], names


def list_unlabeled(path: str) -> list[File]:
    """List the images anywhere below a folder."""
    root = _resolve_folder(path)
    files = [File.below(root, file, UNLABELED) for file in _find_images(root, root)]
    if not files:
        raise InputError(f"the folder of unlabeled images {path!r} holds no image ({', '.join(SUFFIXES)})")
    return files


def from_table(path: str) -> tuple[list[File], tuple[str, ...]]:
    """List the images of a table with the columns path and label, and the classes; a blank label is unlabeled."""
    table = read_table(path)
    file_names = [name.strip() for name in read_texts(table, "path", path)]
    words = read_label_words(find_column(table, "label", path))
    warn_about_gaps(words, path)
    nameless_rows = [row for row, name in enumerate(file_names) if not name or "\0" in name]
    if nameless_rows:
        raise InputError(f"row {nameless_rows[0]} of {path} names no file")
    root = os.path.dirname(os.path.realpath(path))
    paths = [_resolve_inside(os.path.join(root, name), root) for name in file_names]
    missing_files = [name for name, file in zip(file_names, paths, strict=True) if not os.path.isfile(file)]
    if missing_files:
        raise InputError(f"{len(missing_files)} files of {path} do not exist, the first {missing_files[:5]}")
    names = _sort_class_names({word for word in words if word is not None}, path)
    labels = index_words(words, names, path).tolist()
    return [File.below(root, file, label) for file, label in zip(paths, labels, strict=True)], names


def refuse_twice(files: Sequence[File]) -> None:
    """Raise an error for an image in two places: it could be trained on and measured on."""
    seen_paths = set()
    for file in files:
        if file.path in seen_paths:
            raise InputError(
                f"{file.path} is listed twice; an image has one place, in one class or among the unlabeled"
            )
        seen_paths.add(file.path)


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


@dataclass(frozen=True)
class ImageFolder:
    """Images from files of any size: PNG, JPEG, WebP, BMP, GIF.

    They become RGB, turned upright, the shorter side resized to `size` and the center cut out; transparent pixels
    become white. The classes, sorted by name, are the sub-folders of `path` or the labels of `table`.

    Args:
        path: a folder with one sub-folder of images per class.
        table: instead, a CSV or other table with columns path (relative to it) and label (blank means unlabeled).
        unlabeled_path: a folder of unlabeled images, searched with all its sub-folders.
        test_path: a folder with the same sub-folders, cut in half for validation and test of a network; all of it is
            the test set of other learners.
        held_out: fraction of each class held out, half for validation and half for test; unused with test_path, and by
            learners other than a network, which judge every label out of fold.
        labeled: labeled images of the first class, cut from the class folders as a long tail; 0 takes all as they are.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled images of the first class, cut from the class folders likewise.
        imbalance: first over last class of that long tail.
        size: side of the square images, in pixels.
        skip_bad: leave out images that cannot be read, and count them, rather than stop.
        workers: threads that read images ahead; 0 reads them when they are needed.
        in_memory_megabytes: a set that decodes to at most this many megabytes is kept in memory.
    """

    path: str = ""
    table: str = ""
    unlabeled_path: str = ""
    test_path: str = ""
    held_out: float = 0.2
    labeled: int = 0
    unlabeled: int = 0
    imbalance: float = 1.0
    size: int = 224
    skip_bad: bool = False
    workers: int = 0
    in_memory_megabytes: int = 512
    labeled_fraction: float = 1.0

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Load the images; without `holds_out` none is held out, and test_path is for the test alone."""
        self._refuse_wrong_options()
        other_folders = (self.unlabeled_path, self.test_path)
        files, names = from_table(self.table) if self.table else from_folders(self.path, without=other_folders)
        if self.unlabeled_path:
            files += list_unlabeled(self.unlabeled_path)
        pool_size = len(files)
        if self.test_path:
            held_out_files, test_names = from_folders(self.test_path)
            if test_names != names:
                name_differences = sorted(set(names) ^ set(test_names))
                raise InputError(
                    f"test_path must have the same classes as the training images; {name_differences} differ"
                )
            files += held_out_files
        refuse_twice(files)
        inputs, good_rows = self._read([file.path for file in files])
        skipped_count = len(files) - len(good_rows)
        in_pool = good_rows < pool_size
        files = [files[row] for row in good_rows.tolist()]
        labels = np.array([file.label for file in files], dtype=np.int64)
        split = self._split(labels, in_pool, names, seed, holds_out)
        pool = Labeled(inputs, torch.from_numpy(labels))
        unlabeled = pool.part(split.unlabeled)
        parts = (split.labeled, split.unlabeled, split.validation, split.test)
        file_names = np.array([file.name for file in files])
        checksums = np.array([zlib.crc32(Path(file.path).read_bytes()) for file in files], dtype=np.int64)
        preprocessing = (
            f"images uint8, channels first, upright, the center square resized to {self.size} x {self.size} pixels; "
            "scaling is part of the graph"
        )
        truth = unlabeled.labels
        return Task(
            Path(self.table).stem if self.table else Path(self.path).resolve().name,
            names,
            pool.part(split.labeled),
            unlabeled.inputs,
            pool.part(split.validation) if len(split.validation) else None,
            pool.part(split.test) if len(split.test) else None,
            views=(Weak(padding=self.size // 8), Strong(padding=self.size // 8)),
            kind="image",
            unlabeled_truth=truth if len(truth) and int(truth.min()) != UNLABELED else None,
            # From the files themselves: an image that was replaced under its name is another split.
            split_hash=split_hash(file_names, checksums, labels, *parts),
            facts={"preprocessing": preprocessing} | ({"bad images skipped": skipped_count} if self.skip_bad else {}),
        )

    def _refuse_wrong_options(self) -> None:
        if bool(self.path) == bool(self.table):
            raise InputError(
                "name the images by either path (class folders) or table (a file with the columns path and label)"
            )
        if not 0 < self.held_out < 1:
            raise InputError(f"held_out is a fraction between 0 and 1; found {self.held_out}")
        if min(self.labeled, self.unlabeled, self.in_memory_megabytes) < 0:
            raise InputError("labeled, unlabeled and in_memory_megabytes must be at least 0")
        if not self.labeled and (self.unlabeled or self.imbalance != 1 or self.labeled_fraction != 1):
            raise InputError(
                "unlabeled, imbalance and labeled_fraction cut a long tail from the class folders, which needs labeled "
                "too"
            )

    def _read(self, paths: Sequence[str]) -> tuple[Tensor | ImageFiles, np.ndarray]:
        """Return the readable images, decoded or as files, and their positions."""
        lazy = ImageFiles(paths, self.size, Readers(self.workers))
        fits_memory = len(lazy) * 3 * self.size**2 <= self.in_memory_megabytes * 2**20
        images, reasons = lazy.readers.read(paths, self.size if fits_memory else 0)
        if reasons and not self.skip_bad:
            examples = [f"{paths[i]} ({reason})" for i, reason in sorted(reasons.items())[:SHOWN]]
            remainder = f" and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
            raise InputError(
                f"{len(reasons)} of {len(paths)} images cannot be read: {', '.join(examples)}{remainder}: "
                "repair or remove them, or leave them out with --data.skip_bad true (in Python skip_bad=True)"
            )
        if reasons:
            first_row = min(reasons)
            warnings.warn(
                f"{len(reasons)} of {len(paths)} images cannot be read and were left out, such as "
                f"{paths[first_row]} ({reasons[first_row]})",
                stacklevel=2,
            )
        good_rows = np.array([i for i in range(len(paths)) if i not in reasons], dtype=np.int64)
        if not fits_memory:
            return lazy.part(good_rows), good_rows
        return torch.from_numpy(images[good_rows] if reasons else images), good_rows

    def _split(
        self, labels: np.ndarray, in_pool: np.ndarray, names: tuple[str, ...], seed: int, holds_out: bool
    ) -> Split:
        known_rows = np.flatnonzero(in_pool & (labels != UNLABELED))
        counts = torch.from_numpy(np.bincount(labels[known_rows], minlength=len(names)))
        refuse_empty_classes(counts, names, "recall", "the images that can be read")

        def sizes(c: int, count: int) -> tuple[int, int]:
            if count < 3:
                raise InputError(
                    f"class {names[c]!r} has {count} labeled images, and training, validation and test need one each: "
                    "label more, merge classes, or give test_path"
                )
            held_out_count = min(count - 1, max(2, round(self.held_out * count)))
            return held_out_count // 2, held_out_count - held_out_count // 2

        if self.test_path:
            held_out_rows = np.flatnonzero(~in_pool)
            validation = held_out_rows[:0]
            test = held_out_rows
            if holds_out:
                halves = split_held_out(labels[held_out_rows], seed, names)
                validation, test = (held_out_rows[index] for index in halves)
        elif holds_out:
            validation, test = (known_rows[index] for index in stratified_pair(labels[known_rows], seed, sizes))
        else:
            validation = test = known_rows[:0]
        other_rows = np.setdiff1d(known_rows, np.concatenate([validation, test]))
        unlabeled = np.flatnonzero(in_pool & (labels == UNLABELED))
        if not self.labeled:
            return Split(other_rows, unlabeled, validation, test)
        tails = Tail(self.labeled, self.imbalance), Tail(self.unlabeled, self.imbalance)
        tail = long_tail(labels[other_rows], *tails, labeled_fraction=self.labeled_fraction, seed=seed)
        return Split(
            other_rows[tail.labeled], np.concatenate([other_rows[tail.unlabeled], unlabeled]), validation, test
        )
