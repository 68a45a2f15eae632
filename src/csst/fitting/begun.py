"""A fit that has begun: what every learner offers to those who drive it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from csst.data.task import Task
from csst.fitting.fitted_model import FittedModel
from csst.training.records import Record


class Fit(ABC):
    """A fit that has begun.

        for record in fit.run(): ...
        model = fit.conclude()

    Args:
        task: what it learns from.
        runner: the training of a network; None for other learners.
    """

    task: Task
    runner: Any = None

    def run(self) -> Iterator[Record]:
        """Train, yielding a record at every multiplier update of a network; other learners have none."""
        return iter(())

    @abstractmethod
    def conclude(self) -> FittedModel:
        """Return the fitted model; `run` must have ended."""

    @property
    def facts(self) -> dict[str, Any]:
        """Entries about the run for metrics.json."""
        return {}
