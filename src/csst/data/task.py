"""A task: labeled, unlabeled, validation and test examples, and their views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from csst.data.examples import Examples, as_examples, as_rows, choose, join_examples
from csst.data.row_hashes import hash_rows, order_by_content
from csst.data.splits import hold_out, split_hash
from csst.data.tabular.columns import Columns
from csst.data.tabular.table_views import make_table_views
from csst.data.tabular.tables import compute_moments, is_sparse
from csst.errors import InputError
from csst.maths.confusion import refuse_empty_classes

View = Callable[[Any, torch.Generator], Any]


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
    """Inputs with their classes, int64 in 0 .. K-1, and their groups of rows, int64 or -1 if unknown; None if none."""

    inputs: Examples
    labels: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise InputError(f"each example needs one label; found {len(self.inputs)} and {len(self.labels)}")
        if self.groups is not None and len(self.groups) != len(self.labels):
            raise InputError(f"each example needs one group; found {len(self.labels)} and {len(self.groups)}")

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, index: np.ndarray) -> Labeled:
        """Return the examples at these indices."""
        places = torch.from_numpy(index)
        return Labeled(
            choose(self.inputs, index), self.labels[places], None if self.groups is None else self.groups[places]
        )

    def join(self, other: Labeled) -> Labeled:
        """Return these examples and others; their groups are known if both parts have groups."""
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = torch.cat([self.groups, other.groups])
        return Labeled(join_examples(self.inputs, other.inputs), torch.cat([self.labels, other.labels]), groups)

    def in_content_order(self) -> Labeled:
        """Return the same rows sorted by content."""
        return self.part(order_by_content(self.inputs, self.labels.numpy()))


@dataclass(frozen=True)
class Task:
    """All that a learner is given: labeled and unlabeled examples, and what there is to judge by.

    Measuring uses the original examples, never a view. `make_task` builds a task from arrays.

    Args:
        name: name of the data.
        class_names: K names.
        labeled: examples to learn from, with their classes.
        unlabeled: examples without classes; there may be none.
        validation: examples by which models are selected and multipliers move; None if none are held out, and every
            label is judged out of fold.
        test: examples for the finished model only; None if there are none.
        views: alpha(x), the weak view, whose prediction becomes the pseudo-label (paper, Sec. 4), and A(x), the strong
            view, which learns the pseudo-label; None takes examples unchanged.
        kind: kind of the examples.
        columns: the columns of a table; None if there is none, or if all columns hold numbers.
        unlabeled_truth: classes of the unlabeled examples, used only to report how many pseudo-labels were right.
        split_hash: a fingerprint of the content.
        facts: facts about the data, for metrics.json.
        moments: mean and deviation of each feature, by which a network standardizes; None measures the labeled and
            unlabeled examples.
        projection: mean (D,) and directions (D, components) by which embeddings were projected; None if they were not.
        certifying: examples that certify bounds and have no other use; None without a confidence.
        kept_apart: unlabeled examples that certify a coverage and have no other use.
        row_hashes: hashes of the original examples, see `csst.data.row_hashes`; None if the parts hold these.
        group_column: the column of groups of rows; "" if there is none.
        group_names: the values of that column.
        unlabeled_groups: groups of the unlabeled examples, -1 if unknown; None without groups.
    """

    name: str
    class_names: tuple[str, ...]
    labeled: Labeled
    unlabeled: Examples
    validation: Labeled | None = None
    test: Labeled | None = None
    views: tuple[View, View] | None = None
    kind: Literal["array", "image", "text"] = "array"
    columns: Columns | None = None
    unlabeled_truth: Tensor | None = None
    split_hash: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    moments: tuple[np.ndarray, np.ndarray] | None = None
    projection: tuple[Tensor, Tensor] | None = None
    certifying: Labeled | None = None
    kept_apart: Examples | None = None
    row_hashes: np.ndarray | None = None
    group_column: str = ""
    group_names: tuple[str, ...] = ()
    unlabeled_groups: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) < 2:
            raise InputError(f"at least two classes are needed; found {list(self.class_names)}")
        for name, part in self.parts.items():
            if name != "certifying":  # these need not have every class
                check_labels(part.labels, name, self.class_names)

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return len(self.class_names)

    @property
    def parts(self) -> dict[str, Labeled]:
        """The labeled, validation, test and certifying examples, by name, as far as there are any."""
        parts = {name: getattr(self, name) for name in ("labeled", "validation", "test", "certifying")}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def weak(self) -> View:
        """alpha(x), the view whose prediction becomes the pseudo-label."""
        return identity_view if self.views is None else self.views[0]

    @property
    def strong(self) -> View:
        """A(x), the view that learns the pseudo-label."""
        return identity_view if self.views is None else self.views[1]

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
        """The class fractions of the validation examples, or else of the labels, under which a model is judged."""
        judge = self.labeled if self.validation is None else self.validation
        return torch.bincount(judge.labels, minlength=self.classes).double() / len(judge)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example; () for texts, which are not tensors."""
        batch = self.labeled.inputs[torch.tensor([0])]
        return tuple(batch.shape[1:]) if isinstance(batch, Tensor) else ()

    @property
    def measured(self) -> Any:
        """The rows by which columns are measured: the unlabeled rows if there are any, else the labeled rows."""
        return as_rows(self.unlabeled if len(self.unlabeled) else self.labeled.inputs)

    @property
    def column_sizes(self) -> tuple[int, ...]:
        """Number of categories of each column of a table, 0 for numbers."""
        if self.columns is None:
            return (0,) * as_rows(self.labeled.inputs).shape[1]
        return tuple(self.columns.sizes)

    @property
    def digest(self) -> str:
        """A fingerprint of the labeled and validation rows with their labels."""
        return split_hash(*_list_arrays(self.labeled), *_list_arrays(self.validation))

    def require(self, part: Literal["validation", "test", "certifying"]) -> Labeled:
        """Return the validation, test or certifying examples; raise an error if there are none.

        Args:
            part: name of the part.

        Returns:
            The examples with their classes.
        """
        examples: Labeled | None = getattr(self, part)
        if examples is None:
            raise InputError(f"{self.name} has no {part} examples: add some, or leave out what needs them")
        return examples

    def with_validation(self, fraction: float, seed: int) -> Task:
        """Return the task with a fraction of the labeled examples of each class held out, unless there are some.

        Args:
            fraction: between 0 and 1.
            seed: seed of the choice.

        Returns:
            The task with validation examples.
        """
        if self.validation is not None:
            return self
        rows = hold_out(self.labeled.labels.numpy(), fraction, seed, self.class_names)
        other_rows = np.setdiff1d(np.arange(len(self.labeled)), rows)
        return replace(self, labeled=self.labeled.part(other_rows), validation=self.labeled.part(rows))

    def join_validation(self) -> Task:
        """Return the task whose validation examples are labeled ones, too, if there are any.

        Returns:
            The task with more labeled examples; its validation examples stay.
        """
        if self.validation is None:
            return self
        return replace(self, labeled=self.labeled.join(self.validation))

    def with_views(self, views: tuple[View, View] | Literal["table", "embedding"]) -> Task:
        """Return the rows of numbers with these views, and the moments by which a network standardizes columns.

        Args:
            views: a weak and a strong view; or the views of a table or of embeddings.

        Returns:
            The task with views and moments.
        """
        if isinstance(views, str):
            views = make_table_views(self.measured, self.column_sizes, views)
        return replace(self, views=views, moments=compute_moments(self.measured))

    def with_inputs(self, convert: Callable[[Examples, str], Examples]) -> Task:
        """Return the task with the inputs of every part converted.

        Args:
            convert: function of inputs and the name of their part, such as "labeled examples".

        Returns:
            The task with other inputs.
        """
        changes: dict[str, Any] = {
            name: replace(part, inputs=convert(part.inputs, f"{name} examples")) for name, part in self.parts.items()
        }
        changes["unlabeled"] = convert(self.unlabeled, "unlabeled examples")
        if self.kept_apart is not None:
            changes["kept_apart"] = convert(self.kept_apart, "unlabeled examples kept apart")
        return replace(self, **changes)

    def flattened(self) -> Task:
        """Return the same examples as rows of numbers, (N, D); sparse ones stay sparse.

        Returns:
            The task with other inputs.
        """
        return self.with_inputs(lambda inputs, _: as_examples(as_rows(inputs)))

    def in_content_order(self) -> Task:
        """Return the same rows, each part sorted by content; test rows, which are never sampled, keep their order.

        Folds, forests, landmarks and batches then do not depend on the original order of the rows.

        Returns:
            The sorted task.
        """
        order = order_by_content(self.unlabeled)
        changes: dict[str, Any] = {"unlabeled": choose(self.unlabeled, order)}
        if self.unlabeled_groups is not None:
            changes["unlabeled_groups"] = self.unlabeled_groups[torch.from_numpy(order)]
        if self.kept_apart is not None:
            changes["kept_apart"] = choose(self.kept_apart, order_by_content(self.kept_apart))
        for name, part in self.parts.items():
            if name != "test":
                changes[name] = part.in_content_order()
        return replace(self, **changes)

    def hash_rows(self) -> np.ndarray:
        """Return hashes of all examples that are used in a fit, see `csst.data.row_hashes`.

        Returns:
            Hashes, (N,), uint64.
        """
        if self.row_hashes is not None:
            return self.row_hashes
        inputs = [part.inputs for name, part in self.parts.items() if name != "test"]
        inputs.append(self.unlabeled)
        if self.kept_apart is not None:
            inputs.append(self.kept_apart)
        return np.concatenate([hash_rows(examples) for examples in inputs])


