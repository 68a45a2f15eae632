"""Texts as examples: the user's own files, and long-tailed cuts of balanced sets such as IMDb and DBpedia-14."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from csst.data.splits import Split, hold_out, long_tail, split_held_out
from csst.data.task import Labeled, RowTask, Task
from csst.data.text.files import HUGGING_FACE, Columns, class_names_of, column, labels_of, read_table, texts_of
from csst.data.text.views import TextViews
from csst.errors import InputError


class Texts:
    """Texts as examples: `texts[indices]` is a list of strings. `lengths` lets batches be cut by length."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)
        self.lengths = torch.tensor([len(text) for text in self.texts], dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, indices: Tensor) -> list[str]:
        return [self.texts[i] for i in indices.tolist()]

    def part(self, indices: np.ndarray) -> Texts:
        return Texts([self.texts[i] for i in indices.tolist()])


def texts_hash(*parts: Sequence[str]) -> str:
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

    A blank label, -1, NaN or null means unlabeled. Without a validation file, a share of the labeled texts is held
    out, stratified by class; how many held-out texts are training texts too is among the run's facts.

    Args:
        path: the file, or hf:NAME_OR_FOLDER for Hugging Face datasets.
        unlabeled_path: a file of further unlabeled texts; a label column in it is not read.
        validation_path: a file of labeled texts that steer the multipliers and select the model.
        test_path: a file of labeled texts to report on.
        text: the column of the texts.
        label: the column of the labels.
        validation: share of the labeled texts held out where there is no validation file.
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

    def load_rows(self) -> RowTask:
        """The texts of the files; no validation set is cut from them."""
        texts, names, known, y, unlabeled = self._read()
        labeled = Labeled(Texts(texts).part(known), torch.from_numpy(y))
        validation = self._held(self.validation_path, "validation", names) if self.validation_path else None
        test = self._held(self.test_path, "test", names) if self.test_path else None
        parts = [one for one in (labeled, validation, test) if one is not None]
        listed = [one.inputs[torch.arange(len(one))] for one in parts] + [unlabeled]
        labels = ["".join(f"{label}," for label in one.labels.tolist()) for one in parts]
        name = Path(self.path).stem
        return RowTask(name, names, labeled, Texts(unlabeled), validation, test, "text", texts_hash(*listed, labels))

    def _read(self) -> tuple[list[str], tuple[str, ...], np.ndarray, np.ndarray, list[str]]:
        """All texts, the class names, the places of labeled texts, their classes, and the texts without a label."""
        if not self.path:
            raise InputError("the text recipe needs a file: csst train text --data.path FILE.csv")
        texts, words = self._labeled(self.path, "train")
        names = class_names_of(words)
        if len(names) < 2:
            raise InputError(
                f"{self.path} must hold labels of at least two classes; found {', '.join(names) or 'no label at all'}"
            )
        known = np.array([i for i, word in enumerate(words) if word is not None], dtype=np.int64)
        y = np.array([names.index(word) for word in words if word is not None], dtype=np.int64)
        unlabeled = [text for text, word in zip(texts, words, strict=True) if word is None]
        if self.unlabeled_path:
            unlabeled += texts_of(read_table(self.unlabeled_path), self.text, self.unlabeled_path)
        return texts, names, known, y, unlabeled

    def load(self, seed: int) -> Task:
        texts, names, known, y, unlabeled = self._read()
        pool, keep = Texts(texts).part(known), np.ones(len(known), dtype=bool)
        if self.validation_path:
            validation = self._held(self.validation_path, "validation", names)
        else:
            out = hold_out(y, self.validation, seed, names)
            keep[out] = False
            validation = Labeled(pool.part(out), torch.from_numpy(y[out]))
        index = np.flatnonzero(keep)
        labeled = Labeled(pool.part(index), torch.from_numpy(y[index]))
        test = self._held(self.test_path, "test", names) if self.test_path else None
        trained = {*(texts[i] for i in known[index].tolist()), *unlabeled}
        held = [
            text for part in (validation, test) if part is not None for text in part.inputs[torch.arange(len(part))]
        ]
        facts = {"held_out_texts_also_in_training": sum(text in trained for text in held)}
        name = Path(self.path).stem
        return make_texts(name, names, labeled, Texts(unlabeled), validation, test, self.views, facts=facts)

    def _labeled(self, path: str, split: str) -> tuple[list[str], list[str | None]]:
        table = read_table(path, split)
        return texts_of(table, self.text, path), labels_of(column(table, self.label, path))

    def _held(self, path: str, split: str, names: tuple[str, ...]) -> Labeled:
        texts, words = self._labeled(path, split)
        return Labeled(Texts(texts), torch.from_numpy(class_numbers(words, names, path)))


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

    def load(self, seed: int) -> Task:
        if not self.path:
            raise InputError("this recipe needs the texts: --data.path TRAIN.parquet --data.test_path TEST.parquet")
        if not self.test_path and not self.path.startswith(HUGGING_FACE) and not Path(self.path).is_dir():
            raise InputError("--data.path is a file of training texts, so --data.test_path FILE is needed too")
        pool, held = read_table(self.path, "train"), read_table(self.test_path or self.path, "test")
        texts, words = self._columns(pool, self.path)
        names = class_names_of(words)
        if self.classes and self.classes != len(names):
            raise InputError(f"{self.path} has {len(names)} classes, but this recipe is for {self.classes}")
        y = class_numbers(words, names, self.path)
        held_texts, held_words = self._columns(held, self.test_path or self.path)
        held_y = class_numbers(held_words, names, self.test_path or self.path)
        seen = set(texts)
        fresh = np.array([i for i, text in enumerate(held_texts) if text not in seen], dtype=np.int64)
        if not len(fresh):
            raise InputError(
                f"every text of {self.test_path or self.path} is a training text too: give others by --data.test_path"
            )
        cut = long_tail(y, self.labeled, self.unlabeled, self.imbalance, seed=seed)
        halved = split_held_out(held_y[fresh], seed, names, self.validation, self.test)
        split = Split(cut.labeled, cut.unlabeled, fresh[halved[0]], fresh[halved[1]])

        def part(source: Sequence[str], labels: np.ndarray, index: np.ndarray) -> Labeled:
            return Labeled(Texts([source[i] for i in index.tolist()]), torch.from_numpy(labels[index]))

        return make_texts(
            Path(self.path).stem,
            names,
            part(texts, y, split.labeled),
            Texts([texts[i] for i in split.unlabeled.tolist()]),
            part(held_texts, held_y, split.validation),
            part(held_texts, held_y, split.test),
            self.views,
            unlabeled_truth=torch.from_numpy(y[split.unlabeled]),
            facts={"held_out_texts_also_in_training_left_out": len(held_texts) - len(fresh)},
        )

    def _columns(self, table: Columns, path: str) -> tuple[list[str], list[str | None]]:
        return texts_of(table, self.text, path), labels_of(column(table, self.label, path))


