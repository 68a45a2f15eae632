"""Texts as examples: the user's own files, and long-tailed cuts of balanced sets such as IMDb and DBpedia-14."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from csst.data.splits import Tail, hold_out, long_tail, split_held_out
from csst.data.task import Examples, Labeled, RowTask, Task
from csst.data.text.files import HUGGING_FACE, class_names_of, column, labels_of, read_table, texts_of
from csst.data.text.views import TextViews
from csst.errors import InputError


@runtime_checkable
class HasLengths(Protocol):
    """Examples of different lengths (N,), which are put into batches of similar ones."""

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


def hash_texts(*parts: Sequence[str]) -> str:
    """A short fingerprint of texts in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)};".encode())
        for text in part:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)};".encode() + data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TextFile:
    """Texts of your own: a CSV, TSV, JSON Lines or Parquet file, or Hugging Face datasets.

    A blank label, -1, NaN or null means unlabeled. Without a validation file, a fraction of the labeled texts is held
    out, stratified by class; how many held-out texts are training texts too is among the run's facts.

    Args:
        path: the file, or hf:NAME_OR_FOLDER for Hugging Face datasets.
        unlabeled_path: a file of further unlabeled texts; a label column in it is not read.
        validation_path: a file of labeled texts that steer the multipliers and select the model.
        test_path: a file of labeled texts to report on.
        text: the column of the texts.
        label: the column of the labels.
        validation: fraction of the labeled texts held out for a network where there is no validation file; other
            learners judge every label out of fold.
        views: how the strong view of a text is made; its weak view is the text itself.
    """

    path: str = ""
    unlabeled_path: str = ""
    validation_path: str = ""
    test_path: str = ""
    text: str = "text"
    label: str = "label"
    validation: float = 0.2
    views: TextViews = field(default_factory=TextViews)

    def load_rows(self, seed: int) -> RowTask:
        """The texts of the files; no validation set is cut from them."""
        names, labeled, unlabeled = self._read_training()
        validation = self._read_held_out(self.validation_path, "validation", names)
        test = self._read_held_out(self.test_path, "test", names)
        name, split_hash = Path(self.path).stem, _hash_split([labeled, validation, test], unlabeled)
        return RowTask(name, names, labeled, unlabeled, validation, test, "text", split_hash)

    def load(self, seed: int) -> Task:
        rows = self.load_rows(seed)
        if rows.validation is None:
            out = hold_out(rows.labeled.labels.numpy(), self.validation, seed, rows.class_names)
            kept = np.setdiff1d(np.arange(len(rows.labeled)), out)
            rows = replace(rows, labeled=_select(rows.labeled, kept), validation=_select(rows.labeled, out))
        known = {*_list_texts(rows.labeled), *_list_all(rows.unlabeled)}
        held_out = [*_list_texts(rows.validation), *_list_texts(rows.test)]
        facts = {"held_out_texts_also_in_training": sum(text in known for text in held_out)}
        return add_views(replace(rows, facts=facts), self.views)

    def _read_training(self) -> tuple[tuple[str, ...], Labeled, Texts]:
        """The class names, the texts with a label and those without."""
        if not self.path:
            raise InputError("the text recipe needs a file: csst train text --data.path FILE.csv")
        texts, words = _read_columns(self.path, "train", self.text, self.label)
        names = class_names_of(words)
        if len(names) < 2:
            raise InputError(
                f"{self.path} must hold labels of at least two classes; found {', '.join(names) or 'no label at all'}"
            )
        pairs = [(text, word) for text, word in zip(texts, words, strict=True) if word is not None]
        unlabeled = [text for text, word in zip(texts, words, strict=True) if word is None]
        if self.unlabeled_path:
            unlabeled += texts_of(read_table(self.unlabeled_path), self.text, self.unlabeled_path)
        labeled = _make_labeled([text for text, _ in pairs], [word for _, word in pairs], names, self.path)
        return names, labeled, Texts(unlabeled)

    def _read_held_out(self, path: str, split: str, names: tuple[str, ...]) -> Labeled | None:
        return _make_labeled(*_read_columns(path, split, self.text, self.label), names, path) if path else None


