"""Questions to a fitted estimator: other sentences, trade-offs, learners, columns, doubtful labels, a page."""

from __future__ import annotations

import copy
import warnings
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from csst.data.row_hashes import hash_rows
from csst.data.tabular.column_words import tabulate_columns
from csst.data.task import Labeled, Task
from csst.errors import InputError
from csst.estimation.expectation import describe_minimum
from csst.estimators.measuring import MeasuringMixin
from csst.fitting.deciding import decide, explore, read_evidence
from csst.fitting.metrics import list_notes
from csst.learners.portfolio import compute_losses
from csst.maths.language import objective as read_objective
from csst.rules import Frontier, GroupedRule

#: labels up to which each is found again among the rows of X, for `suspects`
MOST_JUDGED = 200_000
#: numbers in labeled examples up to which these are kept for the page
MOST_CELLS = 20_000_000


class Standing(NamedTuple):
    """A learner beside the mean of all that were not left out.

    Args:
        name: name of the learner.
        balanced_log_loss: loss out of fold, lower is better; None for a network, which is compared with nothing.
        weight: weight in the mean; 0 for a learner that was left out as clearly worse.
        excess: loss of the learner less the loss of the mean.
    """

    name: str
    balanced_log_loss: float | None
    weight: float
    excess: float | None


class Importance(NamedTuple):
    """A column: its name, how much the score falls when its values are shuffled, and the standard deviation of that."""

    column: str
    loss: float
    deviation: float


class Suspect(NamedTuple):
    """A labeled row whose label the models that did not see it contradict.

    Args:
        row: index in the X of `fit`.
        label: label of the row.
        probability: the probability of the label, out of fold.
        likelier: the most probable class.
    """

    row: int
    label: Any
    probability: float
    likelier: Any


