"""A finished run as a classifier of new examples, from the run's folder alone: the training data is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csst.data.embeddings import Embedder
from csst.data.images.files import ImageFolder
from csst.data.images.listing import unlabeled_files
from csst.data.images.reading import ImageFiles
from csst.data.tabular.arrays import read_npz
from csst.data.task import Examples, as_inputs
from csst.data.text.files import read_table, texts_of
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.learners.portfolio import Portfolio
from csst.learners.store import unpack
from csst.models import build
from csst.models.encoders import encoder
from csst.recipes.recipe import Recipe
from csst.rules import DecisionRule, rule_from_dict
from csst.runs.folder import Run
from csst.runs.members import MODEL, flatten
from csst.training.evaluation import compute_logits


@dataclass(frozen=True)
class Classifier:
    """A run's model with what it needs to read new examples: the selected one, or the last with its decision rule."""

    recipe: Recipe
    model: nn.Module
    class_names: tuple[str, ...]
    kind: str
    input_shape: tuple[int, ...]
    fingerprint: str = ""  # of the encoder that the head was trained on
    rule: DecisionRule | None = None
    portfolio: Portfolio | None = None

    def predict(self, probs: Tensor) -> Tensor:
        """The class of every example: by the post-hoc rule where there is one, else the most probable."""
        return probs.argmax(1) if self.rule is None else self.rule.predict(probs)

    def posterior(self, probs: Tensor) -> Tensor:
        """Calibrated probabilities where there is a rule, else those of the model."""
        return probs if self.rule is None else self.rule.posterior(probs)

    def read(self, path: str, column: str = "") -> tuple[Examples, list[str]]:
        """New examples from a file or folder, and how each is called: its row, or an image's file name."""
        if self.kind == "text":
            texts = texts_of(read_table(path), column or getattr(self.recipe.data, "text", "text"), path)
            return Texts(texts), [str(row) for row in range(len(texts))]
        if self.kind == "image" and Path(path).is_dir():
            files = unlabeled_files(path)
            data = self.recipe.data
            if self.recipe.frozen and not isinstance(data, ImageFolder):
                raise InputError("this run learned from arrays: give the images as an .npz file, not a folder")
            size = data.size if isinstance(data, ImageFolder) else self.input_shape[-1]
            workers = data.workers if isinstance(data, ImageFolder) else 0
            return ImageFiles(files.paths, size, workers), files.names
        inputs = as_inputs(_array(path), "x")
        shape = tuple(inputs.shape[1:])
        if len(shape) != 3 if self.recipe.frozen else shape != self.input_shape:
            wanted = "(channels, height, width)" if self.recipe.frozen else self.input_shape
            raise InputError(f"the model takes inputs of shape {wanted}; {path} has {shape}")
        return inputs, [str(row) for row in range(len(inputs))]

    def logits(self, inputs: Examples) -> Tensor:
        """What the rule looks at the softmax of."""
        portfolio = self.portfolio
        if portfolio is not None:
            return torch.from_numpy(portfolio.probs(flatten(self._embedded(inputs)))).clamp(min=1e-300).log()
        inputs = self._embedded(inputs)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return compute_logits(self.model.to(device), inputs, self.recipe.training.evaluation_batch, device)

    def _embedded(self, inputs: Examples) -> Examples:
        if self.recipe.frozen:
            made: Any = encoder(self.recipe.encoder, self.kind, self.recipe.embedding.max_length)  # type: ignore[arg-type]
            if self.fingerprint not in ("", made.fingerprint):
                raise InputError(
                    f"the encoder {self.recipe.encoder} is another than in training: restore or train again"
                )
            return Embedder(made, self.recipe.embedding)(inputs, "examples")
        return inputs


def _restore_members(run: Run, recipe: Recipe) -> Classifier:
    metrics, path = run.metrics(), run.path(MODEL)
    if not path.is_file():
        raise InputError(f"the run {run.folder} has no {MODEL}: fit it again")
    portfolio = unpack(path.read_bytes(), str(path))
    names, shape = tuple(metrics["class_names"]), tuple(metrics["input_shape"])
    mark = metrics["facts"].get("encoder", "") if recipe.frozen else ""
    rule = rule_from_dict(metrics["posthoc"]["rule"])
    return Classifier(recipe, nn.Identity(), names, metrics["kind"], shape, mark, rule, portfolio)


def restored(folder: str | Path, recipe: Recipe) -> Classifier:
    """The classifier of a finished run."""
    run = Run.open(folder)
    if not recipe.uses_network:
        return _restore_members(run, recipe)
    metrics, state = run.metrics(), run.load("model.pt")
    if state is None:
        raise InputError(f"the run {folder} has no model.pt: train it again")
    shape = tuple(metrics["input_shape"])
    model = build(recipe.network, shape, len(metrics["class_names"]), recipe.seed)
    try:
        model.load_state_dict(state["finished" if "posthoc" in metrics else "model"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the weights of the run {folder} do not fit its network any more: {reason}") from None
    mark = metrics["facts"].get("encoder", "") if recipe.frozen else ""
    rule = rule_from_dict(metrics["posthoc"]["rule"]) if "posthoc" in metrics else None
    return Classifier(recipe, model.eval(), tuple(metrics["class_names"]), metrics["kind"], shape, mark, rule)


def _array(path: str) -> np.ndarray:
    if path.endswith(".npy"):
        if not Path(path).is_file():
            raise InputError(f"there is no file {path!r}")
        try:
            return np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"{path} cannot be read as a plain array: {error}") from None
    return read_npz(path, ("x", "y"), needed=("x",))["x"]
