"""A fitted estimator in use: rows to label next, what it promises, what fresh labels prove, what unlabeled rows say."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from csst.data.row_hashes import hash_rows
from csst.errors import InputError
from csst.estimation.expectation import describe_minimum, estimate_intervals
from csst.estimation.held_out_scores import take_out, undo_gain
from csst.estimation.labeling import allocate_labels, rank_rows
from csst.estimation.shift import estimate_prior
from csst.estimators.inputs import number_labels, read_labels, refuse_other_length
from csst.estimators.measuring import MeasuringMixin
from csst.fitting import monitoring
from csst.fitting.fitted_model import FittedModel
from csst.rules.certification import (
    Certification,
    Expectation,
    certify_labels,
    name_row_groups,
    read_certified,
    refuse_seen,
)
from csst.rules.monitor import Monitoring
from csst.rules.rule import read_group_values

Self = TypeVar("Self", bound="DeployingMixin")


class DeployingMixin(MeasuringMixin):
    """Certificates and monitoring of a fitted estimator."""

    def _remember_suggested(self, rows: Any) -> None:
        """Keep in mind rows that were chosen and are no random sample, so that they cannot certify."""
        self.suggested_ = np.concatenate([self.suggested_, hash_rows(rows)])

    def certify(
        self,
        sentence: Any,
        X: Any,
        y: Any,
        confidence: float | None = None,
        X_unlabeled: Any = None,
        group: Any = None,
    ) -> Certification:
        """Return whether fresh labels prove or disprove the bounds of a sentence for this classifier as it is.

        Labels may come one by one: pass all rows in the order of their arrival, as often as you like. Rows of the fit
        and rows that `suggest` chose are refused.

        Args:
            sentence: a sentence with bounds, or only the bounds, such as "precision['fraud'] >= 0.9"; None for that of
                the fit.
            X: N fresh rows, as in `fit`: a random sample of the rows where the classifier is used; for recall, random
                rows of their class will do.
            y: their classes, (N,).
            confidence: how sure one must be; None for what the sentence says, or else 0.95.
            X_unlabeled: fresh rows without labels, of the same population as X in random order: what the model expects
                of them makes labels go further, and never the verdict wrong; None uses labels alone.
            group: the group of every row of X, (N,), for bounds such as "recall by region >= 0.7", each of which is
                proved by the labels of its group alone.

        Returns:
            certified, refuted or undecided, and about how many labels would decide.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        values, is_known = read_labels(y)
        refuse_other_length(values, rows.shape[0])
        if not is_known.all() or not len(values):
            raise InputError(
                "every row that certifies needs a label; leave the others out, or pass them as X_unlabeled"
            )
        truth = number_labels(values, self.classes_, "the labels y")
        names = self.fit_.class_names
        objective = self.fit_.stated if sentence is None else sentence
        row_groups = name_row_groups(self.fit_.groups, group)
        goal = read_certified(objective, confidence, self.fit_.objective, names, row_groups)
        if X_unlabeled is not None and self.fit_.rule is not None and self.fit_.rule.column:
            raise InputError("a rule for each group needs the group of every row: leave X_unlabeled out")
        seen_hashes = self.fit_.row_hashes
        refuse_seen(hash_rows(rows), seen_hashes, self.suggested_)
        expectation = None
        if X_unlabeled is not None:
            pool = self._rows(X_unlabeled, reset=False)
            refuse_seen(hash_rows(pool), seen_hashes, self.suggested_)
            expectation = self._expect(rows, pool)
        predictions = self.fit_.predict(rows, group).numpy()
        places = None if not row_groups else read_group_values(group, row_groups, str(goal.column), len(truth))
        return certify_labels(goal, truth, predictions, self.deployment_prior, names, expectation, places)

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

    def _expect(self, rows: Any, pool: Any) -> Expectation | None:
        """Return what the model expects of labeled and unlabeled rows; None without a rule fitted to labels."""
        details = self.fit_.full_details
        if details.adjusted is None or self.fit_.rule is None:
            return None
        evidence = details.adjusted.evidence
        scores = torch.from_numpy(evidence.scores + np.log(evidence.train_prior))
        probs = torch.softmax(scores, 1)
        return Expectation(
            self.fit_.predict_proba(rows).numpy(),
            self.fit_.predict_proba(pool).numpy(),
            self.fit_.predict(pool).numpy(),
            self.fit_.rule.posterior(probs).numpy(),
            evidence.labels,
            self.fit_.rule.predict(probs).numpy(),
        )


def suggest_rows(fitted: FittedModel, probs: Tensor, labeled: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the rows of a pool to label next, the most useful first, (count,).

    Args:
        fitted: the model, right after fitting.
        probs: probabilities of the pool by the model, (N, K).
        labeled: number of labels of every class in the fit, (K,).
        count: number of rows.
        seed: seed of the draws.
    """
    if not 1 <= count <= len(probs):
        raise InputError(f"n must be from 1 to the {len(probs)} rows of X_pool; found {count}")
    scores = calibrate_scores(fitted, probs)
    posterior = softmax(scores + np.log(estimate_prior(scores, labeled / labeled.sum())), axis=1)
    return rank_rows(posterior, allocate_labels(fitted.expected), count, seed)


def calibrate_scores(fitted: FittedModel, probs: Tensor) -> np.ndarray:
    """Return s = T z + a, the model's calibrated log-probabilities with every class prior taken out, (N, K)."""
    if fitted.rule is not None:
        return take_out(fitted.rule.posterior(probs).numpy(), fitted.expected.confusion.prior.numpy())
    # The softmax of a network without a rule is under the gain and the class prior that it was trained under.
    details = fitted.full_details
    posterior = undo_gain(probs, details.outputs.gain.softmax_inverse).numpy()
    evidence = details.outputs.evidence(details.train_prior, fitted.class_names)
    return evidence.calibration.apply(take_out(posterior, evidence.train_prior))
