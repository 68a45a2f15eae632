"""A fitted estimator in use: `monitor` new rows without labels, and `adapt` its rule to their class balance."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from csst.estimation.expectation import describe_minimum, estimate_intervals
from csst.fitting import monitoring
from csst.fitting.fitted_model import FittedModel
from csst.rules.monitor import Monitoring

Self = TypeVar("Self", bound="MonitoringMixin")


class MonitoringMixin:
    """New rows without labels, for an estimator that has `fit_`, `classes_` and `_rows`."""

    fit_: FittedModel
    classes_: np.ndarray
    intervals_: dict[str, Any]
    notes_: list[str]
    deployment_prior: Any
    seed_: int

    def _rows(self, X: Any, reset: bool) -> Any:
        raise NotImplementedError

    def monitor(self, X_new: Any) -> Monitoring:
        """Return what new rows without labels say: their class balance, what to expect there, and whether to trust it.

        Args:
            X_new: at least 20 rows, as in `fit`: a random sample of the rows where the classifier is used.

        Returns:
            Class balance with intervals, the value of the objective and its bounds on the new rows, and the test
            whether the labeled classes explain the rows; `print` shows it in words, `as_dict` gives plain values.
        """
        check_is_fitted(self)
        return monitoring.monitor(self.fit_, monitoring.read_fit(self.fit_), self._rows(X_new, reset=False))

    def adapt(self: Self, X_new: Any) -> Self:
        """Return a classifier whose rule is solved again for the class balance of new rows; this one stays as it is.

        The learners stay the same. Refused where the labeled classes do not explain the rows (`monitor`), and for rows
        of a single class. A certificate does not carry over: certify the new rule with fresh labels.

        Args:
            X_new: at least 20 rows, as in `fit`: a random sample of the rows where the classifier is used.

        Returns:
            A new classifier.
        """
        check_is_fitted(self)
        rows = self._rows(X_new, reset=False)
        adaptation = monitoring.adapt(self.fit_, monitoring.read_fit(self.fit_), rows, self.seed_)
        rule = adaptation.fitted
        classifier = copy.copy(self)
        details = replace(self.fit_.full_details, adjusted=rule, notes=rule.notes)
        classifier.fit_ = replace(self.fit_, rule=rule.rule, objective=rule.objective, details=details)
        classifier.deployment_prior = adaptation.monitoring.balance.prior
        classifier.intervals_ = estimate_intervals(rule.objective, rule.estimate)
        note_on_minimum = describe_minimum(classifier.intervals_, classifier.fit_.class_names)
        about = f"the rule was solved again for the class balance of {adaptation.monitoring.balance.rows:,} new rows"
        classifier.notes_ = [about, *([note_on_minimum] if note_on_minimum else []), *rule.notes]
        return classifier
