"""Mistakes to look at, by cell of the confusion: thumbnails of images, texts, or rows of a table."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from csst.data.tabular.columns import Columns, as_text
from csst.data.tabular.dates import EPOCH
from csst.data.task import Labeled
from csst.rules import Rule

#: examples on a page, and of one cell of the confusion
MOST_EXAMPLES = 40
MOST_PER_CELL = 5
#: width and height of a thumbnail in pixels, at most
THUMBNAIL = 64
#: characters of a text, and columns of a row, that are shown
TEXT = 280
MOST_COLUMNS = 8
#: rows by which the columns that vary most are found
SAMPLE = 1000


@dataclass(frozen=True)
class Example:
    """An example that was predicted wrongly.

    Args:
        probability: the probability of the true class.
        image: a thumbnail as a data URI; "" if it is no image.
        text: the beginning of a text.
        cells: the cells of a row of a table.
    """

    probability: float
    image: str = ""
    text: str = ""
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class MistakenCell:
    """A cell of the confusion off the diagonal, with its most confident mistakes.

    Args:
        truth: the true class.
        prediction: the predicted class.
        count: examples in the cell.
        head: names of the columns of a table's rows.
        examples: some of the examples.
    """

    truth: str
    prediction: str
    count: int
    head: tuple[str, ...]
    examples: tuple[Example, ...]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MistakenCell:
        """Return a cell from plain values, as in mistakes.json."""
        examples = tuple(Example(**{**example, "cells": tuple(example["cells"])}) for example in values["examples"])
        return cls(**{**values, "head": tuple(values["head"]), "examples": examples})


def find_mistakes(
    examples: Labeled,
    probs: torch.Tensor,
    rule: Rule | None,
    class_names: Sequence[str],
    columns: Columns | None,
) -> list[MistakenCell]:
    """Return the mistakes of a model with its rule.

    Args:
        examples: N examples with their classes.
        probs: probabilities of the model, (N, K).
        rule: the decision rule; None for the most probable class.
        class_names: K names.
        columns: the columns of a table; None for other examples.
    """
    predictions = probs.argmax(1) if rule is None else rule.predict(probs)
    posterior = probs if rule is None else rule.posterior(probs)
    show, head = make_viewer(examples.inputs, columns)
    names = [*class_names, "no answer"]
    return collect_mistakes(examples.labels.numpy(), predictions.numpy(), posterior.numpy(), names, show, head)


def collect_mistakes(
    labels: np.ndarray,
    predictions: np.ndarray,
    probs: np.ndarray,
    class_names: Sequence[str],
    show: Callable[[int, float], Example],
    head: Sequence[str] = (),
) -> list[MistakenCell]:
    """Return the largest cells off the diagonal of the confusion, each with the examples whose truth is least probable.

    Args:
        labels: true classes, (N,).
        predictions: predicted classes, (N,).
        probs: probabilities, (N, K).
        class_names: K names.
        show: makes an example of its index and the probability of its true class.
        head: names of the columns of a table's rows.
    """
    mistakes = np.flatnonzero(labels != predictions)
    members: dict[tuple[int, int], list[int]] = {}
    for index in mistakes[np.argsort(probs[mistakes, labels[mistakes]], kind="stable")].tolist():
        members.setdefault((int(labels[index]), int(predictions[index])), []).append(index)
    cells = []
    room = MOST_EXAMPLES
    for (truth, prediction), indices in sorted(members.items(), key=lambda cell: (-len(cell[1]), cell[0])):
        sample = indices[: min(MOST_PER_CELL, room)]
        room -= len(sample)
        if not sample:
            break
        examples = tuple(show(index, float(probs[index, truth])) for index in sample)
        cells.append(MistakenCell(class_names[truth], class_names[prediction], len(indices), tuple(head), examples))
    return cells


def make_viewer(inputs: Any, columns: Columns | None) -> tuple[Callable[[int, float], Example], list[str]]:
    """Return a function that shows an example by its index, and the names of the columns of rows.

    Args:
        inputs: images, texts or rows.
        columns: the columns of a table; None for others.
    """

    def take(index: int) -> Any:
        return inputs[torch.tensor([index])][0]

    sample = take(0)
    if not isinstance(sample, torch.Tensor):
        return lambda index, probability: Example(probability, text=str(take(index))[:TEXT]), []
    if sample.ndim == 3:
        return lambda index, probability: Example(probability, image=make_thumbnail(take(index))), []
    names = [f"x{n}" for n in range(sample.numel())]
    if columns is not None:
        names = [column.name for column in columns.inputs]
    places = find_varied(inputs, len(names))

    def show(index: int, probability: float) -> Example:
        row = take(index).flatten().tolist()
        cells = [f"{value:.6g}" for value in row] if columns is None else decode_row(row, columns)
        return Example(probability, cells=tuple(cells[place] for place in places))

    return show, [names[place] for place in places]


def find_varied(inputs: Any, count: int) -> list[int]:
    """Return the places of the columns that vary most: whose most frequent value is least frequent, in their order."""
    sample = inputs[torch.arange(min(len(inputs), SAMPLE))].flatten(1)[:, :count]
    shares = [float(column.unique(return_counts=True)[1].max()) / len(sample) for column in sample.T]
    return sorted(sorted(range(count), key=lambda place: shares[place])[:MOST_COLUMNS])


def decode_row(row: Sequence[float], columns: Columns) -> list[str]:
    """Return an encoded row as the texts of its columns."""
    cells = []
    names = columns.names or ()
    for index, column in enumerate(columns.inputs):
        flag = f"{column.name} is missing"
        if column.has_gaps and row[names.index(flag)]:
            cells.append("")
        elif column.kind == "category":
            code = int(row[index])
            cells.append((as_text(column.categories[code]) or "") if code >= 0 else "?")
        elif column.kind == "date":
            cells.append(f"{np.datetime64(EPOCH, 'D') + int(row[index] + column.offset)}")
        else:
            cells.append(f"{row[index] + column.offset:.{12 if column.offset else 6}g}")
    return cells


def make_thumbnail(image: torch.Tensor) -> str:
    """Return an image (C, H, W), uint8 or floats in 0 ... 1, as the data URI of a small JPEG."""
    from PIL import Image

    pixels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).to(torch.uint8)
    array = pixels.permute(1, 2, 0).cpu().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array[:, :, :3])
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