@dataclass(frozen=True)
class LongTailTexts:
    """A balanced set of texts made long-tailed, as the paper does with IMDb and DBpedia-14.

    The training texts are cut into a labeled and an unlabeled part, the test texts into validation and test halves.
    Held-out texts that also occur among the training texts are left out and counted.

    Args:
        path: the training texts: a file, or hf:NAME_OR_FOLDER of Hugging Face datasets with splits train and test.
        test_path: the test texts, where the path is a file.
        text: the column of the texts.
        label: the column of the labels.
        classes: how many classes the data must have; 0 takes what is there.
        labeled: labeled texts of the most frequent class.
        labeled_fraction: the fraction of these labels that is used; 2 for twice as many. The other parts stay the same.
        unlabeled: unlabeled texts of the most frequent class.
        imbalance: most frequent over rarest class.
        validation: validation texts per class; 0 takes half of the test texts.
        test: test texts per class; 0 takes half of them.
        views: how the strong view of a text is made; its weak view is the text itself.
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

    def load(self, seed: int) -> Task:
        if not self.path:
            raise InputError("this recipe needs the texts: --data.path TRAIN.parquet --data.test_path TEST.parquet")
        if not self.test_path and not self.path.startswith(HUGGING_FACE) and not Path(self.path).is_dir():
            raise InputError("--data.path is a file of training texts, so --data.test_path FILE is needed too")
        test_path = self.test_path or self.path
        texts, words = _read_columns(self.path, "train", self.text, self.label)
        names = class_names_of(words)
        if self.classes and self.classes != len(names):
            raise InputError(f"{self.path} has {len(names)} classes, but this recipe is for {self.classes}")
        pool = _make_labeled(texts, words, names, self.path)
        held_out = _make_labeled(*_read_columns(test_path, "test", self.text, self.label), names, test_path)
        known = set(texts)
        fresh = np.flatnonzero([text not in known for text in _list_texts(held_out)])
        if not len(fresh):
            raise InputError(f"every text of {test_path} is a training text too: give others with --data.test_path")
        tails = Tail(self.labeled, self.imbalance), Tail(self.unlabeled, self.imbalance)
        cut = long_tail(pool.labels.numpy(), *tails, labeled_fraction=self.labeled_fraction, seed=seed)
        first, second = split_held_out(held_out.labels.numpy()[fresh], seed, names, self.validation, self.test)
        unlabeled = _select(pool, cut.unlabeled)
        parts = (_select(pool, cut.labeled), unlabeled.inputs, _select(held_out, fresh[first]))
        facts = {"held_out_texts_also_in_training_left_out": len(held_out) - len(fresh)}
        test, name = _select(held_out, fresh[second]), Path(self.path).stem
        return add_views(RowTask(name, names, *parts, test, "text", "", facts), self.views, unlabeled.labels)


def _read_columns(path: str, split: str, text: str, label: str) -> tuple[list[str], list[str | None]]:
    """The texts of a file, and their labels as words."""
    table = read_table(path, split)
    return texts_of(table, text, path), labels_of(column(table, label, path))


def _make_labeled(texts: Sequence[str], words: Sequence[str | None], names: tuple[str, ...], path: str) -> Labeled:
    """Texts with their class indices; a label that is missing or unknown is an error."""
    index_of = {name: index for index, name in enumerate(names)}
    wrong = ["no label"] if None in words else []
    wrong += sorted({repr(word) for word in words if word is not None and word not in index_of})
    if wrong:
        raise InputError(
            f"every text of {path} needs one of the classes {', '.join(names)}; found {', '.join(wrong[:5])}"
        )
    indices = [index_of[word] for word in words if word is not None]
    return Labeled(Texts(texts), torch.tensor(indices, dtype=torch.int64))


def _select(labeled: Labeled, index: np.ndarray) -> Labeled:
    rows = torch.from_numpy(index)
    return Labeled(Texts(labeled.inputs[rows]), labeled.labels[rows])


def _list_texts(labeled: Labeled | None) -> list[str]:
    return [] if labeled is None else _list_all(labeled.inputs)


def _list_all(texts: Examples) -> list[str]:
    return texts[torch.arange(len(texts))]


def _hash_split(parts: Sequence[Labeled | None], unlabeled: Examples) -> str:
    """A short fingerprint of all texts and labels."""
    present = [part for part in parts if part is not None]
    labels = ["".join(f"{label}," for label in part.labels.tolist()) for part in present]
    return hash_texts(*map(_list_texts, present), _list_all(unlabeled), labels)


def add_views(rows: RowTask, views: TextViews, unlabeled_truth: Tensor | None = None) -> Task:
    """Texts as a task; its strong view is fitted on the training texts only."""
    return rows.as_task(
        strong=views.build([*_list_texts(rows.labeled), *_list_all(rows.unlabeled)]),
        unlabeled_truth=unlabeled_truth,
        split_hash=_hash_split([rows.labeled, rows.validation, rows.test], rows.unlabeled),
    )
