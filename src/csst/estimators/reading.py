"""Read the rows that an estimator is given: arrays, data frames, sparse matrices, texts, images."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from csst.data.tabular.column_kinds import learn_columns
from csst.data.tabular.columns import Columns
from csst.data.tabular.tables import find_categorical, is_frame, is_sparse, read_frame, warn_about_coarse_columns
from csst.data.task import Labeled
from csst.errors import InputError
from csst.estimators.inputs import embed, warn_about_columns
from csst.estimators.networks import is_image_array, read_image_rows, refuse_other_shape
from csst.estimators.settings import read_settings
from csst.fitting.fitted_model import FittedModel


class ReadingMixin:
    """Rows of numbers for an estimator, whose parameters and fitted attributes are declared here."""

    encoder: Any
    learner: Any
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
        with np.errstate(over="ignore", invalid="ignore"):  # what is beyond float32 is refused below, with its place
            rows = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if reset:
            self.columns_ = Columns(array_width=rows.shape[1])
        if self.columns_.categories:
            raise InputError("the training data was a frame with categories; X must be a frame with its columns")
        if is_sparse(rows) and self.columns_.width == rows.shape[1]:
            return rows
        if reset:
            warn_about_coarse_columns(rows, "X")
        elif self.columns_.width == rows.shape[1] and self.columns_.offsets.any():
            rows = rows.astype(np.float64) - self.columns_.offsets
        with np.errstate(over="ignore"):  # beyond float32 is infinity, which is refused with its place
            return self.columns_.refuse_infinite(rows.astype(np.float32), "X")
