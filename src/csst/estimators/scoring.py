"""Answers of a classifier by name, and its score for an objective: one number for `score` and GridSearchCV.

    score = value - 10 · largest miss of a constraint

A row without a label is left out. A class that was not among the labels in training counts as wrong, as in
scikit-learn: its recall and its coverage are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing

from csst.errors import InputError
from csst.estimators.grouping import score_groups
from csst.estimators.inputs import number_labels, read_labels, refuse_other_length
from csst.maths.confusion import Confusion, confusion_counts
from csst.maths.language import Sentence
from csst.maths.language import objective as read_objective
from csst.maths.language.binding import Binding
from csst.maths.objectives import Objective
from csst.maths.ranking import score_on
from csst.rules.feasibility import TOLERANCE


def choose_abstain_value(value: Any, classes: np.ndarray) -> Any:
    """Return the value that stands for no answer: what means unlabeled, unless another one is given.

    Args:
        value: a value that is no class; "auto" is -1 for integer classes and None otherwise.
        classes: the classes in order, (K,).

    Returns:
        The value.
    """
    if isinstance(value, str) and value == "auto":
        return -1 if classes.dtype.kind in "iu" else None
    if any(value == name for name in classes.tolist()):
        raise InputError(f"abstain_value stands for no answer and cannot be a class; found the class {value!r}")
    return value


def name_answers(decisions: np.ndarray, classes: np.ndarray, abstain_value: Any) -> np.ndarray:
    """Return the classes of decisions, and the value for no answer where a decision is K.

    Args:
        decisions: indices in 0 .. K, (N,).
        classes: the classes in order, (K,).
        abstain_value: see `choose_abstain_value`.

    Returns:
        (N,), of the kind of the classes if the value for no answer is of that kind, else of objects.
    """
    if not (decisions == len(classes)).any():
        return classes[decisions]
    fits = isinstance(abstain_value, int | np.integer) and classes.dtype.kind in "iu"
    names = np.append(classes, abstain_value) if fits else np.array([*classes.tolist(), abstain_value], dtype=object)
    return names[decisions]


class ScoringMixin:
    """Adds `score` and `predict_log_proba` to a classifier with `predict` and `predict_proba`."""

    classes_: np.ndarray
    abstain_value: Any

    @property
    def _goal(self) -> Objective:
        """The objective of the fit as it was stated, bound to its classes and groups."""
        raise NotImplementedError

    def score(self, X: Any, y: Any, sample_weight: Any = None, group: Any = None) -> float:
        """Return value - 10 · largest miss of a constraint, on the rows whose label is known.

        A miss of no more than .001 counts as none. A class that was not among the labels in training counts as wrong.

        Args:
            X: N rows, as in `fit`.
            y: their classes, (N,), every class of training at least once; -1, NaN or None if unknown.
            sample_weight: number of rows that each row stands for, (N,); None for one each.
            group: the group of every row, (N,), for a sentence about groups.

        Returns:
            The objective's value, less 10 times the largest miss of its constraints.
        """
        # The predictions come first: they raise the error if nothing was fitted.
        predictions = self.predict(X, group)  # type: ignore[attr-defined]
        goal = self._goal
        if isinstance(goal, Sentence) and goal.column is not None:
            return score_groups(goal, y, predictions, self.classes_, group, sample_weight)
        return score_predictions(goal, y, predictions, self.classes_, self.abstain_value, sample_weight)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of `predict_proba`; minus infinity for a probability of 0.

        Args:
            X: N rows, as in `fit`.

        Returns:
            Log-probabilities, (N, K).
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))  # type: ignore[attr-defined]


def score_predictions(
    objective: Objective,
    y: Any,
    predictions: np.ndarray,
    classes: np.ndarray,
    abstain_value: Any = "auto",
    sample_weight: Any = None,
) -> float:
    """Return the value of the objective less 10 times the largest miss of a constraint.

    Args:
        objective: bound to the classes.
        y: the true classes, (N,), each class of training at least once; -1, NaN or None if unknown.
        predictions: the predicted classes, (N,), and, if the objective may abstain, a value for no answer.
        classes: classes of training, in order, (K,).
        abstain_value: the value for no answer, see `csst.estimators.scoring`.
        sample_weight: number of rows that each row stands for, (N,); None for one each.
    """
    values, is_known = read_labels(y)
    refuse_other_length(values, len(predictions))
    labels = values[is_known]
    old_classes = classes.tolist()
    new_classes = sorted(set(labels.tolist()) - set(old_classes), key=str)
    names = [str(name) for name in [*old_classes, *new_classes]]
    all_classes = np.array([*old_classes, *new_classes], dtype=object)
    truth = number_labels(labels, all_classes, "the labels y")
    answers = predictions[is_known]
    indices = np.full(len(answers), len(names))
    has_answer = np.ones(len(answers), dtype=bool)
    if objective.abstains:
        no_answer = choose_abstain_value(abstain_value, classes)
        has_answer = np.array([answer is not no_answer and answer != no_answer for answer in answers.tolist()])
    indices[has_answer] = number_labels(answers[has_answer], all_classes, "the predictions")
    if sample_weight is None:
        counts = confusion_counts(truth, indices, len(names), objective.abstains)
    else:
        weights = read_weights(sample_weight, len(values))[is_known]
        weight_sums = np.zeros((len(names), len(names) + objective.abstains))  # no answers in the last column
        np.add.at(weight_sums, (truth, indices), weights)
        counts = torch.from_numpy(weight_sums)
    confusion = Confusion.from_counts(counts, names)
    if not new_classes:
        return score_on(objective, confusion, TOLERANCE).score
    if objective.constant_gain is not None:  # rows of a class without a row in G pay nothing
        part = Confusion.from_counts(counts[: len(old_classes), : len(old_classes)])
        return float(objective.value(part)) * float((truth < len(old_classes)).mean())
    try:
        return score_on(extend(objective, names), confusion, TOLERANCE).score
    except (InputError, RuntimeError, IndexError) as error:  # a metric of the user's own may be for K classes only
        raise InputError(
            f"y holds classes that were not among the labels in training ({names[len(old_classes) :][:5]}), and "
            f"{objective} is not defined for more than {len(old_classes)} classes ({error}): leave their rows out"
        ) from None


def read_weights(sample_weight: Any, rows: int) -> np.ndarray:
    """Return weights of rows as float64, (N,); raise an error for another length, and for negative or infinite ones."""
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (rows,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(
            f"sample_weight must hold a weight of 0 or more for each of the {rows} rows; found shape {weights.shape}"
        )
    return weights


def extend(objective: Objective, names: list[str]) -> Objective:
    """Return the objective for more classes than it was bound to, whose names come after the others."""
    if not isinstance(objective, Sentence):
        return objective.bind(len(names), names)
    former = objective.binding
    binding = Binding(len(names), tuple(names), former.groups, text=former.text)
    return replace(objective, binding=binding)


@dataclass(frozen=True)
class Scorer:
    """Scores a fitted classifier on the rows whose label is known; see `scorer`.

    Args:
        objective: a sentence, a short name or an Objective.
    """

    objective: Any

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score of a fitted classifier, as scikit-learn asks for it.

        Args:
            estimator: a classifier with `predict` and `classes_`.
            X: N rows, as the estimator takes them.
            y: their classes, (N,); -1, NaN or None if unknown.

        Returns:
            The value of the objective less 10 times the largest miss of a constraint.
        """
        values, is_known = read_labels(y)
        if not is_known.any():
            raise InputError("y holds no label at all: there is nothing to score on")
        classes = np.asarray(estimator.classes_)
        if not read_labels(classes)[1].all():
            raise InputError(
                f"{type(estimator).__name__} learned the mark of unlabeled rows as a class of its own (-1): fit it on "
                "the labeled rows only, or wrap it in csst.PostHocClassifier"
            )
        labels = values[is_known]
        predictions = np.asarray(estimator.predict(_safe_indexing(X, np.flatnonzero(is_known))))
        bound = read_objective(self.objective, class_names=[str(name) for name in classes.tolist()])
        return score_predictions(
            bound.bind_prior(read_training_fractions(estimator, labels, classes)), labels, predictions, classes
        )


def read_training_fractions(estimator: Any, labels: np.ndarray, classes: np.ndarray) -> torch.Tensor:
    """Return the class fractions by which `head` and `tail` are told: of training if known, else of the labels."""
    classifier = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    counts = getattr(classifier, "labeled_counts_", None)
    if counts is None:
        counts = [max(1, int((labels == name).sum())) for name in classes]
    return torch.tensor(counts, dtype=torch.float64) / sum(counts)


def scorer(objective: Any) -> Scorer:
    """Return a scorer for `scoring=` of scikit-learn's `cross_val_score` and `GridSearchCV`.

        cross_val_score(clf, X, y, scoring=csst.scorer("max min(recall)"))

    It leaves out rows marked -1, NaN or None. scikit-learn's own, such as "recall_macro", take -1 for a class that is
    never predicted.

    Args:
        objective: a sentence, a short name or an `Objective`; the classifier may be fitted for another.

    Returns:
        A function (estimator, X, y) → the value of the objective less 10 times the largest miss of a constraint.
    """
    read_objective(objective)  # a sentence with a mistake is refused here, and not once per fold
    return Scorer(objective)
