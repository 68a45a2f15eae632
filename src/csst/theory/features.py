"""What a network makes of its inputs, before its last linear layer: where neighbors are looked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from csst.data.task import Examples, View, identity_view
from csst.theory.consistency import BATCH, encode, evaluating


@torch.no_grad()
def features(model: nn.Module, inputs: Any) -> Tensor:
    """(B, d): what enters the last `nn.Linear` that the model calls; its scores where it has none."""
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with evaluating(model):
            scores = model(encode(model, inputs))
    finally:
        for hook in hooks:
            hook.remove()
    last = seen[-1] if seen else scores
    return (last.mean(1) if last.ndim == 3 else last.flatten(1)).float().cpu()


def features_of_views(
    model: nn.Module, x: Examples, views: View = identity_view, draws: int = 1, seed: int = 0
) -> Tensor:
    """The features of several views of every example, (n, draws, d)."""
    generator, pieces = torch.Generator().manual_seed(seed), []
    for part in torch.arange(len(x)).split(BATCH):
        original = x[part]
        pieces.append(torch.stack([features(model, views(original, generator)) for _ in range(draws)], 1))
    return torch.cat(pieces)
