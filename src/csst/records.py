"""What a multiplier update saw and did: a line of the journal, and the sums behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError

#: fields of a record that depend on the machine and the moment, not on the run
TIMINGS = ("examples_per_second",)


@dataclass(frozen=True)
class Record:
    """One multiplier update. Losses, `used` and `pseudo_accuracy` are means since the update before, None at the first.

    used: share of unlabeled examples whose pseudo-label was trusted; pseudo_accuracy: share of those that were
    right, where the truth is known. value, slack, score: the run's objective on validation. multipliers and payoff:
    of the objective that the method's gain follows.
    """

    step: int
    labeled_loss: float | None
    unlabeled_loss: float | None
    used: float | None
    pseudo_accuracy: float | None
    recall: list[float]
    coverage: list[float]
    value: float
    slack: list[float]
    score: float
    selected: bool
    multipliers: list[float]
    payoff: list[float]
    step_size: float
    lr: float
    examples_per_second: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """Sums since the last multiplier update, kept on the device so that no step waits for them."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.start, self.examples = time.perf_counter(), 0
        self.sums: dict[str, Tensor] = {}

    def add(self, examples: int, **values: Tensor) -> None:
        self.examples += examples
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, torch.zeros((), device=value.device)) + value.detach()

    def means(self, total: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, float | None]:
        """The record's fields, and a fresh start. A loss that stopped being a number is an error here at the latest.

        total: adds up a tensor over processes.
        """
        summed = total(torch.stack([v.float() for v in self.sums.values()])).tolist() if self.sums else []
        sums = dict(zip(self.sums, summed, strict=True))
        self.examples = int(total(torch.tensor(self.examples)))
        if not all(value == value and abs(value) != float("inf") for value in sums.values()):
            raise InputError(f"training diverged: {sums}; lower training.lr or unlabeled_weight")
        steps, unlabeled, used = sums.get("steps"), sums.get("unlabeled"), sums.get("used")
        found: dict[str, float | None] = {
            "labeled_loss": sums["labeled_loss"] / steps if steps else None,
            "unlabeled_loss": sums["unlabeled_loss"] / steps if steps and unlabeled else None,
            "used": used / unlabeled if unlabeled and used is not None else None,
            "pseudo_accuracy": sums["right"] / used if used and "right" in sums else None,
            "examples_per_second": self.examples / (time.perf_counter() - self.start) if self.examples else None,
        }
        self.restart()
        return found
