"""Texts as examples: a user's files, and long-tailed cuts of balanced data sets such as IMDb and DBpedia-14."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from csst.data.examples import Examples
from csst.data.huggingface import HUGGING_FACE
from csst.data.splits import Tail, long_tail, split_held_out
from csst.data.tabular.labeled_tables import index_labels
from csst.data.task import Labeled, Task, identity_view
from csst.data.text.files import (
    find_column,
    read_label_words,
    read_table,
    read_texts,
    sort_class_names,
    warn_about_gaps,
)
from csst.data.text.views import TextViews
from csst.errors import InputError


@runtime_checkable
class HasLengths(Protocol):
    """Examples of different lengths (N,), which are batched by similar length."""

    lengths: Tensor


class Texts:
    """Texts as examples: `texts[indices]` is a list of strings. `lengths` lets batches be cut by length."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self.lengths = torch.tensor([len(text) for text in self.texts], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, indices: Tensor) -> list[str]:
        return [self.texts[i] for i in indices.tolist()]

    def part(self, index: np.ndarray) -> Texts:
        """Return the texts at these indices."""
        return Texts(self[torch.from_numpy(index)])


def hash_texts(*parts: Sequence[str]) -> str:
    """Return a short fingerprint of texts in this order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)};".encode())
        for text in part:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)};".encode() + data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TextFile:
    """A user's texts: a CSV, TSV, JSON Lines or Parquet file, or Hugging Face datasets.

    A blank label, -1, NaN or null means unlabeled. Without a validation file, a fraction of the labeled texts is held
    out, stratified by class; the run's facts count held-out texts that are training texts too.

    Args:
        path: the file, or hf:NAME_OR_FOLDER for Hugging Face datasets.
        unlabeled_path: a file of further unlabeled texts; a label column in it is not read.
        validation_path: a file of labeled texts by which multipliers move and the model is selected.
        test_path: a file of labeled texts to report on.
        text: the column of the texts.
        label: the column of the labels.
        validation: fraction of the labeled texts held out for a network if there is no validation file; other learners
            judge every label out of fold.
        views: the strong view of a text; its weak view is the text itself.
    """

    path: str = ""
    unlabeled_path: str = ""
    validation_path: str = ""
    test_path: str = ""
    text: str = "text"
    label: str = "label"
    validation: float = 0.2
    views: TextViews = field(default_factory=TextViews)

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Load the texts; `holds_out` holds out validation texts for a network and makes its views."""
        names, labeled, unlabeled = self._read_training()
        validation = self._read_held_out(self.validation_path, "validation", names)
        test = self._read_held_out(self.test_path, "test", names)
        task = Task(Path(self.path).stem, names, labeled, unlabeled, validation, test, kind="text")
        if not holds_out:
            return replace(task, split_hash=_hash_split(task))
        task = task.with_validation(self.validation, seed)
        training_texts = {*_list_texts(task.labeled), *_list_all(task.unlabeled)}
        held_out = [*_list_texts(task.validation), *_list_texts(task.test)]
        facts = {"held_out_texts_also_in_training": sum(text in training_texts for text in held_out)}
        return add_views(replace(task, facts=facts), self.views)

    def _read_training(self) -> tuple[tuple[str, ...], Labeled, Texts]:
        """Return the class names, the labeled texts and the unlabeled texts."""
        if not self.path:
            raise InputError("the text recipe needs a file: csst train text --data.path FILE.csv")
        texts, words = _read_columns(self.path, "train", self.text, self.label)
        warn_about_gaps(words, self.path)
        names = sort_class_names(words)
        if len(names) < 2:
            raise InputError(
                f"{self.path} must hold labels of at least two classes; found {', '.join(names) or 'no label at all'}"
            )
        pairs = [(text, word) for text, word in zip(texts, words, strict=True) if word is not None]
        unlabeled = [text for text, word in zip(texts, words, strict=True) if word is None]
        if self.unlabeled_path:
            unlabeled += read_texts(read_table(self.unlabeled_path), self.text, self.unlabeled_path)
        labeled = _make_labeled([text for text, _ in pairs], [word for _, word in pairs], names, self.path)
        return names, labeled, Texts(unlabeled)

    def _read_held_out(self, path: str, split: str, names: tuple[str, ...]) -> Labeled | None:
        if not path:
            return None
        return _make_labeled(*_read_columns(path, split, self.text, self.label), names, path)