class ExploringMixin(MeasuringMixin):
    """Questions to a fitted estimator."""

    def decide(self, objective: Any, per_group: bool | None = None) -> Any:
        """Return a classifier that decides for another sentence, without fitting the model again.

        Args:
            objective: a sentence, a short name or an `Objective`, without a confidence.
            per_group: for a sentence about the groups of rows of the fit, whether each gets a rule of its own; None for
                what the classifier was made with.

        Returns:
            A fitted classifier; this one stays as it is.
        """
        check_is_fitted(self)
        classifier = copy.copy(self)
        classifier.objective = objective
        classifier.confidence = None
        classifier.per_group = self.per_group if per_group is None else per_group
        goal = read_objective(objective, costs=self.costs)
        classifier.fit_ = decide(self.fit_, goal, self.seed_, classifier.per_group)
        classifier.intervals_ = classifier._find_intervals()
        note = describe_minimum(classifier.intervals_, classifier.fit_.class_names)
        doubts = list_notes(classifier.fit_.full_details)
        for doubt in doubts:
            if doubt not in self.notes_:  # `fit` has warned of these
                warnings.warn(doubt, stacklevel=2)
        classifier.notes_ = [*([note] if note else []), *doubts]
        return classifier

    def frontier(self, objective: Any = None) -> Frontier:
        """Return what rules for the fitted model can trade off, and whether bounds can be met.

        Args:
            objective: a sentence whose bounds are checked; None for the objective of the fit.

        Returns:
            Points that no other rule beats in mean recall, lowest recall and coverage, and a `sentence`.
        """
        check_is_fitted(self)
        return explore(self.fit_, None if objective is None else read_objective(objective, costs=self.costs))

    @property
    def leaderboard_(self) -> list[Standing]:
        """The learners by their balanced log-loss out of fold, those left out last."""
        check_is_fitted(self)
        about = self.fit_.full_details.about
        if "members" not in about:
            return [Standing(str(about["method"]), None, 1.0, None)]
        evidence = read_evidence(self.fit_)[0]
        mean_loss = float(compute_losses(evidence.scores, evidence.labels).mean())
        entries = [(member["name"], member["balanced_log_loss"], member["weight"]) for member in about["members"]]
        entries += [(name, loss, 0.0) for name, loss in about["left_out"].items()]
        standings = [Standing(name, loss, weight, loss - mean_loss) for name, loss, weight in entries]
        return sorted(standings, key=lambda standing: (not standing.weight, standing.balanced_log_loss))

    def importance(self, X: Any, y: Any, repeats: int = 5) -> list[Importance]:
        """Return how much each column matters for the sentence: how much the score falls when it is shuffled.

        Args:
            X: N rows that the classifier has not learned from, an array or a data frame.
            y: their classes, (N,), every class at least once.
            repeats: how often each column is shuffled.

        Returns:
            All columns, the most important first.
        """
        from sklearn.inspection import permutation_importance

        check_is_fitted(self)
        if not hasattr(X, "shape") or len(X.shape) != 2:
            raise InputError("importance is of columns: pass an array (N, D) or a data frame")
        result = permutation_importance(self, X, y, n_repeats=repeats, random_state=self.seed_)
        names = [str(name) for name in getattr(X, "columns", range(X.shape[1]))]
        losses, deviations = result.importances_mean.tolist(), result.importances_std.tolist()
        rows = [Importance(*row) for row in zip(names, losses, deviations, strict=True)]
        return sorted(rows, key=lambda row: -row.loss)

    def suspects(self, n: int = 10) -> list[Suspect]:
        """Return the labels that are most likely wrong: models that did not learn from them contradict them most.

        Args:
            n: number of rows.

        Returns:
            Rows of X, the most doubtful first.
        """
        check_is_fitted(self)
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise InputError(f"n says how many labels to return, 0 or more; found {n!r}")
        evidence = read_evidence(self.fit_)[0]
        if self.judged_rows_ is None or len(self.judged_rows_) != len(evidence.labels):
            raise InputError(
                "labels are doubted where they are judged out of fold, one by one: fit with validation=None and "
                "without a confidence"
            )
        probs = softmax(evidence.scores + np.log(evidence.train_prior), axis=1)
        label_probs = probs[np.arange(len(probs)), evidence.labels]
        likelier = probs.argmax(1)
        order = [index for index in np.argsort(label_probs, kind="stable") if likelier[index] != evidence.labels[index]]
        classes = self.classes_.tolist()
        return [
            Suspect(
                int(self.judged_rows_[index]),
                classes[evidence.labels[index]],
                float(label_probs[index]),
                classes[likelier[index]],
            )
            for index in order[:n]
        ]

    def report(self, path: str | Path, title: str = "") -> Path:
        """Write a page about the classifier: what was asked, what to expect, every class, mistakes, columns.

        Args:
            path: the page, an .html file; it needs no other file.
            title: title of the page; "" for the sentence.

        Returns:
            The path.
        """
        from csst.report.page import fitted_page
        from csst.report.render import write_page

        check_is_fitted(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `fit` has warned of the same
            metrics = self.fit_.describe(recipe=title or type(self).__name__, seed=self.seed_)
        columns = tabulate_columns(self.columns_) if self.columns_.parts else []
        page = fitted_page(metrics, self.fit_.history, columns, self._find_mistakes(), title)
        target = Path(path)
        write_page(page, target)
        return target

    def _find_mistakes(self) -> list[Any]:
        """Return mistakes on labels that were judged out of fold; none if their rows were not kept."""
        from csst.report.mistakes import find_mistakes

        examples = self.judged_examples_
        evidence = read_evidence(self.fit_)[0]
        rule = self.fit_.rule
        if examples is None or not np.array_equal(examples.labels.numpy(), evidence.labels):
            return []
        if isinstance(rule, GroupedRule):  # groups of the rows are not kept
            return []
        probs = torch.softmax(torch.from_numpy(evidence.scores + np.log(evidence.train_prior)), 1)
        columns = self.columns_ if self.columns_.parts else None
        return find_mistakes(examples, probs, rule, self.fit_.class_names, columns)


def keep_examples(task: Task, image_shape: tuple[int, int, int] | None) -> Labeled | None:
    """Return the labeled examples that a fit was judged by, for its page; None if they are sparse or very many."""
    examples = task.labeled if task.validation is None else task.validation
    inputs = examples.inputs
    if not isinstance(inputs, Tensor) or inputs.numel() > MOST_CELLS:
        return None
    return examples if image_shape is None else Labeled(inputs.reshape(-1, *image_shape), examples.labels)


def find_judged_rows(rows: Any, is_labeled: np.ndarray, labels: np.ndarray, examples: Labeled) -> np.ndarray | None:
    """Return the index of each labeled row of a fit among all rows, by content and label, (n,).

    Args:
        rows: all rows, (N, D).
        is_labeled: whether each row has a label, (N,).
        labels: class indices of the labeled rows, in the order of the rows.
        examples: the labeled rows of the fit.

    Returns:
        Indices in the order of `examples`; None if there are very many labels, or a row is not there.
    """
    if len(labels) > MOST_JUDGED:
        return None
    indices = np.flatnonzero(is_labeled)
    places: dict[tuple[int, int], list[int]] = {}
    for index, code, label in zip(indices.tolist(), hash_rows(rows[indices]).tolist(), labels.tolist(), strict=True):
        places.setdefault((code, label), []).append(index)
    rows_of_examples = []
    for code, label in zip(hash_rows(examples.inputs).tolist(), examples.labels.tolist(), strict=True):
        candidates = places.get((code, label))
        if not candidates:
            return None
        rows_of_examples.append(candidates.pop(0))
    return np.array(rows_of_examples, dtype=np.int64)
