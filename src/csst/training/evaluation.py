"""What a model does on examples: logits, confusion, the numbers that are reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Examples
from csst.data.text.texts import HasLengths
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective
from csst.models.huggingface.text import EncodesTexts

ROUNDING = 1e-9


@torch.no_grad()
def compute_logits(
    model: nn.Module,
    inputs: Examples,
    batch: int = 1024,
    device: torch.device | str = "cpu",
    index: Tensor | None = None,
    rounds: int = 0,
) -> Tensor:
    """The model's raw scores (N, K) in float32 on the CPU, in evaluation mode, examples as they are.

    `index` chooses examples, None takes all. Examples that can be prefetched are fetched one batch ahead; examples of
    different lengths are put into batches of similar ones. A sharded model must be called equally often by all
    processes: `rounds` times at least.
    """
    index = torch.arange(len(inputs)) if index is None else index
    lengths = inputs.lengths if isinstance(inputs, HasLengths) else None
    order = torch.arange(len(index)) if lengths is None else lengths[index].argsort(stable=True)
    chosen = index[order].split(batch)
    prefetch = getattr(inputs, "prefetch", None)
    encode = model.encode if isinstance(model, EncodesTexts) else None

    def batch_of(part: Tensor) -> Tensor:
        return (inputs[part] if encode is None else encode(inputs[part])).to(device)

    training = model.training
    model.eval()
    pieces = []
    for at, part in enumerate(chosen):
        if prefetch is not None and at + 1 < len(chosen):
            prefetch(chosen[at + 1])
        pieces.append(model(batch_of(part)).float().cpu())
    for _ in range(len(chosen), rounds):
        model(batch_of(chosen[-1]))
    model.train(training)
    return torch.cat(pieces)[order.argsort()]


def constraints_met(slack: Sequence[float]) -> bool | None:
    """Whether constraints of these slacks hold, up to rounding: 38 of 400 is a fraction of 0.095. None without any."""
    return min(slack) >= -ROUNDING if slack else None


def summarize_counts(counted: Tensor, objective: Objective) -> dict[str, Any]:
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
