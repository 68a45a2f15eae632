"""A model gives a row one answer, whether it comes dense or sparse or goes to the exported graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, csr_matrix

from csst import CSSTClassifier, InputError
from csst.fitting.export import Decision
from csst.learners.catalog import LEARNERS
from csst.learners.linear import Linear
from tests.helpers.estimators import hidden, quick
from tests.helpers.exports import onnx, run_onnx
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import gaussians, table_of

pytestmark = SHORT_RUN


def counts_of_words(n, seed=0):
    """Rows (n, 12) that are mostly zero and far from mean 0 where they are not, and their classes (n,)."""
    X, y = gaussians(n, np.ones(3) / 3, features=12, apart=1.0, seed=seed)
    return np.where(X > 0.3, X + 3, 0).astype(np.float32), y


def classifier_of(learner):
    return quick() if learner == "network" else CSSTClassifier(learner=learner)


@pytest.mark.parametrize("learner", LEARNERS)
def test_after_sparse_rows_dense_ones_and_the_graph_get_the_same_answer(learner):
    X, y = counts_of_words(120)
    new, _ = counts_of_words(60, seed=1)
    clf = classifier_of(learner).fit(csr_matrix(X), hidden(y))
    probs = clf.predict_proba(csr_matrix(new))
    np.testing.assert_allclose(clf.predict_proba(new), probs, atol=1e-4)
    assert (clf.predict(new) == clf.predict(csr_array(new))).all()
    exportable = clf.fit_.as_exportable()
    graph = Decision(exportable.model, exportable.rule, 3)
    with torch.no_grad():
        graph_probs, graph_labels = graph(torch.from_numpy(new))
    np.testing.assert_allclose(graph_probs, probs, atol=1e-3)
    assert (clf.classes_[graph_labels] == clf.predict(new)).all()


@onnx
def test_after_sparse_rows_onnx_gets_the_same_answer(tmp_path):
    """Of one learner: ONNX files hold the graph, which the test above compares for all of them."""
    X, y = counts_of_words(120)
    new, _ = counts_of_words(60, seed=1)
    clf = CSSTClassifier(learner="linear").fit(csr_matrix(X), hidden(y))
    clf.export(tmp_path / "model.onnx")
    outputs = run_onnx(tmp_path / "model.onnx", new)
    np.testing.assert_allclose(outputs["probabilities"], clf.predict_proba(csr_matrix(new)), atol=1e-3)
    assert (clf.classes_[outputs["label"]] == clf.predict(new)).all()


@pytest.mark.parametrize("learner", LEARNERS)
def test_after_dense_rows_sparse_ones_get_the_same_answer(learner):
    X, y = counts_of_words(120)
    new, _ = counts_of_words(60, seed=1)
    clf = classifier_of(learner).fit(X, hidden(y))
    np.testing.assert_allclose(clf.predict_proba(csr_matrix(new)), clf.predict_proba(new), atol=1e-4)
    assert (clf.predict(csr_array(new)) == clf.predict(new)).all()


@pytest.mark.parametrize("kind", [csr_matrix, np.asarray])
def test_a_linear_model_and_its_graph(kind):
    X, y = counts_of_words(90)
    model = Linear(table_of(X)).fit(kind(X), y)
    np.testing.assert_allclose(model.log_probs(X), model.log_probs(csr_matrix(X)), atol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(X)), model.log_probs(csr_matrix(X)), atol=1e-5)


def test_sparse_rows_after_a_frame_with_categories_get_a_sentence():
    pd = pytest.importorskip("pandas")
    X, y = counts_of_words(60)
    frame = pd.DataFrame({"number": X[:, 0], "color": np.array(["red", "green", "blue"])[y]})
    clf = CSSTClassifier(learner="linear").fit(frame, y)
    with pytest.raises(InputError, match="was a frame with categories; X must be a frame with its columns"):
        clf.predict(csr_matrix(X[:, :2]))
