"""What a fitted estimator predicts, and what that is worth: its summary, its score, its evaluation on labeled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from csst.errors import InputError
from csst.estimation.expectation import estimate_intervals
from csst.estimators.grouping import require_group, summarize_groups
from csst.estimators.inputs import number_labels, read_labels
from csst.estimators.reading import ReadingMixin
from csst.estimators.scoring import ScoringMixin, choose_abstain_value, name_answers
from csst.estimators.summary import write_summary
from csst.fitting.evaluation import Evaluation
from csst.maths.objectives import Objective
from csst.rules.certified import Certificate


class MeasuringMixin(ReadingMixin, ScoringMixin):
    """Predictions of a fitted estimator, and what they are worth."""

    def decision_function(self, X: Any, group: Any = None) -> np.ndarray:
        """Return the scores whose largest is predicted: the rule's, or logits without a rule.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Scores, (N, K); for two classes the second less the first, (N,). A rule that may give no answer has a last
            column for it, (N, K + 1).
        """
        scores = self._compute_scores(X, group)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any, group: Any = None) -> np.ndarray:
        """Return the class of every row, by the decision rule.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Classes, (N,), and `abstain_value` for no answer.
        """
        decisions = self._compute_scores(X, group).argmax(1)
        return name_answers(decisions, self.classes_, choose_abstain_value(self.abstain_value, self.classes_))

    def predict_proba(self, X: Any, group: Any = None) -> np.ndarray:
        """Return calibrated probabilities under the deployment prior; `predict` follows the rule and not their argmax.

        A network without a rule gives the softmax of its logits, which is not calibrated for a worst-class objective.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Probabilities, (N, K).
        """
        check_is_fitted(self)
        return self.fit_.predict_proba(self._rows(X, reset=False), group).numpy()

    @property
    def certificate_(self) -> Certificate | None:
        """Whether the bounds of the sentence are promised; None where no confidence was stated."""
        check_is_fitted(self)
        return self.fit_.certificate

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
        truth = number_labels(values[is_labeled], self.classes_, "the labels y")
        require_group(self.fit_.stated, group)
        indices = np.flatnonzero(is_labeled)
        groups = None if group is None else np.asarray(group, dtype=object)[indices]
        return self.fit_.evaluate(self.fit_.count(rows[indices], truth, groups))

    @property
    def _goal(self) -> Objective:
        return self.fit_.stated

    def summary(self) -> str:
        """Return what to expect of the classifier, how sure that is, and what to be wary of, in a few lines."""
        check_is_fitted(self)
        names = [str(name) for name in self.classes_]
        about = (self.labeled_counts_, self.notes_, self.fit_.learner_name)
        text = write_summary(self.fit_.stated, self.fit_.expected, names, *about, self.intervals_)
        rule = self.fit_.full_details.adjusted
        groups = [] if rule is None or rule.groups is None else summarize_groups(rule.groups)
        return "\n".join([text, *groups, *([] if self.certificate_ is None else self.certificate_.lines())])

    def _find_intervals(self) -> dict[str, Any]:
        """Return the intervals of what to expect; for a sentence about groups they are in its rule."""
        rule = self.fit_.full_details.adjusted
        if rule is not None and rule.groups is not None:
            return rule.intervals
        return estimate_intervals(self.fit_.objective, self.fit_.expected)

    def _compute_scores(self, X: Any, group: Any = None) -> np.ndarray:
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        if self.fit_.rule is None:
            return self.fit_.logits(rows).numpy()
        return self.fit_.rule.scores(self.fit_.probs(rows), group).numpy()
