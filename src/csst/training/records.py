"""What a multiplier update saw and did: a line of the journal, and the sums behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.gain import Gain
from csst.maths.losses import BrokenLoss

#: fields of a record that depend on the machine and the moment, not on the run
TIMINGS = ("examples_per_second",)


class Diverged(InputError):
    """A loss that is not a finite number any more."""


@dataclass(frozen=True)
class Record:
    """One multiplier update. Losses, `used` and `pseudo_accuracy` are means since the update before, None at the first.

    Args:
        step: optimizer steps taken.
        labeled_loss: L_s.
        unlabeled_loss: L_u.
        used: fraction of unlabeled examples whose pseudo-label was trusted.
        pseudo_accuracy: fraction of those that were right, where the truth is known.
        recall: of every class on validation, K of them.
        coverage: of every class on validation, K of them.
        value: of the run's objective on validation.
        slack: of its constraints.
        score: by which models are compared: the value less the misses of constraints.
        selected: whether this model is the best so far.
        multipliers: lambda of the objective that the method's gain follows, m of them.
        payoff: phi of that objective, m of them.
        step_size: omega of this update, or the part of the way to the solved gain; 0 where the multipliers are fixed.
        lr: the learning rate.
        examples_per_second: labeled and unlabeled.
        unlabeled_prior: the class balance of unlabeled examples that is believed from now on, K of them; None where it
            is not estimated.
        trust: how much of the solved rule its error leaves, 0 to 1; None where the gain is not solved for.
        hold: why a solved gain stood still, as a phrase; "" where it moved.
        teacher_accuracy: how often the used pseudo-labels of each class are right on validation, K of them; None where
            no pseudo-label is held back by it.
        teacher_weights: how much the pseudo-labels of each class count from now on, 0 to 1, K of them; None likewise.
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
    unlabeled_prior: list[float] | None = None
    trust: float | None = None
    hold: str = ""
    teacher_accuracy: list[float] | None = None
    teacher_weights: list[float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, a line of journal.jsonl."""
        return asdict(self)


class RunningMeans:
    """Sums since the last multiplier update, kept on the device so that no step waits for them.

    class_names: for the sentence about a gain that pays mistakes more than hits.
    """

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = class_names
        self.restart()

    def restart(self) -> None:
        self.start, self.examples = time.perf_counter(), 0
        self.sums: dict[str, Tensor] = {}
        self.drawn: list[Drawn] = []
        self.watched: list[tuple[int, Tensor]] = []

    def add(self, examples: int, **values: Tensor) -> None:
        self.examples += examples
        for name, value in values.items():
            before = self.sums.get(name)
            before = torch.zeros((), device=value.device) if before is None else before.to(value.device)
            self.sums[name] = before + value.detach()

    @contextmanager
    def track_batch(
        self, step: int, labeled: Tensor, unlabeled: Tensor | None, gain: Gain | None = None
    ) -> Iterator[None]:
        """A step on these examples under this gain, which are named if its loss turns out not to be a number."""
        self.drawn.append(Drawn(step, labeled, unlabeled, gain))
        try:
            yield
        except BrokenLoss as error:
            raise Diverged(self._explain(self.drawn[-1], error.what)) from None
        except InputError as error:
            raise Diverged(f"training failed {self.drawn[-1].place}: {error}") from None

    def track_loss(self, loss: Tensor) -> None:
        """Remember a loss of the present batch; looking at it now would make the device wait."""
        self.watched.append((len(self.drawn) - 1, loss.detach()))

    def read_and_restart(self, total: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, float | None]:
        """The record's fields, and a fresh start. A loss that stopped being a number is an error here at the latest.

        total: adds up a tensor over processes.
        """
        state = self.state_dict(total)
        sums, self.examples = dict(zip(state["names"], state["sums"].tolist(), strict=True)), state["examples"]
        steps, unlabeled, used = sums.get("steps"), sums.get("unlabeled"), sums.get("used")
        summary: dict[str, float | None] = {
            "labeled_loss": sums["labeled_loss"] / steps if steps else None,
            "unlabeled_loss": sums["unlabeled_loss"] / steps if steps and unlabeled else None,
            "used": used / unlabeled if unlabeled and used is not None else None,
            "pseudo_accuracy": sums["right"] / used if used and "right" in sums else None,
            "examples_per_second": self.examples / (time.perf_counter() - self.start) if self.examples else None,
        }
        self.restart()
        return summary

    def state_dict(self, total: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, Any]:
        """The sums over all processes, for a checkpoint between two updates. One with a broken loss is not made."""
        sums = total(torch.stack([v.float() for v in self.sums.values()])) if self.sums else torch.zeros(0)
        if not torch.isfinite(sums).all():
            raise Diverged(self._diverged(dict(zip(self.sums, sums.tolist(), strict=True))))
        return {
            "names": list(self.sums),
            "sums": sums,
            "examples": int(total(torch.tensor(self.examples))),
            "seconds": time.perf_counter() - self.start if self.sums else 0.0,
        }

    def load_state_dict(self, state: dict[str, Any], first: bool = True) -> None:
        """Take up the sums again; of several processes only the first holds them, the others go on from zero."""
        self.restart()
        share = state["sums"] if first else torch.zeros_like(state["sums"])
        self.sums = dict(zip(state["names"], share.unbind(), strict=True))
        self.examples = state["examples"] if first else 0
        self.start -= state["seconds"]

    def _diverged(self, sums: dict[str, float]) -> str:
        for number, loss in self.watched:
            if not torch.isfinite(loss):
                return self._explain(self.drawn[number], f"the loss became {float(loss)}")
        return f"training diverged: {sums}; lower training.lr or selftraining.unlabeled_weight"

    def _explain(self, drawn: Drawn, what: str) -> str:
        """Return why training ends at a step, and what to do; examples are named only where they may be the cause."""
        reversed_rows = "" if drawn.gain is None else drawn.gain.describe_reversed(self.class_names)
        if reversed_rows:
            return (
                f"training failed at step {drawn.step}: {what}. The metric's gain pays mistakes more than hits "
                f"({reversed_rows}), which makes steps long: limit them with --hardware.clip 1, or change the metric "
                "so that no class is worth more when it is missed"
            )
        return (
            f"training failed {drawn.place}: {what}; lower training.lr or selftraining.unlabeled_weight, limit the "
            "steps with --hardware.clip 1, or look at these examples"
        )


@dataclass(frozen=True)
class Drawn:
    """What a step learned from: labeled and unlabeled examples by their indices, under which gain."""

    step: int
    labeled: Tensor
    unlabeled: Tensor | None
    gain: Gain | None

    @property
    def place(self) -> str:
        """The step and its examples, in words."""
        rest = "" if self.unlabeled is None else f" and unlabeled {_shown(self.unlabeled)}"
        return f"at step {self.step}, on labeled examples {_shown(self.labeled)}{rest}"


def _shown(indices: Tensor) -> str:
    rows = indices.flatten().tolist()
    return str(rows[:64])[:-1] + (f", ... {len(rows)} in all]" if len(rows) > 64 else "]")
