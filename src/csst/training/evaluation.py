"""Logits of a model on examples, and the numbers that are reported from its confusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from csst.data.examples import Examples
from csst.data.text.texts import HasLengths
from csst.maths.confusion import Confusion
from csst.maths.objectives import Objective
from csst.models.huggingface.text import EncodesTexts

#: violation of a constraint that is only rounding: 38 of 400 is a fraction of 0.095
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
    """Return the logits of examples in evaluation mode, (N, K), float32 on the CPU.

    Examples that can be prefetched are fetched one batch ahead; examples of different lengths are batched with similar
    ones.

    Args:
        model: the network.
        inputs: examples, used without views.
        batch: examples per forward pass.
        device: where the model is.
        index: positions of the examples to score, (N,); None scores all.
        rounds: smallest number of forward passes; all processes must call a sharded model equally often.

    Returns:
        Logits in the order of the index.
    """
    index = torch.arange(len(inputs)) if index is None else index
    lengths = inputs.lengths if isinstance(inputs, HasLengths) else None
    order = torch.arange(len(index)) if lengths is None else lengths[index].argsort(stable=True)
    parts = index[order].split(batch)
    prefetch = getattr(inputs, "prefetch", None)
    encode = model.encode if isinstance(model, EncodesTexts) else None

    def batch_of(part: Tensor) -> Tensor:
        return (inputs[part] if encode is None else encode(inputs[part])).to(device)

    was_training = model.training
    model.eval()
    logits = []
    for number, part in enumerate(parts):
        if prefetch is not None and number + 1 < len(parts):
            prefetch(parts[number + 1])
        logits.append(model(batch_of(part)).float().cpu())
    for _ in range(len(parts), rounds):
        model(batch_of(parts[-1]))
    model.train(was_training)
    return torch.cat(logits)[order.argsort()]


def constraints_met(slack: Sequence[float]) -> bool | None:
    """Return whether all constraints hold, up to rounding; None without constraints."""
    return min(slack) >= -ROUNDING if slack else None


def summarize_counts(counts: Tensor, objective: Objective) -> dict[str, Any]:
    """Return the numbers of `metrics.json` from confusion counts, (K, K), or (K, K + 1) with abstention."""
    c = Confusion.from_counts(counts)
    abstention = {}
    if c.abstained is not None:
        abstention = {
            "abstain": float(c.abstain),
            "abstained": c.abstained.tolist(),
            # No answer counted as a miss.
            "recall_of_all": c.rates.diagonal().tolist(),
        }
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
        "confusion": counts.tolist(),
        **abstention,
    }
