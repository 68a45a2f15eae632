"""A fit that has begun, driven step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from csst.data.examples import Examples
from csst.data.task import Task
from csst.fitting.fitted_model import FittedModel
from csst.rules import FittedRule
from csst.rules.fresh_labels import FreshLabels
from csst.rules.promise import promise
from csst.training.records import Record


class Fit(ABC):
    """A fit that has begun.

        for record in fit.run(): ...
        model = fit.conclude()

    Args:
        task: the task that is learned from.
        deployment_prior: see `csst.rules.fit_rule`; None for the class balance of the labels that are judged.
        runner: the training of a network; None for other learners.
    """

    task: Task
    deployment_prior: Any
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

    @property
    def test_groups(self) -> np.ndarray | None:
        """Groups of the test examples, (n,); None without any."""
        test = self.task.test
        return None if test is None or test.groups is None else test.groups.numpy()

    def certify(self, rule: FittedRule, score: Callable[[Examples], np.ndarray]) -> FittedRule:
        """Return a rule with its certificate if examples are reserved for that.

        Args:
            rule: by the labels of the fit.
            score: probabilities of examples, (N, K).
        """
        task = self.task
        if task.certifying is None:
            return rule
        certifying = task.certifying
        unlabeled = None if task.kept_apart is None else score(task.kept_apart)
        groups = None if certifying.groups is None else certifying.groups.numpy()
        fresh = FreshLabels(score(certifying.inputs), certifying.labels.numpy(), unlabeled, groups)
        return promise(rule, fresh, self.deployment_prior, task.class_names)