def _list_arrays(part: Labeled | None) -> list[np.ndarray]:
    """Return the arrays that hold labeled rows."""
    if part is None:
        return []
    inputs = part.inputs
    if is_sparse(inputs):
        matrix = as_rows(inputs)
        return [matrix.data, matrix.indices, matrix.indptr, part.labels.numpy()]
    return [np.asarray(inputs), part.labels.numpy()]


def check_labels(labels: Tensor, part: str, class_names: tuple[str, ...]) -> None:
    """Raise an error for labels out of range and for classes without an example."""
    if len(labels) and (int(labels.min()) < 0 or int(labels.max()) >= len(class_names)):
        raise InputError(
            f"{part} labels must lie in 0 .. {len(class_names) - 1}; found {int(labels.min())} to {int(labels.max())}"
        )
    counts = torch.bincount(labels, minlength=len(class_names))
    refuse_empty_classes(counts, class_names, "recall", f"the {part} examples")


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


def refuse_other_shapes(*parts: Examples) -> None:
    """Raise an error if tensors of inputs hold examples of different shapes."""
    shapes = {tuple(inputs.shape[1:]) for inputs in parts if isinstance(inputs, Tensor)}
    if len(shapes) > 1:
        raise InputError(f"all parts of the data must have inputs of one shape; found {sorted(shapes)}")


