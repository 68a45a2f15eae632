"""State the goal, call fit: a scikit-learn classifier for any objective, with unlabeled examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor

from csst.confusion import Confusion, confusion_counts
from csst.data.tables import Columns, encode, is_frame, learn_columns
from csst.errors import InputError
from csst.estimator.choosing import chosen
from csst.estimator.dividing import divide
from csst.estimator.exportable import exportable
from csst.estimator.fitting import Fit, network, task_of
from csst.estimator.inputs import as_examples, embed, is_sparse, numbers_of, read_labels
from csst.estimator.summary import summary
from csst.evaluation import logits
from csst.exporting import Format, export
from csst.resampling import all_intervals
from csst.settings import Dual, Hardware, Selection, SelfTrainingSettings, Settings, Training


class CSSTClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier trained for a goal, from labeled and unlabeled examples.

        clf = CSSTClassifier("max min(recall)").fit(X, y)    # y == -1, NaN or None: unlabeled
        print(clf.summary())

    Args:
        objective: a sentence such as "max mean(recall) s.t. precision['fraud'] >= 0.9", a short name, or an Objective.
        method: csst, csl (labels only), fixmatch, erm ..., or auto, which trains csl and csst and keeps what does best.
        validation: share of the labeled rows held out, indices of rows, a pair (X, y), or "cross-fit", which holds
            none out and steers by out-of-fold predictions.
        finish: "posthoc" fits the decision rule best for the objective after training.
        encoder: turns X, a list of texts or an array of images, into vectors: a name (words, hf:NAME_OR_FOLDER) or a
            function.
        views: "auto", "table", "embedding", or a pair of functions (batch, generator) -> batch.
        hidden, depth: width and number of hidden layers; depth 0 is linear.
        steps, lr, labeled_batch, unlabeled_batch, ema: how it is trained.
        tau, confidence, unlabeled_weight: how unlabeled examples are used.
        step_size, steps_per_update, shrinkage: how the multipliers move; see `csst.settings.Dual`.
        folds: of cross-fitting.
        guard: also train on labels alone, to say when the unlabeled data hurts.
        cache: folder of embeddings; default the user's cache folder.
        device: auto, cpu, cuda or mps.
        warm_start: fit again goes on from where the last fit ended, for `steps` more steps.
        random_state: seed.
        verbose: 1 shows progress.
    """

    fit_: Fit
    seed_: int

    def __init__(
        self,
        objective: Any = "max min(recall)",
        method: str = "csst",
        *,
        validation: Any = 0.2,
        finish: Literal["posthoc"] | None = None,
        encoder: Any = None,
        views: Any = "auto",
        hidden: int = 128,
        depth: int = 2,
        steps: int = 1000,
        lr: float = 0.03,
        labeled_batch: int = 64,
        unlabeled_batch: int = 256,
        ema: float = 0.99,
        tau: float = 0.05,
        confidence: float = 0.95,
        unlabeled_weight: float = 1.0,
        step_size: float = 0.5,
        steps_per_update: int = 20,
        shrinkage: bool = True,
        folds: int = 3,
        guard: bool = True,
        cache: str = "",
        device: str = "auto",
        warm_start: bool = False,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.objective, self.method, self.validation, self.finish = objective, method, validation, finish
        self.encoder, self.views, self.hidden, self.depth = encoder, views, hidden, depth
        self.steps, self.lr, self.labeled_batch, self.unlabeled_batch = steps, lr, labeled_batch, unlabeled_batch
        self.ema, self.tau, self.confidence, self.unlabeled_weight = ema, tau, confidence, unlabeled_weight
        self.step_size, self.steps_per_update, self.shrinkage = step_size, steps_per_update, shrinkage
        self.folds, self.guard, self.cache, self.device = folds, guard, cache, device
        self.warm_start, self.random_state, self.verbose = warm_start, random_state, verbose

    def fit(self, X: Any, y: Any, X_unlabeled: Any = None) -> CSSTClassifier:
        """Train on the rows of X whose label is known, and use the others, and those of X_unlabeled, without one."""
        if self.finish not in (None, "posthoc"):
            raise InputError(f"finish must be None or 'posthoc'; found {self.finish!r}")
        last = self.fit_ if self.warm_start and hasattr(self, "fit_") else None
        values, known = read_labels(y)
        rows = self._rows(X, reset=last is None)
        if len(values) != rows.shape[0]:
            raise InputError(f"X and y must have the same length; found {rows.shape[0]} rows and {len(values)} labels")
        if not known.any():
            raise InputError("y holds no label at all: some rows of every class must be labeled")
        values = np.asarray(values[known].tolist())
        check_classification_targets(values)
        classes, labels = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"at least two classes are needed; found one class, {classes.tolist()[0]!r}")
        extra = None if X_unlabeled is None else self._rows(X_unlabeled, reset=False)
        seed = self._seed() if last is None else self.seed_
        sizes, asked = self.columns_.sizes, self.validation
        read = partial(self._rows, reset=False)
        data = divide(rows, labels.astype(np.int64), known, extra, asked, classes, sizes, seed, read)
        if last is not None:
            self._require_same(classes, data.hash)
        task = task_of(data, self._views() if isinstance(self.views, str) else tuple(self.views))
        make = network(data, self.hidden, self.depth, seed)
        folds = self.folds if data.validation is None else 0
        self.fit_, self.notes_ = chosen(self, task, make, self._settings(), seed, folds, last)
        self.classes_, self.seed_, self.data_hash_ = classes, seed, data.hash
        self.multipliers_, self.history_, self.gain_ = self.fit_.multipliers, self.fit_.history, self.fit_.gain
        self.labeled_counts_ = np.bincount(data.labels, minlength=len(classes)).tolist()
        self.intervals_ = all_intervals(self.fit_.objective, self.fit_.judged)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores whose largest is predicted: logits, or G^T p where finished; one column if binary."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """softmax of the logits; for a worst-class goal these are not calibrated probabilities."""
        return torch.softmax(self._logits(X).double(), 1).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The objective itself on the rows whose label is known."""
        if sample_weight is not None:
            raise InputError("sample_weight is not supported: recall and coverage are counted per class")
        scores = self._scores(X)
        values, known = read_labels(y)
        if len(values) != len(scores):
            raise InputError(f"X and y must have the same length; found {len(scores)} rows and {len(values)} labels")
        truth = numbers_of(values[known], self.classes_, "the labels y")
        counts = confusion_counts(truth, scores.argmax(1)[known], len(self.classes_))
        return float(self.fit_.objective.value(Confusion.from_counts(counts, [str(c) for c in self.classes_])))

    def summary(self) -> str:
        """What it reached on validation, how sure that is, and what to be wary of."""
        check_is_fitted(self)
        names, found = [str(name) for name in self.classes_], self.fit_
        about = f"{found.method}{' + post-hoc' if found.finished else ''} for"
        where = "out-of-fold predictions" if len(found.states) > 1 else "validation"
        return summary(found.objective, found.judged, names, self.labeled_counts_, self.notes_, about, where)

    def export(self, path: str | Path, to: Format = "onnx") -> list[Path]:
        """Write the model with its decision rule, and a model card: onnx, torch-export or safetensors."""
        check_is_fitted(self)
        return export(exportable(self), path, to)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = self.encoder is not None
        return tags

    def _scores(self, X: Any) -> np.ndarray:
        found = self._logits(X)
        if self.fit_.finished is None:
            return found.numpy()
        return self.fit_.finished.rule.scores(torch.softmax(found.double(), 1)).numpy()

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return logits(self.fit_.model, as_examples(self._rows(X, reset=False)), 8192)

    def _rows(self, X: Any, reset: bool) -> Any:
        if self.encoder is not None:
            rows: Any = embed(X, self.encoder, self.cache)
            if reset:
                self.n_features_in_, self.columns_ = rows.shape[1], learn_columns(rows)
            return encode(rows, self.columns_, "the embedding of X")
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                self.columns_ = learn_columns(X)
            return encode(X, self.columns_)
        rows = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        if reset:
            self.columns_ = Columns(None, {}, rows.shape[1])
        return rows if is_sparse(rows) else encode(rows, self.columns_)

    def _require_same(self, classes: np.ndarray, found: str) -> None:
        if not np.array_equal(classes, self.classes_):
            raise InputError(f"warm_start goes on with the same classes; they were {self.classes_.tolist()[:5]} ...")
        if found != self.data_hash_ and not isinstance(self.validation, tuple):
            raise InputError(
                "warm_start goes on with the labeled rows of the last fit, or validation rows would have been learned "
                "from: give the same rows, or validation=(X, y)"
            )

    def _views(self) -> str:
        if self.views not in ("auto", "table", "embedding"):
            raise InputError(f"views are auto, table, embedding or a pair of functions; found {self.views!r}")
        return ("embedding" if self.encoder is not None else "table") if self.views == "auto" else self.views

    def _seed(self) -> int:
        state = self.random_state
        return int(state) if isinstance(state, int | np.integer) else int(check_random_state(state).randint(2**31))

    def _settings(self) -> Settings:
        training = Training(self.steps, self.labeled_batch, self.unlabeled_batch, lr=self.lr, ema=self.ema)
        return Settings(
            training,
            SelfTrainingSettings(self.unlabeled_weight, self.tau, self.confidence),
            Dual(self.steps_per_update, self.step_size, "linear", shrinkage=self.shrinkage),
            Selection(),
            Hardware(accelerator=self.device, threads=1),  # type: ignore[arg-type]
        )
