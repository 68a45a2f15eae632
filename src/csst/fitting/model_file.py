"""The files of a fitted model in a run's folder, and the model built from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from csst.data.embeddings import Embedder
from csst.data.examples import Examples, InputSpec
from csst.data.npz import pack_npz, read_npz
from csst.errors import InputError
from csst.estimation.reference import Projection, Reference
from csst.fitting.folder import Folder
from csst.fitting.metrics import read_label_prior
from csst.fitting.plan import Plan, read_plan
from csst.learners.catalog import load_learner
from csst.maths.costs import cost_table_from_dict
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.models import Projected, build
from csst.models.encoders import encoder
from csst.models.huggingface.text import HuggingFaceTexts
from csst.models.stored import StoredModule, describe_damage, unpack
from csst.rules import Rule, rule_from_dict

#: the model, in a run's folder
MODEL = "model.safetensors"
#: hashes of the rows that the model was fitted on, in a run's folder
ROWS = "rows.npz"

Weights = Literal["selected", "last"]
#: the file in a run's folder
REFERENCE = "reference.npz"
#: arrays of reference.npz
ARRAYS = ("labeled", "labels", "unlabeled", "unlabeled_prior", "width", "mean", "deviation", "sizes")


def unpack_working(content: bytes, what: str, example: Tensor) -> StoredModule:
    """Return the module in the bytes of `pack`, which gives finite scores of classes for an example.

    Args:
        content: content of the file, possibly from a stranger.
        what: name of the file in errors.
        example: inputs that the module must take.
    """
    module = unpack(content, what)
    try:
        with torch.no_grad():
            outputs = module(example)
        if outputs.ndim != 2 or not torch.isfinite(outputs).all():
            raise ValueError("its outputs are not finite scores of classes")
    except Exception as error:  # the tensors of a damaged file can make any operation fail
        raise describe_damage(what, error) from None
    return module


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The content of a complete run's folder, or of one that `FittedModel.save` wrote.

    Args:
        folder: the folder.
        plan: plan of the run; None for a model fitted in Python.
        metrics: content of metrics.json.
        content: content of the model's file, whose checksum is right.
        row_hashes: hashes of the rows of the fit; None if they are not stored.
    """

    folder: Path
    plan: Plan | None
    metrics: dict[str, Any]
    content: bytes
    row_hashes: np.ndarray | None

    @classmethod
    def read(cls, folder: str | Path) -> ModelFile:
        """Read the files of a folder."""
        run = Folder(folder)
        plan = None if run.is_complete and not Folder.exists(folder) else read_plan(folder)
        metrics = run.metrics()
        refuse_numbers_only(folder, metrics)
        content = run.read_checked(MODEL, metrics.get("checksums", {}).get(MODEL, ""))
        rows = run.path(ROWS)
        row_hashes = read_npz(rows, ["rows"], ["rows"])["rows"] if rows.is_file() else None
        return cls(Path(folder), plan, metrics, content, row_hashes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs."""
        return tuple(self.metrics["class_names"])

    @property
    def objective(self) -> Objective:
        """The objective, bound to the classes and the class prior of the labels."""
        names = self.class_names
        costs = cost_table_from_dict(self.metrics.get("costs"))
        if self.plan is None:
            objective = read_objective(self.metrics["objective"], costs=costs).bind(len(names), names)
        else:
            objective = self.plan.bind_objective(names, costs=costs)
        # Numbers of classes are of all rows; groups are in the details of the rule.
        return objective.bind_prior(read_label_prior(self.metrics)).ungrouped

    def read_rule(self) -> Rule | None:
        """Return the decision rule; None if the run fitted none."""
        return rule_from_dict(self.metrics["adjusted"]["rule"]) if "adjusted" in self.metrics else None

    def build_model(self, weights: Weights, make: Callable[[], nn.Module] | None) -> nn.Module:
        """Return the model: learners as their header says, a network as the plan or `make` says.

        Args:
            weights: the network's weights, as selected or at the end of training.
            make: function that makes an untrained network; None for the plan's.
        """
        if "members" in self.metrics:
            for name in [] if self.plan is None else self.plan.learner.split(","):
                if ":" in name:
                    load_learner(name)  # the classes of its modules must exist before they are looked up
            example = torch.zeros(1, math.prod(self.metrics["input_shape"]))
            return unpack_working(self.content, str(self.folder / MODEL), example)
        network = self._make_network() if make is None else make()
        width = self._embedding_width
        if width is not None:
            network = Projected(network, torch.zeros(width), torch.zeros(width, *self.metrics["input_shape"]))
        try:
            tensors = load_tensors(self.content)
            prefix = f"{weights}."
            names = [name for name in tensors if name.startswith(prefix)]
            network.load_state_dict({name.removeprefix(prefix): tensors[name] for name in names})
        except (RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"the weights of the run {self.folder} no longer fit its network: {reason}") from None
        return network.eval()

    def _make_network(self) -> nn.Module:
        if self.plan is None:
            raise InputError(
                f"{self.folder} has no recipe.yaml, which says what its network is: give FittedModel.load the function "
                "that makes an untrained one, make=..."
            )
        shape = tuple(self.metrics["input_shape"])
        columns = Folder(self.folder).columns()
        sizes = () if columns is None else columns.sizes
        return build(self.plan.network, shape, len(self.class_names), self.plan.seed, sizes)

    @property
    def _embedding_width(self) -> int | None:
        """Width of the encoder's vectors if the network takes principal components of them, else None."""
        width = self.metrics.get("facts", {}).get("embedding_width")
        is_projected = self.plan is not None and self.plan.frozen and (width,) != tuple(self.metrics["input_shape"])
        return width if is_projected else None

    def describe_inputs(self, model: nn.Module) -> InputSpec:
        """Return the inputs that the model takes."""
        width = self._embedding_width
        kind = self.metrics["kind"]
        shape = tuple(self.metrics["input_shape"]) if width is None else (width,)
        if self.plan is None:
            return InputSpec(kind, shape, is_embedded=self.metrics["is_embedded"])
        embedder = None
        if self.plan.frozen:
            embedder = make_embedder(self.plan, kind, self.metrics["facts"].get("encoder", ""))
        return InputSpec(
            kind, shape, describe_preprocessing(self.plan, model, self.metrics["facts"]), embedder, self.plan.frozen
        )


def refuse_numbers_only(folder: str | Path, metrics: dict[str, Any]) -> None:
    """Raise an InputError for a comparison row that fitted a function, of which only the numbers are stored."""
    if "checksums" in metrics:
        return
    raise InputError(
        f"{folder} has the numbers of {metrics['method']} in a comparison and no model (csst stores networks and its "
        "own learners): fit it again to use it"
    )


def describe_preprocessing(plan: Plan, model: nn.Module, facts: dict[str, Any]) -> str:
    """Return how raw examples become inputs; "" if the kind of input says it all."""
    if plan.frozen:
        return f"each example is embedded by {plan.encoder} first; the graph takes the vectors"
    if isinstance(model, HuggingFaceTexts):
        return (
            f"texts are cut into tokens by the tokenizer of {plan.network.name}, at most {model.encode.max_length} "
            "with the special ones, and padded with -1 to the longest of the batch"
        )
    return str(facts.get("preprocessing", ""))


def load_embedder(plan: Plan, kind: str) -> Embedder:
    """Return the plan's frozen encoder, with its cache.

    Args:
        plan: names the encoder.
        kind: image or text.
    """
    return Embedder(encoder(plan.encoder, kind, plan.embedding.max_length), plan.embedding)  # type: ignore[arg-type]


def make_embedder(plan: Plan, kind: str, fingerprint: str) -> Callable[[Examples], Examples]:
    """Return the function from raw examples to vectors of the plan's frozen encoder.

    Args:
        plan: names the encoder.
        kind: image or text.
        fingerprint: fingerprint of the encoder of the training, from which the present one must not differ; "" for any.
    """

    def embed(inputs: Examples) -> Examples:
        embedder = load_embedder(plan, kind)
        if fingerprint not in ("", embedder.fingerprint):
            raise InputError(
                f"the encoder {plan.encoder} differs from the one used in training: restore that one, or train again"
            )
        return embedder(inputs, "examples")

    return embed


def pack_reference(reference: Reference) -> bytes:
    """Return a reference as an .npz file."""
    projection = {name: getattr(reference.projection, name) for name in ("width", "mean", "deviation")}
    rows = {name: getattr(reference, name) for name in ARRAYS if name not in projection}
    return pack_npz({**rows, **projection}, compresses=True)


def read_reference(run: Folder) -> Reference | None:
    """Read what `pack_reference` wrote into a run, with names of the columns; None where there is no such file."""
    path = run.path(REFERENCE)
    if not path.is_file():
        return None
    arrays = read_npz(path, ARRAYS, required_names=ARRAYS)
    reference = Reference(
        arrays["labeled"],
        arrays["labels"],
        arrays["unlabeled"],
        arrays["unlabeled_prior"],
        Projection(int(arrays["width"]), arrays["mean"], arrays["deviation"]),
        tuple(arrays["sizes"].tolist()),
    )
    columns = run.columns()
    return reference.with_names(None if columns is None else columns.names)
