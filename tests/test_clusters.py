"""Work that joblib spreads over processes and machines gives the numbers of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config

from csst import CSSTClassifier
from csst.comparison.compare import compare
from csst.comparison.rows import Row
from csst.recipes import recipe
from tests.helpers.estimators import blobs, hidden


def fit_blobs() -> np.ndarray:
    X, y = blobs(90)
    return CSSTClassifier(random_state=0).fit(X, hidden(y)).predict_proba(X)


def compare_toys(out, jobs: int | None) -> list[dict[str, Any]]:
    toy = recipe("toy")
    toy = replace(toy, training=replace(toy.training, steps=6), learner="network")
    rows = [Row("erm", "erm", "max min(recall)"), Row("csl", "csl", "max min(recall)")]
    return [outcome.metrics[0]["test"] for outcome in compare(toy, rows, [0], out, jobs, "none")]


def test_a_fit_asks_joblib_where_to_run(monkeypatch):
    """Without `n_jobs` of its own it takes as many as the configuration says."""
    from sklearn.utils import parallel

    numbers = []
    call = parallel.Parallel.__call__
    monkeypatch.setattr(
        parallel.Parallel, "__call__", lambda self, tasks: (numbers.append(self.n_jobs), call(self, tasks))[1]
    )
    expected = fit_blobs()
    with parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(fit_blobs(), expected)
    assert set(numbers) == {1, 2}


def test_runs_of_a_comparison_by_joblib(tmp_path):
    assert compare_toys(tmp_path / "joblib", None) == compare_toys(tmp_path / "alone", 1)


@pytest.mark.slow
def test_processes(tmp_path):
    expected = fit_blobs()
    runs = compare_toys(tmp_path / "alone", 1)
    with parallel_config("loky", n_jobs=2):
        np.testing.assert_array_equal(fit_blobs(), expected)
        assert compare_toys(tmp_path / "loky", None) == runs


@pytest.mark.slow
def test_a_cluster_of_dask(tmp_path):
    distributed = pytest.importorskip("distributed")
    expected = fit_blobs()
    runs = compare_toys(tmp_path / "alone", 1)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), parallel_config("dask"):
        np.testing.assert_array_equal(fit_blobs(), expected)
        assert compare_toys(tmp_path / "dask", None) == runs
