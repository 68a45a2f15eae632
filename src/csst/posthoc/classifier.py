"""Any scikit-learn classifier, finished for an objective: `PostHocClassifier(estimator, "max min(recall)")`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from csst.confusion import Confusion, refuse_empty_classes
from csst.errors import InputError
from csst.language import objective as read_objective
from csst.objectives import Objective
from csst.posthoc.crossfit import cross_fit
from csst.posthoc.fitting import TOLERANCE
from csst.posthoc.rule import DecisionRule
from csst.selection import standing


class PostHocClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts argmax_j (G^T p)_j, with p from any classifier with `predict_proba` and G fitted for the objective.

    estimator: the classifier. objective: a sentence, a short name or a `csst.Objective`; classes may be named by their
    labels (`recall['fraud']`). cv: folds or a splitter for the out-of-fold probabilities on which G is fitted, after
    which the estimator is fitted on all examples; or "prefit" for an estimator that is fitted already, on other
    examples than those given to `fit`. randomised: a lottery between rules may be used where it does better.
    random_state: the seed of the search and, for a lottery, of the draws.

    After fit: `estimator_`, `classes_`, `rule_` and `summary_` (a `CrossFit`: `print(summary_.sentence)`).
    """

    def __init__(
        self,
        estimator: Any,
        objective: str | Objective = "max min(recall)",
        *,
        cv: Any = 5,
        randomised: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.cv = cv
        self.randomised = randomised
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PostHocClassifier:
        """Fit the estimator (unless it is prefit) and the rule."""
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        if not hasattr(self.estimator, "predict_proba"):
            raise InputError(
                f"a rule is fitted on probabilities, and {type(self.estimator).__name__} has no predict_proba: "
                "wrap it in CalibratedClassifierCV"
            )
        target = column_or_1d(y, warn=True)
        check_classification_targets(target)
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                raise InputError(f'cv is a number of folds, a splitter or "prefit"; found {self.cv!r}')
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            probs = self.estimator_.predict_proba(X)
        else:
            if len(np.unique(target)) < 2:
                raise InputError("a rule chooses between classes, and y holds one class only: at least 2 are needed")
            probs = cross_val_predict(clone(self.estimator), X, target, cv=self._folds(target), method="predict_proba")
            self.estimator_ = clone(self.estimator).fit(X, target)
        self.classes_ = np.asarray(self.estimator_.classes_)
        labels = self._indices(target)
        names = [str(name) for name in self.classes_.tolist()]
        members = np.bincount(labels, minlength=len(names))
        refuse_empty_classes(torch.from_numpy(members), names, "a post-hoc rule", "y")
        if members.min() < 2:
            few = [name for name, count in zip(names, members, strict=True) if count < 2]
            raise InputError(f"a rule is fitted on at least 2 examples of every class; classes {few} have 1 in y")
        bound = read_objective(self.objective, class_names=names)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.summary_ = cross_fit(
            probs, labels, bound, folds=min(5, len(labels)), randomised=self.randomised, seed=seed
        )
        self.rule_ = self.summary_.rule
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> Any:
        """The class of each example by the fitted rule."""
        probs = self.predict_proba(X)
        if isinstance(self.rule_, DecisionRule):
            return self.classes_[self.rule_.predict(probs).numpy()]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return self.classes_[self.rule_.predict(probs, seed).numpy()]

    def predict_proba(self, X: Any) -> Any:
        """The probabilities of the estimator, as they are: their argmax is the prediction without the rule."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def decision_function(self, X: Any) -> Any:
        """G^T p (N, K), or for two classes the second less the first (N,); for a lottery the chance of each class."""
        probs = self.predict_proba(X)
        scores = self.rule_.scores(probs).numpy()
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: None = None) -> float:
        """The objective on these examples, less 10 times the largest miss of a constraint; every class must occur.

        For a lottery the expected confusion is used, without drawing.
        """
        if sample_weight is not None:
            raise InputError("the objective is measured with all examples alike: sample_weight must be None")
        probs, labels = self.predict_proba(X), self._indices(column_or_1d(y, warn=True))
        counts = self.rule_.counts(probs, labels)
        c = Confusion.from_counts(counts, [str(name) for name in self.classes_.tolist()])
        return standing(self.summary_.fitted.objective, c, TOLERANCE).score

    def _folds(self, target: Any) -> Any:
        if isinstance(self.cv, bool) or not isinstance(self.cv, int):
            return self.cv
        found, counts = np.unique(target, return_counts=True)
        fewest, rarest = int(counts.min()), found[counts.argmin()]
        if self.cv < 2:
            raise InputError(f"cv needs at least 2 folds; found {self.cv}")
        if fewest < 2:
            raise InputError(
                f"out-of-fold probabilities need at least 2 examples of every class; class {str(rarest)!r} has 1 in y"
            )
        if fewest < self.cv:
            warnings.warn(
                f"cv is lowered from {self.cv} to {fewest} folds, as class {str(rarest)!r} has only {fewest} examples "
                f"and each fold needs one: add examples of it, or set cv={fewest}",
                UserWarning,
                stacklevel=3,
            )
        return check_cv(min(self.cv, fewest), target, classifier=True)

    def _indices(self, target: Any) -> Any:
        """The labels as class indices."""
        order = np.argsort(self.classes_)
        at = np.searchsorted(self.classes_, target, sorter=order).clip(max=len(order) - 1)
        found = order[at]
        strange = np.unique(target[self.classes_[found] != target])
        if len(strange):
            raise InputError(
                f"y holds labels that the estimator does not know: {strange[:5].tolist()}; "
                f"its classes are {self.classes_[:20].tolist()}"
            )
        return found

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags

        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        tags.classifier_tags.multi_class = inner.classifier_tags is None or inner.classifier_tags.multi_class
        return tags
