"""What a model does on examples: logits, confusion, the numbers that are reported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from csst.confusion import Confusion, confusion_counts
from csst.data.task import Examples, Labeled
from csst.objectives import Objective


@torch.no_grad()
def logits(model: nn.Module, inputs: Examples, batch: int = 1024, device: torch.device | str = "cpu") -> Tensor:
    """The model's raw scores (N, K) in float32 on the CPU, in evaluation mode, examples as they are."""
    training = model.training
    model.eval()
    pieces = []
    for start in range(0, len(inputs), batch):
        index = torch.arange(start, min(start + batch, len(inputs)))
        pieces.append(model(inputs[index].to(device)).float().cpu())
    model.train(training)
    return torch.cat(pieces)


def counts(model: nn.Module, examples: Labeled, classes: int, batch: int, device: torch.device | str) -> Tensor:
    """Confusion counts (K, K) of the argmax predictions; add them up over processes before dividing."""
    return confusion_counts(examples.labels, logits(model, examples.inputs, batch, device).argmax(1), classes)


def summary(counted: Tensor, objective: Objective) -> dict[str, Any]:
    """The numbers of `metrics.json`, from counts."""
    c = Confusion.from_counts(counted)
    return {
        "accuracy": float(c.accuracy),
        "mean_recall": float(c.recall.mean()),
        "min_recall": float(c.recall.min()),
        "min_coverage": float(c.coverage.min()),
        "objective_value": float(objective.value(c)),
        "constraint_slack": objective.slack(c).tolist(),
        "recall": c.recall.tolist(),
        "precision": c.precision.tolist(),
        "coverage": c.coverage.tolist(),
        "confusion": counted.tolist(),
    }