def class_numbers(words: Sequence[str | None], names: tuple[str, ...], path: str) -> np.ndarray:
    """The classes of labels as numbers; a label that is missing or unknown is an error."""
    number = {name: at for at, name in enumerate(names)}
    wrong = ["no label"] if None in words else []
    wrong += sorted({repr(word) for word in words if word is not None and word not in number})
    if wrong:
        raise InputError(
            f"every text of {path} needs one of the classes {', '.join(names)}; found {', '.join(wrong[:5])}"
        )
    return np.array([number[word] for word in words if word is not None], dtype=np.int64)


def make_texts(
    name: str,
    class_names: tuple[str, ...],
    labeled: Labeled,
    unlabeled: Texts,
    validation: Labeled,
    test: Labeled | None,
    views: TextViews,
    **more: object,
) -> Task:
    """A task of texts; its strong view is fitted on the training texts only."""
    parts = [labeled, validation, *([test] if test is not None else [])]
    listed = [part.inputs.texts for part in parts if isinstance(part.inputs, Texts)] + [unlabeled.texts]
    labels = ["".join(f"{label}," for label in part.labels.tolist()) for part in parts]
    known = [*listed[0], *unlabeled.texts]
    return Task(
        name,
        class_names,
        labeled,
        unlabeled,
        validation,
        test,
        strong=views.build(known),
        kind="text",
        split_hash=texts_hash(*listed, labels),
        **more,  # type: ignore[arg-type]
    )