def hash_parts(unlabeled: Tensor, *parts: Labeled | None) -> str:
    """Return a short fingerprint of tensors: of the labeled parts in this order, then of the unlabeled inputs."""
    content = [np.asarray(values) for part in parts if part is not None for values in (part.inputs, part.labels)]
    return split_hash(*content, unlabeled.numpy())


def make_task(
    name: str,
    labeled: tuple[Any, Any],
    unlabeled: Any,
    validation: tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    class_names: tuple[str, ...] | None = None,
    **fields: Any,
) -> Task:
    """Return a task from arrays or tensors, given as (inputs, labels) pairs; `fields` are further fields of `Task`."""
    pairs = {"labeled": labeled, "validation": validation, "test": test}
    parts = {
        part: Labeled(as_inputs(pair[0], f"{part} inputs"), as_labels(pair[1], f"{part} labels"))
        for part, pair in pairs.items()
        if pair is not None
    }
    inputs = as_inputs(unlabeled, "unlabeled inputs")
    refuse_other_shapes(inputs, *(part.inputs for part in parts.values()))
    if class_names is None:
        largest_label = int(max(part.labels.max() for part in parts.values() if len(part)))
        class_names = tuple(str(c) for c in range(largest_label + 1))
    fields.setdefault("split_hash", hash_parts(inputs, *parts.values()))
    return Task(name, class_names, parts["labeled"], inputs, parts.get("validation"), parts.get("test"), **fields)
