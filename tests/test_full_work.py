"""From rows to the page and back, with nothing left out: `conftest.py` shortens what other tests compute."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from csst import CSSTClassifier
from csst.cli import main
from csst.estimation import expectation
from csst.learners import catalog
from tests.helpers.short_runs import SHORT_RUN

pytestmark = [*SHORT_RUN, pytest.mark.usefixtures("full_work")]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """90 rows of three classes, every second without a label, as a file; and as rows and labels."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [50, 25, 15])
    x = rng.normal(size=(90, 2)) + 1.5 * y[:, None]
    labels = np.where(np.arange(90) % 2, y, -1)
    path = tmp_path_factory.mktemp("table") / "mine.npz"
    np.savez(path, x=x, y=labels, x_test=x, y_test=y)
    return path, x, y, labels


def test_a_network_from_the_command_line_to_its_page(table, tmp_path, capsys):
    run = tmp_path / "run"
    words = ["--data.path", str(table[0]), "--learner", "network", "--rule", "fit", "--training.steps", "20"]
    assert main(["train", "array", *words, "--out", str(run)]) == 0
    metrics = json.loads((run / "metrics.json").read_text())
    trades = metrics["adjusted"]["trades"]
    assert set(trades["ways"]) == {"lowest recall", "coverage", "precision"}
    assert max(map(len, trades["ways"].values())) > 2, "more than the two ends of a trade-off"
    assert len(trades["classes"]) == 3
    page = (run / "report.html").read_text()
    assert "data-explorer" in page
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 5
    assert all("<path" in drawing or "<use" in drawing for drawing in drawings)
    assert main(["report", str(run), "-o", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text().count("<svg") == len(drawings)
    capsys.readouterr()
    assert main(["frontier", str(run)]) == 0
    assert capsys.readouterr().out.count("\n") > 8
    assert "data-explorer" in (run / "frontier.html").read_text()


def test_a_classifier_as_it_comes(table):
    _, x, y, labels = table
    assert (expectation.DRAWS, catalog.TREES) == (400, 200)
    model = CSSTClassifier("max min(recall)").fit(x, labels)
    assert model.fit_.model.names == ("linear", "forest", "kernel", "propagation")
    assert (model.predict(x) == y).mean() > 0.6
    assert 0 < model.intervals_["min_recall"]["low"] <= model.intervals_["min_recall"]["high"] <= 1
