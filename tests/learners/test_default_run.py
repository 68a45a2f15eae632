"""`csst train array` without a network: the estimator's default in a run's folder, and every command on it."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from csst import CSSTClassifier
from csst.cli import main
from csst.learners.graph import PortfolioScores
from csst.learners.store import unpack
from csst.recipes import from_dict, recipe
from csst.runs.execute import execute
from csst.runs import members
from csst.runs.folder import Run
from tests.learners.samples import bent

NAMES = ["ape", "bee", "cat"]
pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with training data, half of it unlabeled, a test set, and new rows."""
    folder = tmp_path_factory.mktemp("data")
    X, y = bent(140)
    test, truth = bent(60, seed=1)
    known = y.copy()
    known[1::2] = -1
    arrays = {"x": X.astype(np.float64), "y": known, "x_test": test, "y_test": truth, "class_names": NAMES}
    np.savez(folder / "mine.npz", **arrays)
    np.savez(folder / "new.npz", x=bent(80, seed=2)[0])
    return folder


def train(data, out, *words, path="mine.npz"):
    return main(["train", "array", "--data.path", str(data / path), "--out", str(data / out), *words])


@pytest.fixture(scope="module")
def run(data, few_trees):
    """A finished run of the default, whose two members are both used."""
    assert train(data, "auto") == 0
    assert [one["name"] for one in metrics_of(data / "auto")["members"]] == ["linear", "forest"]
    return data / "auto"


@pytest.fixture(scope="module")
def linear_run(data, few_trees):
    assert train(data, "linear", "--learner", "linear") == 0
    return data / "linear"


