"""A finished run as something to export: its network, its decision rule, and what its card says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.images.files import ImageFolder
from csst.errors import InputError
from csst.export import Exportable
from csst.learners.graph import PortfolioScores
from csst.models.huggingface.text import HuggingFaceTexts
from csst.models.wide_resnet import Pixels
from csst.runs.folder import Run
from csst.runs.restore import Classifier


class TextGraph(nn.Module):
    """A classifier of token numbers (B, L) without a branch on their values, which a graph cannot hold."""

    def __init__(self, model: HuggingFaceTexts) -> None:
        super().__init__()
        self.network, self.padding = model.network, model.padding

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids >= 0
        first = torch.arange(ids.shape[1], device=ids.device) == 0
        mask = mask | (first & ~mask.any(1, keepdim=True))  # a text without a token attends to one padding token
        words = torch.where(ids < 0, torch.full_like(ids, self.padding), ids)
        return self.network(input_ids=words, attention_mask=mask.long()).logits


def exportable(classifier: Classifier, folder: str | Path) -> Exportable:
    """The classifier of a finished run, with the run's numbers for its card."""
    metrics, model = Run.open(folder).metrics(), classifier.model
    example, words = example_of(classifier)
    finished = classifier.rule is not None
    numbers = metrics["posthoc"] if finished else metrics
    measured = {
        part: {**numbers[part]["intervals"], **_basis(numbers[part])}
        for part in ("validation", "test")
        if part in numbers
    }
    card = {
        "objective": metrics["objective"],
        "method": f"{metrics['method']}{' + post-hoc' if finished else ''}, recipe {metrics['recipe']}",
        "data_hash": metrics["split_hash"],
        "preprocessing": words,
        "measured": measured,
        "notes": metrics.get("warnings", []),
    }
    graph = TextGraph(model) if isinstance(model, HuggingFaceTexts) else model
    if classifier.portfolio is not None:
        graph, example = PortfolioScores(classifier.portfolio), example.float().flatten(1)
    return Exportable(graph, example, classifier.class_names, classifier.rule, card)


def _basis(numbers: dict[str, Any]) -> dict[str, str]:
    """What an estimate is known from, where the numbers are one."""
    return {"basis": numbers["estimate"]["basis"]} if "estimate" in numbers else {}


def example_of(classifier: Classifier) -> tuple[Tensor, str]:
    """Inputs that the model takes, and in words how raw examples become such inputs."""
    recipe, model, shape = classifier.recipe, classifier.model, classifier.input_shape
    random = torch.Generator().manual_seed(0)
    if recipe.frozen:
        words = f"each example is embedded by {recipe.encoder} first; the graph takes the vectors"
        return torch.randn(3, *shape, generator=random), words
    if classifier.kind == "text":
        if not isinstance(model, HuggingFaceTexts):
            raise InputError("only Hugging Face classifiers of texts, and heads on frozen encoders, can be exported")
        words = (
            f"texts are cut into tokens by the tokenizer of {recipe.network.name}, at most {model.encode.max_length} "
            "with the special ones, and padded with -1 to the longest of the batch"
        )
        return model.encode(["some words", "a longer text of more words", ""]), words
    if classifier.kind == "image":
        files = isinstance(recipe.data, ImageFolder)
        cut = f", upright, the centre square resized to {shape[-1]} x {shape[-1]} pixels" if files else ""
        words = f"images uint8, channels first{cut}; scaling is part of the graph"
        return torch.randint(256, (3, *shape), dtype=torch.uint8, generator=random), words
    words = "none: standardization is part of the graph"
    if any(isinstance(part, Pixels) for part in model.modules()):
        words = "images float32, channels first; those that were uint8 in training are divided by 255"
    return torch.rand(3, *shape, generator=random), words
