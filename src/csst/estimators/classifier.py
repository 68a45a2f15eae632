"""State the objective, call fit: a scikit-learn classifier for any objective, with unlabeled examples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from csst.data.examples import InputSpec
from csst.data.task import Task
from csst.errors import InputError
from csst.estimation.expectation import describe_minimum
from csst.estimators.deploying import DeployingMixin, suggest_rows
from csst.estimators.exploring import ExploringMixin, find_judged_rows, keep_examples
from csst.estimators.grouping import number_groups, require_group
from csst.estimators.inputs import describe_columns, note_markers, number_classes, read_labels, split_rows
from csst.estimators.measuring import show_progress
from csst.estimators.networks import is_image_array, plan_network
from csst.estimators.scoring import choose_abstain_value
from csst.estimators.settings import (
    IMAGES,
    ROWS,
    SETTINGS,
    EstimatorSettings,
    change_settings,
    list_parameters,
    read_seed,
    read_settings,
    read_validation,
    refuse_network_settings,
)
from csst.fitting.export import Format
from csst.fitting.fit import fit
from csst.fitting.fitted_model import FittedModel
from csst.fitting.metrics import list_notes
from csst.learners.network import Network
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective
from csst.rules.fresh_labels import deal_certifying
from csst.selftraining import method as read_method
from csst.settings import Settings


class CSSTClassifier(
    DeployingMixin,
    ExploringMixin,
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A classifier for an objective, from few labeled and many unlabeled rows.

        clf = CSSTClassifier("max min(recall)").fit(X, y)    # y == -1, NaN or None: unlabeled
        print(clf.summary())

    The default fits several learners (linear, forest, kernel, label propagation), averages them, and fits the decision
    rule for the objective on labeled and unlabeled rows (docs/explanation/rule.md). `learner="network"` is the paper's
    method.

    Args:
        objective: a sentence such as "max mean(recall) s.t. precision['fraud'] >= 0.9", a short name, or an Objective.
        learner: "auto", the name of a learner (`csst.learners.LEARNERS`), a scikit-learn classifier with
            predict_proba, or a list of these (without the network), which are averaged.
        method: how the network learns: csst, csl (labels only), fixmatch, erm ...
        validation: None judges every labeled row out of fold; or the fraction of the labeled rows held out, indices of
            rows, or a pair (X, y).
        encoder: turns X, a list of texts or an array of images, into vectors: a name (words, hf:NAME_OR_FOLDER) or a
            function.
        confidence: how sure one must be that all bounds hold, as "with confidence 0.95" in the sentence says. The
            validation rows then certify, or else half of the labels (docs/how-to/promise.md).
        deployment_prior: the class balance where the model will be used, on which coverage, precision and F1 depend:
            None (the balance of the validation rows; without any, as estimated from labels and unlabeled rows, with
            bounds that allow for its error), "labels", "unlabeled" (as estimated), "uniform", or one number per class.
        costs: cost of every prediction, for a sentence with `cost`: a matrix with one row per true class and one
            column per prediction, a data frame with class names, or a `csst.CostTable`.
        abstain_value: value that `predict` gives for no answer, for a sentence with `abstain`; "auto" is -1 for integer
            classes and None otherwise.
        per_group: for a sentence about groups of rows: True fits one rule for each group, and `predict` then needs the
            group of every row; False fits one rule for all, best for the worst group (docs/how-to/groups.md).
        settings: everything else, `csst.Settings` or a dictionary such as {"training": {"steps": 500}} of what differs
            from the default; each can be searched, as `settings__selftraining__tau`.
        n_jobs: learners fitted at a time, in threads; -1 for as many as there are cores, None for what
            `joblib.parallel_config` says, else one.
        random_state: seed.
        verbose: 1 shows progress.
    """

    history_: list[dict[str, Any]]

    def __init__(
        self,
        objective: Any = "max min(recall)",
        *,
        learner: Any = "auto",
        method: str = "csst",
        validation: Any = None,
        encoder: Any = None,
        confidence: float | None = None,
        deployment_prior: Any = None,
        costs: Any = None,
        abstain_value: Any = "auto",
        per_group: bool = False,
        settings: Settings | dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.learner = learner
        self.method = method
        self.validation = validation
        self.encoder = encoder
        self.confidence = confidence
        self.deployment_prior = deployment_prior
        self.costs = costs
        self.abstain_value = abstain_value
        self.per_group = per_group
        self.settings = settings
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Args:
            deep: whether every setting is among them, such as settings__training__steps.

        Returns:
            Names and values.
        """
        params: dict[str, Any] = super().get_params(deep)
        return {**params, **list_parameters(self.settings)} if deep else params

    def set_params(self, **params: Any) -> CSSTClassifier:
        """Set parameters by name.

        Args:
            **params: names and values; settings__training__steps=500 sets a single setting.

        Returns:
            The classifier itself.
        """
        parameters = {name: value for name, value in params.items() if not name.startswith(SETTINGS)}
        super().set_params(**parameters)
        single_settings = {name: value for name, value in params.items() if name.startswith(SETTINGS)}
        if single_settings:
            self.settings = change_settings(read_settings(self.settings), single_settings)
        return self

    def fit(
        self, X: Any, y: Any, X_unlabeled: Any = None, *, group: Any = None, group_unlabeled: Any = None
    ) -> CSSTClassifier:
        """Train on the rows of X with a label, and use its other rows and the rows of X_unlabeled without one.

        Args:
            X: N rows: an array or sparse matrix (N, D), or a data frame; texts or images with an encoder; images
                (N, H, W) or (N, H, W, C), uint8 or floats in 0...1, with learner="network".
            y: their classes, (N,); -1, NaN or None if unknown.
            X_unlabeled: more rows like X, without labels.
            group: for a sentence such as "max min(recall by region)", the region of every row, (N,); labeled rows need
                one, unlabeled rows without one (None or NaN) count for each group alike.
            group_unlabeled: the same of X_unlabeled.

        Returns:
            The classifier itself.
        """
        is_network = isinstance(self.learner, str) and self.learner == "network"
        are_images = is_network and self.encoder is None and is_image_array(X)
        settings = read_settings(self.settings, IMAGES if are_images else ROWS)
        objective = read_objective(self.objective, confidence=self.confidence, costs=self.costs)
        require_group(objective, group)
        if not is_network:
            refuse_network_settings(settings, self.learner)
        former_fit = getattr(self, "fit_", None) if settings.warm_start else None
        values, is_known = read_labels(y)
        rows = self._rows(X, reset=former_fit is None)
        classes, labels = number_classes(values, is_known, rows.shape[0])
        choose_abstain_value(self.abstain_value, classes)
        extra_rows = None if X_unlabeled is None else self._rows(X_unlabeled, reset=False)
        seed = read_seed(self.random_state) if former_fit is None else self.seed_
        groups = None
        if group is not None:
            extra_count = 0 if extra_rows is None else extra_rows.shape[0]
            groups = number_groups(str(objective.column), group, rows.shape[0], group_unlabeled, extra_count)
        validation, share = read_validation(self.validation, objective, settings)
        read_rows = partial(self._rows, reset=False)
        task = split_rows(
            rows, labels, is_known, extra_rows, validation, classes, self.columns_, seed, read_rows, groups
        )
        task = deal_certifying(task, objective, self.deployment_prior, seed, share)
        if former_fit is not None:
            self._require_same(classes, task.digest)
        note = note_markers(classes)
        self.notes_: list[str] = [] if note is None else [note]
        if note is not None:
            warnings.warn(note, stacklevel=2)
        if is_network:
            self._fit_network(task, objective, settings, seed, former_fit)
        else:
            self._fit_learners(task, objective, settings, seed, rows.shape[1])
        self.classes_ = classes
        self.seed_ = seed
        self.data_hash_ = task.digest
        self.labeled_counts_ = task.train_counts.tolist()
        self.suggested_ = np.zeros(0, dtype=np.uint64)
        self.judged_rows_ = find_judged_rows(rows, is_known, labels, task.labeled) if self.validation is None else None
        self.judged_examples_ = None if self.encoder is not None else keep_examples(task, self.image_shape_)
        self.intervals_ = self._find_intervals()
        self._note_doubts(task.class_names)
        return self

    def _note_doubts(self, class_names: Sequence[str]) -> None:
        """Add what to be wary of to the notes, and warn of it.

        Few labels are the rule here: how little they say is in the notes, and is not warned of at every fit.
        """
        doubts = list_notes(self.fit_.full_details)
        for doubt in doubts:
            warnings.warn(doubt, stacklevel=3)
        note_on_minimum = describe_minimum(self.intervals_, class_names)
        self.notes_ += [*([note_on_minimum] if note_on_minimum else []), *doubts]

    def _fit_learners(
        self, task: Task, objective: Objective, settings: EstimatorSettings, seed: int, width: int
    ) -> None:
        """Fit learners other than a network, on rows of so many columns."""
        self.fit_ = fit(
            task,
            self.learner,
            objective,
            deployment_prior=self.deployment_prior,
            inputs=InputSpec("array", (width,), is_embedded=self.encoder is not None),
            seed=seed,
            rounds=settings.rounds,
            tau=settings.selftraining.tau,
            n_jobs=self.n_jobs,
            per_group=self.per_group,
        )

    def _fit_network(
        self, rows: Task, objective: Objective, settings: EstimatorSettings, seed: int, former_fit: FittedModel | None
    ) -> None:
        """Train by the paper's method on these rows, continuing `former_fit` if there is one."""
        task, make, inputs = plan_network(rows, settings, self.image_shape_, self.encoder is not None, seed)
        method = str(self.method)
        if read_method(method, task.kind).select is not None and not len(task.unlabeled):
            self.notes_.append(f"there are no unlabeled rows, so {method} learned from labels alone (csl)")
            warnings.warn(self.notes_[-1], stacklevel=3)
            method = "csl"
        name = read_method(method, task.kind).name
        if former_fit is not None:
            former_details = former_fit.full_details.about
            if former_details["method"] != name:
                raise InputError(
                    f"warm_start continues with the same method; the last fit was {former_details['method']}, "
                    f"this one is {name}"
                )
            settings = replace(
                settings, training=replace(settings.training, steps=settings.training.steps + former_details["steps"])
            )
        learner = Network(make, method, settings, (settings.folds or ROWS.folds) if rows.validation is None else 0)
        self.fit_ = fit(
            task,
            learner,
            objective,
            fits_rule=settings.rule == "fit",
            deployment_prior=self.deployment_prior,
            inputs=inputs,
            seed=seed,
            per_group=self.per_group,
            state=None if former_fit is None else former_fit.full_details.state,
            on_record=show_progress if self.verbose else None,
        )
        details = self.fit_.full_details
        assert details.gain is not None
        self.multipliers_ = details.about["multipliers"]
        self.gain_ = details.gain.matrix.numpy()
        self.history_ = [*([] if former_fit is None else self.history_), *details.history]

    def suggest(self, X_pool: Any, n: int) -> np.ndarray:
        """Return rows of the pool to label next, the most useful first: rows of the classes that may be the worst.

        See `csst.estimation.labeling` for the rule. Label all of them, or as many of the first as can be paid for.

        Args:
            X_pool: rows without labels, such as unlabeled rows of the fit.
            n: number of rows.

        Returns:
            Indices of rows of X_pool, (n,).
        """
        check_is_fitted(self)
        rows = self._rows(X_pool, reset=False)
        places = suggest_rows(self.fit_, self.fit_.probs(rows), np.array(self.labeled_counts_), n, self.seed_)
        self._remember_suggested(rows[places])
        return places

    def export(self, path: str | Path, to: Format = "onnx") -> list[Path]:
        """Write the model with its decision rule, and a model card.

        Args:
            path: the model's file.
            to: onnx, torch-export or safetensors.

        Returns:
            The files that were written.
        """
        check_is_fitted(self)
        return self.fit_.export(
            path,
            to,
            method=self.fit_.learner_name,
            data_hash=self.data_hash_,
            preprocessing=describe_columns(self.encoder, self.columns_, self.image_shape_ is not None),
            columns=self.columns_.names,
            measured={"labeled and unlabeled rows": {**self.intervals_, "basis": self.fit_.expected.basis}},
            notes=self.notes_,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = self.encoder is not None
        return tags

    def _require_same(self, classes: np.ndarray, data_hash: str) -> None:
        if not np.array_equal(classes, self.classes_):
            raise InputError(f"warm_start continues with the same classes; they were {self.classes_.tolist()[:5]} ...")
        if data_hash != self.data_hash_ and not isinstance(self.validation, tuple):
            raise InputError(
                "warm_start continues with the labeled rows of the last fit, so that validation rows are never learned "
                "from: pass the same rows, or validation=(X, y)"
            )
