"""A task: labeled, unlabeled, validation and test examples, and their views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from csst.data.splits import split_hash
from csst.data.tabular.columns import Columns
from csst.errors import InputError
from csst.maths.confusion import refuse_empty_classes

View = Callable[[Any, torch.Generator], Any]


class Examples(Protocol):
    """Inputs that can be fetched by index; a tensor is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor) -> Any: ...


def identity_view(batch: Any, generator: torch.Generator) -> Any:
    """Return examples unchanged, as a view.

    Args:
        batch: B examples, as in the parts of a task.
        generator: source of random numbers, unused here.

    Returns:
        The same B examples.
    """
    return batch


@dataclass(frozen=True)
class Labeled:
    """Inputs with their classes, int64 in 0 .. K-1."""

    inputs: Examples
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InputError(f"each example needs one label; found {len(self.inputs)} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Task:
    """Labeled, unlabeled, validation and test examples with weak and strong views.

    Measuring uses the original examples, never a view. `make_task` builds a task from arrays.

    Args:
        name: name of the data.
        class_names: K names.
        labeled: examples to learn from, with their classes.
        unlabeled: examples without classes.
        validation: examples on which models are selected and multipliers move.
        test: examples for the finished model only; None if there are none.
        weak: alpha(x), the view whose prediction becomes the pseudo-label (paper, Sec. 4).
        strong: A(x), the view that learns the pseudo-label.
        kind: kind of the examples.
        unlabeled_truth: classes of the unlabeled examples, used only to report how many pseudo-labels were right.
        split_hash: a fingerprint of the content.
        facts: facts about the data, for metrics.json.
        moments: mean and deviation of each feature, by which a network standardizes; None measures the labeled and
            unlabeled examples.
        projection: mean (D,) and directions (D, components) by which embeddings were projected; None if they were not.
        certifying: examples that certify bounds and have no other use; None without a confidence.
        kept_apart: unlabeled examples that certify a coverage and have no other use.
        row_hashes: hashes of the original examples, see `csst.data.row_hashes`; None if unknown.
        columns: the columns of a table with names; None for other examples.
    """

    name: str
    class_names: tuple[str, ...]
    labeled: Labeled
    unlabeled: Examples
    validation: Labeled
    test: Labeled | None
    weak: View = identity_view
    strong: View = identity_view
    kind: Literal["array", "image", "text"] = "array"
    unlabeled_truth: Tensor | None = None
    split_hash: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    moments: tuple[np.ndarray, np.ndarray] | None = None
    projection: tuple[Tensor, Tensor] | None = None
    certifying: Labeled | None = None
    kept_apart: Examples | None = None
    row_hashes: np.ndarray | None = None
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_parts(self.class_names, labeled=self.labeled, validation=self.validation, test=self.test)

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return len(self.class_names)

    @property
    def train_counts(self) -> Tensor:
        """Number of labeled examples of each class, (K,)."""
        return torch.bincount(self.labeled.labels, minlength=self.classes)

    @property
    def train_prior(self) -> Tensor:
        """pi: the class fractions of the labeled examples."""
        return self.train_counts.double() / len(self.labeled)

    @property
    def validation_prior(self) -> Tensor:
        """The class fractions of the validation examples, under which a model is judged."""
        return torch.bincount(self.validation.labels, minlength=self.classes).double() / len(self.validation)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example; () for texts, which are not tensors."""
        batch = self.labeled.inputs[torch.tensor([0])]
        return tuple(batch.shape[1:]) if isinstance(batch, Tensor) else ()


def check_parts(class_names: tuple[str, ...], **parts: Labeled | None) -> None:
    """Raise an error for labels out of range and for classes without an example."""
    for where, part in parts.items():
        if part is None:
            continue
        if len(part) and (int(part.labels.min()) < 0 or int(part.labels.max()) >= len(class_names)):
            raise InputError(
                f"{where} labels must lie in 0 .. {len(class_names) - 1}; "
                f"found {int(part.labels.min())} to {int(part.labels.max())}"
            )
        counts = torch.bincount(part.labels, minlength=len(class_names))
        refuse_empty_classes(counts, class_names, "recall", f"the {where} examples")


@dataclass(frozen=True)
class RowTask:
    """The examples of a file, for learners that hold out no validation set: `validation` may be None."""

    name: str
    class_names: tuple[str, ...]
    labeled: Labeled
    unlabeled: Examples
    validation: Labeled | None
    test: Labeled | None
    kind: Literal["array", "image", "text"]
    split_hash: str
    facts: dict[str, Any] = field(default_factory=dict)
    columns: Columns | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) < 2:
            raise InputError(f"at least two classes are needed; found {list(self.class_names)}")
        check_parts(self.class_names, labeled=self.labeled, validation=self.validation, test=self.test)

    @classmethod
    def from_task(cls, task: Task) -> RowTask:
        """Return the parts of a task, including its validation set."""
        parts = (task.labeled, task.unlabeled, task.validation, task.test)
        return cls(task.name, task.class_names, *parts, task.kind, task.split_hash, task.facts)

    def as_task(self, **fields: Any) -> Task:
        """Return the examples as a task, which needs a validation set; `fields` are its views and other fields."""
        assert self.validation is not None
        parts = (self.labeled, self.unlabeled, self.validation, self.test)
        fields = {"kind": self.kind, "split_hash": self.split_hash, "facts": self.facts, **fields}
        return Task(self.name, self.class_names, *parts, **fields)


def as_inputs(values: Any, what: str) -> Tensor:
    """Return inputs as a tensor, uint8 or else float32; raise an error that names rows with NaN or infinity."""
    try:
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be an array of numbers ({error})") from None
    if tensor.ndim < 2 or tensor.is_complex():
        raise InputError(f"{what} must have one row per example, shape (N, features...); found {tuple(tensor.shape)}")
    if tensor.dtype == torch.uint8:
        return tensor
    tensor = tensor.to(torch.float32)
    rows = (~torch.isfinite(tensor).flatten(1).all(1)).nonzero().flatten().tolist()
    if rows:
        raise InputError(f"{what} must be finite; {len(rows)} rows are not, the first {rows[:5]}: drop or impute them")
    return tensor


def as_labels(values: Any, what: str) -> Tensor:
    """Return class indices as int64; raise an error for anything but a vector of integers."""
    array = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{what} must be a vector of integers; found shape {array.shape} of {array.dtype}")
    return torch.from_numpy(array.astype(np.int64))


def hash_parts(unlabeled: Tensor, *parts: Labeled | None) -> str:
    """Return a short fingerprint of tensors: of the labeled parts in this order, then of the unlabeled inputs."""
    content = [np.asarray(values) for part in parts if part is not None for values in (part.inputs, part.labels)]
    return split_hash(*content, unlabeled.numpy())


def make_task(
    name: str,
    labeled: tuple[Any, Any],
    unlabeled: Any,
    validation: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    class_names: tuple[str, ...] | None = None,
    **fields: Any,
) -> Task:
    """Return a task from arrays or tensors, given as (inputs, labels) pairs; `fields` are further fields of `Task`."""
    pairs = {"labeled": labeled, "validation": validation}
    if test is not None:
        pairs["test"] = test
    parts = {k: Labeled(as_inputs(x, f"{k} inputs"), as_labels(y, f"{k} labels")) for k, (x, y) in pairs.items()}
    inputs = as_inputs(unlabeled, "unlabeled inputs")
    shapes = {tuple(part.inputs.shape[1:]) for part in parts.values() if isinstance(part.inputs, Tensor)}
    shapes.add(tuple(inputs.shape[1:]))
    if len(shapes) > 1:
        raise InputError(f"all parts of the data must have inputs of one shape; found {sorted(shapes)}")
    if class_names is None:
        largest_label = int(max(part.labels.max() for part in parts.values() if len(part)))
        class_names = tuple(str(c) for c in range(largest_label + 1))
    fields.setdefault("split_hash", hash_parts(inputs, *parts.values()))
    return Task(name, class_names, parts["labeled"], inputs, parts["validation"], parts.get("test"), **fields)
