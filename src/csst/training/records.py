"""The record of a multiplier update, a line of the journal, and the sums behind it."""

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

#: fields of a record that differ between two identical runs
TIMINGS = ("examples_per_second",)


class Diverged(InputError):
    """The loss is no longer a finite number."""


@dataclass(frozen=True)
class Record:
    """One multiplier update. Losses, `used` and `pseudo_accuracy` are means since the update before, None at the first.

    Args:
        step: optimizer steps taken.
        labeled_loss: L_s.
        unlabeled_loss: L_u.
        used: fraction of unlabeled examples whose pseudo-label was used.
        pseudo_accuracy: fraction of used pseudo-labels that were right, if the true labels are known.
        recall: recall of every class on validation, K numbers.
        coverage: coverage of every class on validation, K numbers.
        value: value of the run's objective on validation.
        slack: slack of every constraint on validation.
        score: the value less the misses of constraints; models are compared by it.
        selected: whether this model is the best so far.
        multipliers: lambda of the objective that the method's gain follows, m numbers.
        payoff: phi of the same objective, m numbers.
        step_size: omega of this update, or the part of the way to the solved gain; 0 for fixed multipliers.
        lr: the learning rate.
        examples_per_second: labeled and unlabeled examples.
        unlabeled_prior: estimated class prior of the unlabeled examples, K numbers; None if it is not estimated.
        trust: weight of the solved rule against the first multipliers, 0 to 1; None if the gain is not solved for.
        hold: reason why a solved gain did not move, as a phrase; "" if it moved.
        teacher_accuracy: accuracy of the used pseudo-labels of each class on validation, K numbers; None if
            pseudo-labels are not held back.
        teacher_weights: weight of the pseudo-labels of each class, 0 to 1, K numbers; None if they are not held back.
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
        """Return plain values for JSON, a line of journal.jsonl."""
        return asdict(self)


class RunningMeans:
    """Sums since the last multiplier update, on the device so that no step waits for them.

    Args:
        class_names: names of the K classes, for messages.
    """

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.class_names = class_names
        self.restart()

    def restart(self) -> None:
        """Drop all sums."""
        self.start = time.perf_counter()
        self.examples = 0
        self.sums: dict[str, Tensor] = {}
        self.sources: list[BatchSource] = []
        self.losses: list[tuple[BatchSource, Tensor]] = []

    def add(self, examples: int, **values: Tensor) -> None:
        """Add scalars to the sums of their names, and to the number of examples."""
        self.examples += examples
        for name, value in values.items():
            total = self.sums.get(name)
            total = torch.zeros((), device=value.device) if total is None else total.to(value.device)
            self.sums[name] = total + value.detach()

    @contextmanager
    def track_batch(
        self, step: int, labeled: Tensor, unlabeled: Tensor | None, gain: Gain | None = None
    ) -> Iterator[None]:
        """Remember the examples and the gain of a step, for the error message if its loss is not finite."""
        source = BatchSource(step, labeled, unlabeled, gain)
        self.sources.append(source)
        try:
            yield
        except BrokenLoss as error:
            raise Diverged(self._explain(source, error.what)) from None
        except InputError as error:
            raise Diverged(f"training failed {source.place}: {error}") from None

    def track_loss(self, loss: Tensor) -> None:
        """Store a loss of the current batch for a later check: checking it now would make the device wait."""
        self.losses.append((self.sources[-1], loss.detach()))

    def read_and_restart(self, total: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, float | None]:
        """Return the means as fields of a record, and restart; raises `Diverged` if a loss was not finite.

        Args:
            total: adds up a tensor over processes.
        """
        state = self.state_dict(total)
        sums = dict(zip(state["names"], state["sums"].tolist(), strict=True))

        def divide(name: str, count_name: str) -> float | None:
            count = sums.get(count_name)
            return sums[name] / count if count and name in sums else None

        examples = state["examples"]
        summary = {
            "labeled_loss": divide("labeled_loss", "steps"),
            "unlabeled_loss": divide("unlabeled_loss", "steps"),
            "used": divide("used", "unlabeled"),
            "pseudo_accuracy": divide("right", "used"),
            "examples_per_second": examples / (time.perf_counter() - self.start) if examples else None,
        }
        self.restart()
        return summary

    def state_dict(self, total: Callable[[Tensor], Tensor] = lambda values: values) -> dict[str, Any]:
        """Return the sums over all processes, for a checkpoint; raises `Diverged` if a loss was not finite."""
        sums = total(torch.stack([v.float() for v in self.sums.values()])) if self.sums else torch.zeros(0)
        if not torch.isfinite(sums).all():
            raise Diverged(self._describe_divergence(dict(zip(self.sums, sums.tolist(), strict=True))))
        return {
            "names": list(self.sums),
            "sums": sums,
            "examples": int(total(torch.tensor(self.examples))),
            "seconds": time.perf_counter() - self.start if self.sums else 0.0,
        }

    def load_state_dict(self, state: dict[str, Any], is_main: bool = True) -> None:
        """Continue from stored sums; of several processes only the first takes them, the others begin at zero."""
        self.restart()
        sums = state["sums"] if is_main else torch.zeros_like(state["sums"])
        self.sums = dict(zip(state["names"], sums.unbind(), strict=True))
        self.examples = state["examples"] if is_main else 0
        self.start -= state["seconds"]

    def _describe_divergence(self, sums: dict[str, float]) -> str:
        for source, loss in self.losses:
            if not torch.isfinite(loss):
                return self._explain(source, f"the loss became {float(loss)}")
        return f"training diverged: {sums}; lower training.lr or selftraining.unlabeled_weight"

    def _explain(self, source: BatchSource, what: str) -> str:
        """Return why training ends at a step, and what to do; lists the examples only if they may be the cause."""
        reversed_rows = "" if source.gain is None else source.gain.describe_reversed(self.class_names)
        if reversed_rows:
            return (
                f"training failed at step {source.step}: {what}. The metric's gain pays mistakes more than hits "
                f"({reversed_rows}), which makes steps long: limit them with --hardware.clip 1, or change the metric "
                "so that no class is worth more when it is missed"
            )
        return (
            f"training failed {source.place}: {what}; lower training.lr or selftraining.unlabeled_weight, limit the "
            "steps with --hardware.clip 1, or look at these examples"
        )


@dataclass(frozen=True)
class BatchSource:
    """The examples of a step by their indices, and the gain of the step."""

    step: int
    labeled: Tensor
    unlabeled: Tensor | None
    gain: Gain | None

    @property
    def place(self) -> str:
        """The step and its examples, in words."""
        unlabeled = "" if self.unlabeled is None else f" and unlabeled {_list_rows(self.unlabeled)}"
        return f"at step {self.step}, on labeled examples {_list_rows(self.labeled)}{unlabeled}"


def _list_rows(indices: Tensor) -> str:
    rows = indices.flatten().tolist()
    return str(rows[:64])[:-1] + (f", ... {len(rows)} in all]" if len(rows) > 64 else "]")
