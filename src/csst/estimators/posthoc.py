"""Any scikit-learn classifier with a decision rule: `PostHocClassifier(estimator, "max min(recall)")`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from csst.errors import InputError
from csst.estimators.grouping import number_groups, require_group, summarize_groups
from csst.estimators.inputs import number_labels, read_labels
from csst.estimators.measuring import write_summary
from csst.estimators.scoring import ScoringMixin, choose_abstain_value, name_answers
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.cells import RowGroups
from csst.rules.fit import fit_rule


class PostHocClassifier(ScoringMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts by a decision rule for an objective on the probabilities of any classifier.

        clf = PostHocClassifier(LogisticRegression(), "max min(recall)").fit(X, y)     # y == -1: unlabeled
        print(clf.summary())

    Args:
        estimator: a classifier with `predict_proba`.
        objective: a sentence, a short name or a `csst.Objective`; classes may be named by their labels
            (`recall['fraud']`).
        cv: folds or a splitter for the out-of-fold probabilities on which the rule is fitted, after which the estimator
            is fitted on all labeled rows; or "prefit" for an estimator that is fitted already, on other rows than those
            given to `fit`.
        train_prior: the class prior behind the probabilities: "labels" (the fractions of y; for a prefit estimator give
            those it was fitted on), "uniform" for a class-weighted estimator, or one number per class.
        deployment_prior: the class prior under which the objective is measured: None (that of the unlabeled rows, as
            labels and they tell), "labels", "uniform", or one number per class.
        costs: cost of every prediction, for a sentence with `cost`, see `csst.CSSTClassifier`.
        abstain_value: value of `predict` for no answer, for a sentence with `abstain`, see `csst.CSSTClassifier`.
        per_group: whether each group of rows gets a rule of its own, see `csst.CSSTClassifier`.
        random_state: seed of the folds on which rules are judged.

    After fit: `estimator_`, `classes_`, `labeled_counts_`, `rule_` and `summary_`, a `csst.rules.FittedRule`.
    """

    def __init__(
        self,
        estimator: Any,
        objective: str | Objective = "max min(recall)",
        *,
        cv: Any = 5,
        train_prior: Any = "labels",
        deployment_prior: Any = None,
        costs: Any = None,
        abstain_value: Any = "auto",
        per_group: bool = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.cv = cv
        self.train_prior = train_prior
        self.deployment_prior = deployment_prior
        self.costs = costs
        self.abstain_value = abstain_value
        self.per_group = per_group
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, X_unlabeled: Any = None, *, group: Any = None, group_unlabeled: Any = None
    ) -> PostHocClassifier:
        """Fit the estimator (unless it is prefit) and the rule.

        Args:
            X: N rows, as the estimator takes them.
            y: their classes, (N,); -1, NaN or None if unknown.
            X_unlabeled: more rows like X, without labels.
            group: for a sentence such as "max min(recall by region)", the region of every row, (N,); labeled rows need
                one, other rows without one count for each group alike.
            group_unlabeled: the same of X_unlabeled.

        Returns:
            The classifier itself.
        """
        if not hasattr(self.estimator, "predict_proba"):
            raise InputError(
                f"a rule is fitted on probabilities, and {type(self.estimator).__name__} has no predict_proba: "
                "wrap it in CalibratedClassifierCV"
            )
        values, is_known = read_labels(y)
        if not is_known.any():
            raise InputError("y holds no label at all: some rows of every class must be labeled")
        labeled = X if is_known.all() else _safe_indexing(X, np.flatnonzero(is_known))
        target = np.asarray(values[is_known].tolist())
        check_classification_targets(target)
        objective = read_objective(self.objective, costs=self.costs)
        require_group(objective, group)
        if objective.confidence is not None and not isinstance(self.cv, str):
            raise InputError(
                "out-of-fold probabilities judge other models than the one that is used and certify nothing: pass a "
                'fitted estimator with cv="prefit" and rows it has not learned from, or leave the confidence out'
            )
        probs = self._score_labeled(labeled, target)
        self.classes_ = np.asarray(self.estimator_.classes_)
        choose_abstain_value(self.abstain_value, self.classes_)
        unlabeled_parts = [] if is_known.all() else [_safe_indexing(X, np.flatnonzero(~is_known))]
        if X_unlabeled is not None:
            unlabeled_parts.append(X_unlabeled)
        unlabeled_probs = [self.estimator_.predict_proba(rows) for rows in unlabeled_parts]
        groups = None
        if group is not None:
            extra_count = sum(map(len, unlabeled_probs)) - int((~is_known).sum())
            all_groups = number_groups(str(objective.column), group, len(is_known), group_unlabeled, extra_count)
            unlabeled_groups = np.concatenate([all_groups.rows[~is_known], all_groups.extra])
            groups = RowGroups(all_groups.column, all_groups.names, all_groups.rows[is_known], unlabeled_groups)
        self.summary_ = fit_rule(
            probs,
            number_labels(target, self.classes_, "y"),
            objective,
            np.vstack(unlabeled_probs) if unlabeled_probs else None,
            train_prior=self.train_prior,
            deployment_prior=self.deployment_prior,
            class_names=[str(name) for name in self.classes_.tolist()],
            is_cross_fitted=not isinstance(self.cv, str),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            groups=groups,
            per_group=self.per_group,
        )
        self.rule_ = self.summary_.rule
        self.labeled_counts_ = self.summary_.evidence.counts.tolist()
        for note in self.summary_.notes:
            warnings.warn(note, stacklevel=2)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _score_labeled(self, labeled: Any, target: np.ndarray) -> Any:
        """Return probabilities of labeled rows by models that have not learned from them, and set `estimator_`."""
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                raise InputError(f'cv is a number of folds, a splitter or "prefit"; found {self.cv!r}')
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            return self.estimator_.predict_proba(labeled)
        if len(np.unique(target)) < 2:
            raise InputError("a rule chooses between classes, and y holds one class only: at least 2 are needed")
        folds = self._make_folds(target)
        probs = cross_val_predict(clone(self.estimator), labeled, target, cv=folds, method="predict_proba")
        self.estimator_ = clone(self.estimator).fit(labeled, target)
        return probs

    def predict(self, X: Any, group: Any = None) -> Any:
        """Return the class of each row by the fitted rule.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Classes, (N,).
        """
        probs = self._compute_probs(X)
        decisions = self.rule_.predict(probs, group).numpy()
        return name_answers(decisions, self.classes_, choose_abstain_value(self.abstain_value, self.classes_))

    def predict_proba(self, X: Any, group: Any = None) -> Any:
        """Return calibrated probabilities under the deployment prior; their argmax is not the prediction of the rule.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Probabilities, (N, K).
        """
        probs = self._compute_probs(X)
        return self.rule_.posterior(probs, group).numpy()

    def decision_function(self, X: Any, group: Any = None) -> Any:
        """Return the scores whose largest is predicted.

        Args:
            X: N rows, as in `fit`.
            group: the group of every row, (N,), if each group has a rule of its own.

        Returns:
            Scores, (N, K); for two classes the second less the first, (N,). A rule that may give no answer has a last
            column for it, (N, K + 1).
        """
        probs = self._compute_probs(X)
        scores = self.rule_.scores(probs, group).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    @property
    def _goal(self) -> Objective:
        groups = self.summary_.groups
        return self.summary_.objective if groups is None else groups.sentence

    def summary(self) -> str:
        """Return what to expect of the rule, how sure that is, and what to be wary of, in a few lines."""
        check_is_fitted(self)
        rule = self.summary_
        names = [str(name) for name in self.classes_.tolist()]
        about = f"{type(self.estimator_).__name__}, rule: {rule.chosen}"
        counts = self.labeled_counts_
        text = write_summary(
            rule.goal, rule.estimate, names, counts, list(rule.notes), about, rule.intervals, rule.bounds
        )
        return text if rule.groups is None else "\n".join([text, *summarize_groups(rule.groups)])

    def _compute_probs(self, X: Any) -> Any:
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def _make_folds(self, target: Any) -> Any:
        if isinstance(self.cv, bool) or not isinstance(self.cv, int):
            return self.cv
        classes, counts = np.unique(target, return_counts=True)
        count = int(counts.min())
        name = classes[counts.argmin()]
        if self.cv < 2:
            raise InputError(f"cv needs at least 2 folds; found {self.cv}")
        if count < 2:
            raise InputError(
                f"out-of-fold probabilities need at least 2 rows of every class; class {str(name)!r} has 1 in y"
            )
        if count < self.cv:
            warnings.warn(
                f"cv is lowered from {self.cv} to {count} folds, as class {str(name)!r} has only {count} rows "
                f"and each fold needs one: add rows of it, or set cv={count}",
                UserWarning,
                stacklevel=4,
            )
        return check_cv(min(self.cv, count), target, classifier=True)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags

        tags = super().__sklearn_tags__()
        estimator_tags = get_tags(self.estimator)
        tags.input_tags.sparse = estimator_tags.input_tags.sparse
        tags.input_tags.pairwise = estimator_tags.input_tags.pairwise
        tags.input_tags.allow_nan = estimator_tags.input_tags.allow_nan
        tags.classifier_tags.multi_class = (
            estimator_tags.classifier_tags is None or estimator_tags.classifier_tags.multi_class
        )
        return tags