@pytest.fixture(scope="module")
def fitted(data, few_trees):
    """The estimator on the rows of the run."""
    with np.load(data / "mine.npz") as arrays:
        return CSSTClassifier().fit(arrays["x"], arrays["y"])


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def predict(folder, data, path="new.npz"):
    """Labels and probabilities of `csst predict`."""
    assert main(["predict", str(folder), str(data / path), "-o", str(data / "out.csv")]) == 0
    with (data / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [row["label"] for row in rows], np.array([[float(row[f"p({name})"]) for name in NAMES] for row in rows])


def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def test_a_run_predicts_what_the_estimator_predicts(run, data, fitted):
    new = np.load(data / "new.npz")["x"]
    labels, probs = predict(run, data)
    assert labels == [NAMES[k] for k in fitted.predict(new)]
    np.testing.assert_allclose(probs, fitted.predict_proba(new), atol=1e-6)
    assert (fitted.predict(new) != fitted.predict_proba(new).argmax(1)).any(), "the rule must matter for this test"
    found = metrics_of(run)
    assert found["posthoc"]["rule"] == fitted.fit_.rule.as_dict()
    assert found["posthoc"]["chosen"] == fitted.fit_.fitted.chosen
    assert found["posthoc"]["validation"]["estimate"] == json.loads(json.dumps(fitted.fit_.expected.as_dict()))
    stored = unpack((run / "learners.safetensors").read_bytes(), "it")
    np.testing.assert_allclose(stored.probs(new), fitted.fit_.portfolio.probs(new), atol=1e-12)


def test_metrics_name_the_members(run, data, fitted):
    found = metrics_of(run)
    losses = {one.name: one.loss for one in fitted.fit_.portfolio.members}
    assert {one["name"]: one["balanced_log_loss"] for one in found["members"]} == pytest.approx(losses)
    assert (found["method"], found["learner"], found["left_out"]) == ("linear + forest", "auto", [])
    assert found["class_names"] == NAMES
    assert found["labeled_counts"] == fitted.labeled_counts_
    assert found["unlabeled_count"] == 70
    assert sum(map(sum, found["validation"]["confusion"])) == 70, "every label is judged out of fold"
    with np.load(data / "mine.npz") as arrays:
        decided, truth = fitted.predict(arrays["x_test"]), arrays["y_test"]
        plain = fitted.fit_.probs(arrays["x_test"]).argmax(1)
    for part, guess in ((found["posthoc"]["test"], decided), (found["test"], plain)):
        counts = [[int(((truth == k) & (guess == j)).sum()) for j in range(3)] for k in range(3)]
        assert part["confusion"] == counts
    assert not (run / "model.pt").exists()
    assert (run / "report.html").exists()


def test_learner_linear_is_one_member(linear_run, data):
    found = metrics_of(linear_run)
    assert [one["name"] for one in found["members"]] == ["linear"]
    assert (found["method"], found["learner"], found["left_out"]) == ("linear", "linear", [])
    with np.load(data / "mine.npz") as arrays:
        fitted = CSSTClassifier(learner="linear").fit(arrays["x"], arrays["y"])
    labels, probs = predict(linear_run, data)
    new = np.load(data / "new.npz")["x"]
    assert labels == [NAMES[k] for k in fitted.predict(new)]
    np.testing.assert_allclose(probs, fitted.predict_proba(new), atol=1e-6)


def test_evaluate_measures_the_test_rows_again(run, data, tmp_path, capsys):
    assert main(["evaluate", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "equal to metrics.json" in shown
    assert "linear + forest for 'max min(recall)'" in " ".join(shown.split())
    other = copied(run, tmp_path)
    changed = metrics_of(run)
    changed["posthoc"]["test"]["confusion"][0][0] += 1
    (other / "metrics.json").write_text(json.dumps(changed))
    assert main(["evaluate", str(other)]) == 1
    assert "differs from metrics.json" in capsys.readouterr().out
    with np.load(data / "mine.npz") as arrays:
        moved = {**arrays, "x": arrays["x"] + 1}
    np.savez(tmp_path / "moved.npz", **moved)
    settings = (other / "recipe.yaml").read_text()
    (other / "recipe.yaml").write_text(settings.replace(str(data / "mine.npz"), str(tmp_path / "moved.npz")))
    assert main(["evaluate", str(other)]) == 2
    assert "the data has changed since the run" in capsys.readouterr().err


def test_frontier_of_a_run(run, tmp_path, capsys):
    folder = copied(run, tmp_path)
    assert main(["frontier", str(folder), "--points", "3"]) == 0
    shown = capsys.readouterr().out
    assert "as trained" in shown
    assert (folder / "frontier.html").exists()
    with np.load(folder / "outputs.npz") as kept:
        assert kept["validation_logits"].shape == (70, 3)
        assert kept["unlabeled_logits"].shape == (70, 3)
        assert kept["test_logits"].shape == (60, 3)


def test_export_of_a_run(linear_run, run, data, tmp_path, capsys):
    path = tmp_path / "model.pt2"
    assert main(["export", str(linear_run), "--to", "torch-export", "-o", str(path)]) == 0
    new = np.load(data / "new.npz")["x"]
    probs, label = torch.export.load(path).module()(torch.from_numpy(new))
    labels, wanted = predict(linear_run, data)
    np.testing.assert_allclose(probs.detach(), wanted, atol=1e-5)
    assert [NAMES[k] for k in label.tolist()] == labels
    card = (tmp_path / "model.card.md").read_text()
    assert "linear + post-hoc, recipe array" in card
    capsys.readouterr()
    assert main(["export", str(run), "--to", "safetensors", "-o", str(tmp_path / "f.safetensors")]) == 2
    assert "the member forest cannot be exported: fit with learner='linear'" in capsys.readouterr().err
    assert not (tmp_path / "f.safetensors").exists()


def test_resuming_a_finished_run_fits_nothing(run, data, monkeypatch, capsys):
    def refit(*given):
        raise AssertionError("the run was fitted again")

    monkeypatch.setattr(members, "fit_members", refit)
    before = (run / "metrics.json").read_bytes()
    assert train(data, "auto", "--resume") == 0
    assert (run / "metrics.json").read_bytes() == before
    assert execute(from_dict(Run.open(run).recipe()), run, resume=True) == json.loads(before)
    assert train(data, "auto") == 2
    assert "already holds a run" in capsys.readouterr().err
    assert train(data, "auto", "--resume", "--seed", "1") == 2
    assert "seed: 0 → 1" in capsys.readouterr().err


def test_resuming_an_unfinished_run_gives_what_it_would_have_given(linear_run, tmp_path):
    folder, wanted = copied(linear_run, tmp_path), metrics_of(linear_run)
    (folder / "metrics.json").unlink()
    again = execute(from_dict(Run.open(folder).recipe()), folder, resume=True)
    assert {**again, "seconds": 0} == {**wanted, "seconds": 0}
    assert (folder / "learners.safetensors").read_bytes() == (linear_run / "learners.safetensors").read_bytes()


def test_another_deployment_prior_can_be_asked_for_later(linear_run, data, tmp_path):
    folder = copied(linear_run, tmp_path)
    known = from_dict(Run.open(folder).recipe())
    found = execute(replace(known, deployment_prior="0.2,0.3,0.5"), folder, resume=True)
    assert found["members"] == metrics_of(linear_run)["members"]
    assert found["posthoc"]["rule"] != metrics_of(linear_run)["posthoc"]["rule"]
    with np.load(data / "mine.npz") as arrays:
        fitted = CSSTClassifier(learner="linear", deployment_prior=[0.2, 0.3, 0.5]).fit(arrays["x"], arrays["y"])
    assert found["posthoc"]["rule"] == fitted.fit_.rule.as_dict()
    assert Run.open(folder).recipe()["deployment_prior"] == "0.2,0.3,0.5"


def test_a_validation_set_of_the_file_is_judged(data, tmp_path):
    held, truth = bent(45, seed=3)
    with np.load(data / "mine.npz") as arrays:
        X, y = arrays["x"], arrays["y"]
    np.savez(tmp_path / "held.npz", x=X, y=y, x_validation=held, y_validation=truth)
    base = recipe("array")
    made = replace(base, data=replace(base.data, path=str(tmp_path / "held.npz")), learner="linear")
    found = execute(made, tmp_path / "run")
    assert sum(map(sum, found["validation"]["confusion"])) == 45
    assert sum(found["labeled_counts"]) == 70
    fitted = CSSTClassifier(learner="linear", validation=(held, truth)).fit(X, y)
    assert found["posthoc"]["rule"] == fitted.fit_.rule.as_dict()
    assert "test" not in found
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_damaged_learners_of_a_run_are_one_sentence(linear_run, data, tmp_path, capsys):
    folder = copied(linear_run, tmp_path)
    path = folder / "learners.safetensors"
    words = ["predict", str(folder), str(data / "new.npz"), "-o", str(tmp_path / "out.csv")]
    path.write_bytes(path.read_bytes()[:-5])
    assert main(words) == 2
    assert "learners.safetensors cannot be read as stored learners" in capsys.readouterr().err
    path.unlink()
    assert main(words) == 2
    assert "has no learners.safetensors: fit it again" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_what_needs_a_network_says_so(linear_run, data, tmp_path, capsys):
    assert main(["theory", str(linear_run)]) == 2
    assert "has no network but linear learners: train with --learner network" in capsys.readouterr().err
    assert train(data, "none", "--learner", "forrest") == 2
    assert "forrest" in capsys.readouterr().err
    assert not (data / "none").exists()


def test_images_are_flattened(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    x = rng.normal(size=(60, 1, 2, 3)).astype(np.float32)
    x[y == 1, 0, 1, 2] += 3
    np.savez(tmp_path / "images.npz", x=x, y=y)
    base = recipe("array")
    made = replace(base, data=replace(base.data, path=str(tmp_path / "images.npz")), learner="linear")
    found = execute(made, tmp_path / "run")
    assert found["input_shape"] == [1, 2, 3]
    assert found["unlabeled_count"] == 0
    assert "prior" not in found
    portfolio = unpack((tmp_path / "run" / "learners.safetensors").read_bytes(), "it")
    scores = PortfolioScores(portfolio)(torch.from_numpy(x.reshape(60, -1)))
    assert (scores.argmax(1).numpy() == y).mean() > 0.9
    fitted = CSSTClassifier(learner="linear").fit(x.reshape(60, -1), y)
    assert found["posthoc"]["rule"] == fitted.fit_.rule.as_dict()
