"""How the next word of a translation is drawn: each row of a batch by random numbers of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from csst.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How the next word is drawn.

    Args:
        temperature: of the softmax; lower is closer to the likeliest translation, 0 is the likeliest word each time.
        top_k: only among so many likeliest words; 0 among all.
        top_p: only among the likeliest words that together have this probability.
        seed: of the random numbers.
    """

    temperature: float = 0.9
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"the temperature must be a number from 0; found {self.temperature!r}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise InputError(f"top_k must be at least 0 and top_p in (0, 1]; found {self.top_k!r} and {self.top_p!r}")
        if self.seed < 0:
            raise InputError(f"the seed must be at least 0; found {self.seed!r}")


class Draw:
    """Chooses each row's next token by that row's own random numbers; ends a row at its own limit.

    Called by the library's `generate` with the scores of the next token; leaves only the chosen one. The token is the
    first whose running sum of probabilities exceeds u, so that one number per token is enough.

    Args:
        uniform: (rows, steps) numbers in 0 .. 1.
        limits: (rows,) tokens of each row at most, the end included.
        end: the token that ends a translation.
        sampling: how the token is drawn.
    """

    def __init__(self, uniform: Tensor, limits: Tensor, end: int, sampling: Sampling) -> None:
        self.uniform, self.limits, self.end, self.sampling, self.step = uniform, limits, end, sampling, 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        chosen = scores.argmax(1, keepdim=True) if self.sampling.temperature == 0 else self._drawn(scores)
        self.step += 1
        chosen[self.step >= self.limits] = self.end
        return torch.full_like(scores, float("-inf")).scatter_(1, chosen, 0.0)

    def _drawn(self, scores: Tensor) -> Tensor:
        probs = torch.softmax(scores.float() / self.sampling.temperature, 1)
        order = None
        if self.sampling.top_k:
            probs, order = probs.topk(min(self.sampling.top_k, probs.shape[1]), 1)
        elif self.sampling.top_p < 1:
            probs, order = probs.sort(1, descending=True)
        running = probs.to(self.uniform.dtype).cumsum(1)
        if self.sampling.top_p < 1:
            nucleus = running - probs < self.sampling.top_p * running[:, -1:]
            running = (probs * nucleus).to(self.uniform.dtype).cumsum(1)
        # Below 1, so that no rounding reaches the words of probability 0 behind the last one.
        target = self.uniform[:, self.step, None] * (1 - 1e-6) * running[:, -1:]
        chosen = torch.searchsorted(running, target, right=True)
        return chosen if order is None else order.gather(1, chosen)
