"""What a fitted estimator is worth: its summary, its score, and its evaluation on labeled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from csst.errors import InputError
from csst.estimation.expectation import estimate_intervals
from csst.estimators.grouping import require_group, score_groups, summarize_groups
from csst.estimators.inputs import numbers_of, read_labels
from csst.estimators.scoring import score_predictions
from csst.estimators.summary import summary
from csst.fitting.evaluation import Evaluation
from csst.fitting.fitted_model import FittedModel
from csst.maths.language import Sentence
from csst.rules.certified import Certificate


class MeasuringMixin:
    """Measures an estimator that has `fit_` and `classes_`."""

    fit_: FittedModel
    classes_: np.ndarray
    labeled_counts_: list[int]
    intervals_: dict[str, Any]
    notes_: list[str]
    abstain_value: Any

    @property
    def certificate_(self) -> Certificate | None:
        raise NotImplementedError

    def _rows(self, X: Any, reset: bool) -> Any:
        raise NotImplementedError

    def predict(self, X: Any, group: Any = None) -> np.ndarray:
        raise NotImplementedError

    def evaluate(self, X: Any, y: Any, group: Any = None) -> Evaluation:
        """Measure the classifier on labeled rows.

        Args:
            X: N rows, as in `fit`.
            y: their classes, (N,), every class of training at least once; rows marked -1, NaN or None are left out.
            group: the group of every row, (N,), for a sentence about groups.

        Returns:
            The confusion, every metric with its interval, the sentence and its bounds; print it.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        values, is_labeled = read_labels(y)
        if len(values) != rows.shape[0]:
            raise InputError(f"X and y must have the same length; found {rows.shape[0]} and {len(values)}")
        if not is_labeled.any():
            raise InputError("y holds no label at all: there is nothing to measure on")
        truth = numbers_of(values[is_labeled], self.classes_, "the labels y")
        require_group(self.fit_.stated, group)
        indices = np.flatnonzero(is_labeled)
        groups = None if group is None else np.asarray(group, dtype=object)[indices]
        return self.fit_.evaluate(self.fit_.count(rows[indices], truth, groups))

    def score(self, X: Any, y: Any, sample_weight: Any = None, group: Any = None) -> float:
        """Return value - 10 · largest miss of a constraint, on the rows whose label is known.

        A miss of no more than .001 counts as none. A class that was not among the labels in training counts as wrong.

        Args:
            X: N rows, as in `fit`.
            y: their classes, (N,), every class of training at least once; -1, NaN or None where it is not known.
            sample_weight: how many rows each row stands for, (N,); None for one.
            group: the group of every row, (N,), for a sentence about groups.

        Returns:
            The objective's value, less 10 times the largest miss of its constraints.
        """
        predictions = self.predict(X, group)  # first: it says so if nothing was fitted
        goal = self.fit_.stated
        if isinstance(goal, Sentence) and goal.column is not None:
            return score_groups(goal, y, predictions, self.classes_, group, sample_weight)
        return score_predictions(self.fit_.objective, y, predictions, self.classes_, self.abstain_value, sample_weight)

    def summary(self) -> str:
        """What it reached on validation, how sure that is, and what to be wary of."""
        check_is_fitted(self)
        names = [str(name) for name in self.classes_]
        about = (self.labeled_counts_, self.notes_, self.fit_.learner_name)
        text = summary(self.fit_.stated, self.fit_.expected, names, *about, self.intervals_)
        rule = self.fit_.full_details.adjusted
        groups = [] if rule is None or rule.groups is None else summarize_groups(rule.groups)
        return "\n".join([text, *groups, *([] if self.certificate_ is None else self.certificate_.lines())])

    def _find_intervals(self) -> dict[str, Any]:
        """Return the intervals of what to expect; those of a sentence about groups are in its rule."""
        rule = self.fit_.full_details.adjusted
        if rule is not None and rule.groups is not None:
            return rule.intervals
        return estimate_intervals(self.fit_.objective, self.fit_.expected)
