"""Rows that a fitted estimator reads, its predictions, and what they are worth: summary, score, evaluation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.tables import find_categorical, is_frame, is_sparse, read_frame, warn_about_coarse_columns
from csst.data.task import Labeled
from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import estimate_intervals
from csst.estimators.grouping import require_group, summarize_groups
from csst.estimators.inputs import embed, number_labels, read_labels, refuse_other_length, warn_about_columns
from csst.estimators.networks import is_image_array, read_image_rows, refuse_other_shape
from csst.estimators.scoring import ScoringMixin, choose_abstain_value, name_answers
from csst.estimators.settings import read_settings
from csst.fitting.evaluation import Evaluation
from csst.fitting.fitted_model import FittedModel
from csst.maths.costs import format_amount
from csst.maths.objectives import Objective
from csst.rules.claims import Certificate
from csst.rules.feasibility import Bound
from csst.training.records import Record


def write_summary(
    objective: Objective,
    estimate: RateEstimate,
    class_names: list[str],
    labeled: list[int],
    notes: list[str],
    about: str,
    intervals: dict[str, Any],
    bounds: Sequence[Bound] = (),
) -> str:
    """Return a few lines: the value to expect, the lowest recall with its interval, a row per class, notes."""
    confusion = estimate.confusion
    lowest_recall = intervals["min_recall"]
    lines = [
        f"{about}, for '{objective}'",
        f"objective {objective.describe_value(intervals['value']['estimate'])}, {estimate.basis}",
        f"lowest class recall {lowest_recall['estimate']:.2f} "
        f"(95 % interval {lowest_recall['low']:.2f}–{lowest_recall['high']:.2f}), "
        f"mean recall {float(confusion.recall.mean()):.2f}",
    ]
    if confusion.abstained is not None:
        share = confusion.abstained
        lines.append(
            f"no answer for {float(confusion.abstain):.1%} of the rows, at most {float(share.max()):.0%} of a class; "
            f"with no answer counted as a miss, the lowest recall is {float(confusion.rates.diagonal().min()):.2f}"
        )
    if intervals["constraints"]:
        units = objective.measure_units(confusion.prior)[1] or (1.0,) * len(intervals["constraints"])
        lines.append(describe_constraints(intervals["constraints"], units, bounds))
    width = max(len(name) for name in [*class_names, "class"])
    lines.append(f"{'class':<{width}}  labeled  recall  95 % interval  coverage")
    for name, count, interval, class_coverage in zip(
        class_names, labeled, intervals["recall"], confusion.coverage.tolist(), strict=True
    ):
        ends = f"{interval['low']:.2f}–{interval['high']:.2f}"
        lines.append(f"{name:<{width}}  {count:>7}  {interval['estimate']:>6.2f}  {ends:>13}  {class_coverage:>8.3f}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def describe_constraints(constraints: Sequence[dict[str, Any]], units: Sequence[float], bounds: Sequence[Bound]) -> str:
    """Return whether all constraints are expected to be met, with the slack of the one that is nearest to a miss.

    Args:
        constraints: slack of each constraint, and the ends of its interval, (m,).
        units: what counts as 1, for bounds on costs, (m,).
        bounds: the same constraints with their standard errors, (m,); () without a rule, where the slack alone decides.
    """
    slacks = [constraint["slack"] for constraint in constraints]
    errors = [bound.error for bound in bounds] or [0.0] * len(slacks)
    states = [bound.status for bound in bounds] or ["met" if slack >= 0 else "missed" for slack in slacks]
    worst_state = next(state for state in ("missed", "unsure", "met") if state in states)
    places = [place for place, state in enumerate(states) if state == worst_state]
    place = min(places, key=lambda place: (slacks[place] - errors[place]) / units[place])
    slack, low, high = (constraints[place][key] for key in ("slack", "low", "high"))
    word = {
        "met": "constraints met, with a slack of",
        "unsure": "constraints may be met or not, with a slack of",
        "missed": "constraints missed by",
    }[worst_state]
    if worst_state == "missed":
        slack, low, high = -slack, -high, -low
    ends = " to ".join(format_amount(end, units[place], digits=2) for end in (low, high))
    return f"{word} {format_amount(slack, units[place])} (95 % interval about {ends})"


def show_progress(runner: Any, record: Record) -> None:
    """Print a line of progress, ten times in a training."""
    steps = runner.settings.training.steps
    interval = runner.settings.steps_per_update
    if record.step % max(1, steps // 10) < interval:
        line = f"worst recall {min(record.recall):.3f}  objective {record.value:.3f}"
        print(f"{runner.method.name} step {record.step:>6}/{steps}  {line}", file=sys.stderr, flush=True)


class MeasuringMixin(ScoringMixin):
    """Rows, predictions and measures of an estimator, whose parameters and fitted attributes are declared here."""

    objective: Any
    learner: Any
    encoder: Any
    confidence: float | None
    costs: Any
    settings: Any
    deployment_prior: Any
    abstain_value: Any
    per_group: bool
    fit_: FittedModel
    classes_: np.ndarray
    columns_: Columns
    image_shape_: tuple[int, int, int] | None
    n_features_in_: int
    labeled_counts_: list[int]
    seed_: int
    intervals_: dict[str, Any]
    notes_: list[str]
    suggested_: np.ndarray
    judged_rows_: np.ndarray | None
    judged_examples_: Labeled | None

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
        refuse_other_length(values, rows.shape[0])
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
        rule = self.fit_.full_details.adjusted
        bounds = () if rule is None else rule.bounds
        text = write_summary(self.fit_.stated, self.fit_.expected, names, *about, self.intervals_, bounds)
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

    def _rows(self, X: Any, reset: bool) -> Any:
        """Return X as rows of numbers; with `reset`, learn its columns first."""
        if reset:
            self.image_shape_ = None
        if self.encoder is None and is_image_array(X):
            pixels, shape = read_image_rows(X, self.learner)
            if reset:
                self.image_shape_ = shape
                self.n_features_in_ = pixels.shape[1]
                self.columns_ = Columns(array_width=pixels.shape[1])
            refuse_other_shape(shape, self.image_shape_)
            return pixels
        refuse_other_shape(None, self.image_shape_)
        if self.encoder is not None:
            vectors = embed(X, self.encoder, read_settings(self.settings).embedding)
            if reset:
                self.n_features_in_ = vectors.shape[1]
                self.columns_ = Columns(array_width=vectors.shape[1])
            return self.columns_.refuse_infinite(vectors.astype(np.float32, copy=False), "the embedding of X")
        return self._read_frame(X, reset) if is_frame(X) else self._read_array(X, reset)

    def _read_frame(self, frame: Any, reset: bool) -> np.ndarray:
        """Return the rows of a data frame."""
        table = read_frame(frame)
        columns = learn_columns(table, find_categorical(frame)) if reset else None
        validate_data(self, frame, reset=reset, skip_check_array=True)
        if columns is not None:
            warn_about_columns(columns)
            self.columns_ = columns
        if not self.columns_.parts:  # the classifier was fitted on an array
            numbers = learn_columns(table).without_offsets()
            return self.columns_.refuse_infinite(numbers.encode(table), "X")
        return self.columns_.encode(table)

    def _read_array(self, X: Any, reset: bool) -> Any:
        """Return the rows of an array or a sparse matrix."""
        if not reset and self.columns_.categories:
            raise InputError("the training data was a frame with categories; X must be a frame with its columns")
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": is_sparse(X)}
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below, with its place
            rows = validate_data(self, X, reset=reset, **options)
        if reset:
            self.columns_ = Columns(array_width=rows.shape[1])
        if is_sparse(rows) and self.columns_.width == rows.shape[1]:
            return rows
        if reset:
            warn_about_coarse_columns(rows, "X")
        elif self.columns_.width == rows.shape[1] and self.columns_.offsets.any():
            rows = rows.astype(np.float64) - self.columns_.offsets
        with np.errstate(over="ignore"):  # beyond float32 is infinity, which is refused with its place
            return self.columns_.refuse_infinite(rows.astype(np.float32), "X")