@dataclass(frozen=True)
class LongTailTexts:
    """A balanced set of texts made long-tailed, as the paper does with IMDb and DBpedia-14.

    The training texts are split into a labeled and an unlabeled part, the test texts into validation and test halves.
    Held-out texts that are training texts too are left out and counted.

    Args:
        path: the training texts: a file, or hf:NAME_OR_FOLDER of Hugging Face datasets with splits train and test.
        test_path: the test texts, if the path is a file.
        text: the column of the texts.
        label: the column of the labels.
        classes: number of classes that the data must have; 0 takes any number.
        labeled: labeled texts of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled texts of the most frequent class.
        imbalance: most frequent over rarest class.
        validation: validation texts per class; 0 takes half of the test texts.
        test: test texts per class; 0 takes half of the test texts.
        views: the strong view of a text; its weak view is the text itself.
    """

    path: str = ""
    test_path: str = ""
    text: str = "text"
    label: str = "label"
    classes: int = 0
    labeled: int = 910
    unlabeled: int = 11590
    imbalance: float = 10.0
    validation: int = 0
    test: int = 0
    views: TextViews = field(default_factory=TextViews)
    labeled_fraction: float = 1.0

    def load(self, seed: int, holds_out: bool = True) -> Task:
        """Cut the texts; the settings name the validation texts, so that `holds_out` is unused."""
        if not self.path:
            raise InputError("this recipe needs the texts: --data.path TRAIN.parquet --data.test_path TEST.parquet")
        if not self.test_path and not self.path.startswith(HUGGING_FACE) and not Path(self.path).is_dir():
            raise InputError("--data.path is a file of training texts, so --data.test_path FILE is needed too")
        test_path = self.test_path or self.path
        texts, words = _read_columns(self.path, "train", self.text, self.label)
        names = sort_class_names(words)
        if self.classes and self.classes != len(names):
            raise InputError(f"{self.path} has {len(names)} classes, but this recipe is for {self.classes}")
        pool = _make_labeled(texts, words, names, self.path)
        held_out = _make_labeled(*_read_columns(test_path, "test", self.text, self.label), names, test_path)
        training_texts = set(texts)
        rows = np.flatnonzero([text not in training_texts for text in _list_texts(held_out)])
        if not len(rows):
            raise InputError(f"every text of {test_path} is a training text too: give others with --data.test_path")
        split = long_tail(
            pool.labels.numpy(),
            Tail(self.labeled, self.imbalance),
            Tail(self.unlabeled, self.imbalance),
            labeled_fraction=self.labeled_fraction,
            seed=seed,
        )
        labels = held_out.labels.numpy()[rows]
        validation_places, test_places = split_held_out(labels, seed, names, self.validation, self.test)
        unlabeled = pool.part(split.unlabeled)
        task = Task(
            Path(self.path).stem,
            names,
            pool.part(split.labeled),
            unlabeled.inputs,
            held_out.part(rows[validation_places]),
            held_out.part(rows[test_places]),
            kind="text",
            unlabeled_truth=unlabeled.labels,
            facts={"held_out_texts_also_in_training_left_out": len(held_out) - len(rows)},
        )
        return add_views(task, self.views)


def _read_columns(path: str, split: str, text: str, label: str) -> tuple[list[str], list[str | None]]:
    """Return the texts of a file, and their labels as words."""
    table = read_table(path, split)
    return read_texts(table, text, path), read_label_words(find_column(table, label, path))


def _make_labeled(texts: Sequence[str], words: Sequence[str | None], names: tuple[str, ...], path: str) -> Labeled:
    """Return texts with their class indices; raise an error for a missing or unknown label."""
    labels = index_labels(words, names, path, "is learned from or measured")
    return Labeled(Texts(texts), torch.from_numpy(labels))


def _list_texts(labeled: Labeled | None) -> list[str]:
    return [] if labeled is None else _list_all(labeled.inputs)


def _list_all(texts: Examples) -> list[str]:
    return texts[torch.arange(len(texts))]


def _hash_split(task: Task) -> str:
    """Return a short fingerprint of all texts and labels."""
    labeled_parts = [part for part in (task.labeled, task.validation, task.test) if part is not None]
    labels = ["".join(f"{label}," for label in part.labels.tolist()) for part in labeled_parts]
    return hash_texts(*map(_list_texts, labeled_parts), _list_all(task.unlabeled), labels)


def add_views(task: Task, views: TextViews) -> Task:
    """Return the task with its views and fingerprint; the strong view is fitted on the training texts only."""
    strong = views.build([*_list_texts(task.labeled), *_list_all(task.unlabeled)])
    return replace(task, views=(identity_view, strong), split_hash=_hash_split(task))
