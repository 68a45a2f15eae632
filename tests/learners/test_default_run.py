"""`csst train array` without a network: the estimator's default in a run's folder, and every command on it."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from csst import CSSTClassifier, InputError
from csst.cli import main
from csst.fitting.export import Decision
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import MODEL
from csst.recipes import from_dict, recipe
from csst.rules import DecisionRule
from csst.runs.begin import embed_rows
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.short_runs import SHORT_RUN
from tests.learners.samples import bent, gaussians

pytestmark = SHORT_RUN

NAMES = ["ape", "bee", "cat"]


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
def run(data):
    """A finished run of the default, whose members are all used."""
    assert train(data, "auto") == 0
    metrics = metrics_of(data / "auto")
    assert [one["name"] for one in metrics["members"]] == ["linear", "forest", "kernel", "propagation"]
    assert sum(one["weight"] for one in metrics["members"]) == pytest.approx(1)
    return data / "auto"


@pytest.fixture(scope="module")
def linear_run(data):
    assert train(data, "linear", "--learner", "linear") == 0
    return data / "linear"


@pytest.fixture(scope="module")
def fitted(data):
    """The estimator on the rows of the run."""
    with np.load(data / "mine.npz") as arrays:
        return CSSTClassifier().fit(arrays["x"], arrays["y"])


def metrics_of(folder):
    return Run(folder).metrics()


def predict(folder, data, path="new.npz"):
    """Labels and probabilities of `csst predict`."""
    words = [str(folder), str(data / path), "-o", str(data / "out.csv"), "--probabilities"]
    assert main(["predict", *words]) == 0
    with (data / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    probs = np.array([[float(row[f"p({name})"]) for name in NAMES] for row in rows])
    return [row["prediction"] for row in rows], probs


def copied(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def test_a_run_predicts_what_the_estimator_predicts(run, data, fitted):
    new = np.load(data / "new.npz")["x"]
    labels, probs = predict(run, data)
    assert labels == [NAMES[k] for k in fitted.predict(new)]
    np.testing.assert_allclose(probs, fitted.predict_proba(new), atol=1e-6)
    assert (fitted.predict(new) != fitted.predict_proba(new).argmax(1)).any(), "the rule must matter for this test"
    found = metrics_of(run)
    assert found["adjusted"]["rule"] == fitted.fit_.rule.as_dict()
    assert found["adjusted"]["chosen"] == fitted.fit_.full_details.adjusted.chosen
    assert found["adjusted"]["validation"]["estimate"] == json.loads(json.dumps(fitted.fit_.expected.as_dict()))
    stored = FittedModel.load(run).model
    np.testing.assert_allclose(stored.probs(new), fitted.fit_.model.probs(new), atol=1e-12)


def test_metrics_name_the_members(run, data, fitted):
    found = metrics_of(run)
    members = fitted.fit_.model.members
    losses = {name: [one.loss for one in members if one.name == name] for name in fitted.fit_.model.names}
    means = {name: np.mean(values) for name, values in losses.items()}
    assert {one["name"]: one["balanced_log_loss"] for one in found["members"]} == pytest.approx(means)
    weights = {name: sum(one.weight for one in members if one.name == name) for name in losses}
    assert {one["name"]: one["weight"] for one in found["members"]} == pytest.approx(weights)
    everyone = "linear + forest + kernel + propagation"
    assert (found["method"], found["learner"], found["left_out"]) == (everyone, "auto", {})
    assert found["class_names"] == NAMES
    assert found["labeled_counts"] == fitted.labeled_counts_
    assert found["unlabeled_count"] == 70
    assert sum(map(sum, found["validation"]["confusion"])) == 70, "every label is judged out of fold"
    with np.load(data / "mine.npz") as arrays:
        decided, truth = fitted.predict(arrays["x_test"]), arrays["y_test"]
        plain = fitted.fit_.probs(arrays["x_test"]).argmax(1).numpy()
    for part, guess in ((found["adjusted"]["test"], decided), (found["test"], plain)):
        counts = [[int(((truth == k) & (guess == j)).sum()) for j in range(3)] for k in range(3)]
        assert part["confusion"] == counts
    assert not (run / "model.pt").exists()
    assert (run / "report.html").exists()


def test_learner_linear_is_one_member(linear_run, data):
    found = metrics_of(linear_run)
    assert [one["name"] for one in found["members"]] == ["linear"]
    assert (found["method"], found["learner"], found["left_out"]) == ("linear", "linear", {})
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
    assert "linear + forest + kernel + propagation for 'max min(recall)'" in " ".join(shown.split())
    other = copied(run, tmp_path)
    changed = metrics_of(run)
    changed["adjusted"]["test"]["confusion"][0][0] += 1
    Run(other).write_metrics(changed)
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


def test_export_of_a_run(linear_run, run, data, tmp_path):
    for folder, who in ((linear_run, "linear"), (run, "linear + forest + kernel + propagation")):
        path = tmp_path / "model.safetensors"
        assert main(["export", str(folder), "--to", "safetensors", "-o", str(path)]) == 0
        assert f"{who} + rule, recipe array" in (tmp_path / "model.card.md").read_text()
        with torch.no_grad():
            again = Decision(FittedModel.load(folder).model, DecisionRule.identity(3), 3)
            for value in again.state_dict().values():
                value.zero_()
            again.load_state_dict(load_file(path))
            probs, label = again(torch.from_numpy(np.load(data / "new.npz")["x"]))
        labels, wanted = predict(folder, data)
        np.testing.assert_allclose(probs, wanted, atol=1e-5)
        assert [NAMES[k] for k in label.tolist()] == labels


def test_resuming_a_finished_run_fits_nothing(run, data, monkeypatch, capsys):
    def refit(*given):
        raise AssertionError("the run was fitted again")

    monkeypatch.setattr("csst.runs.execute.begin_recipe", refit)
    before = (run / "metrics.json").read_bytes()
    assert train(data, "auto", "--resume") == 0
    assert (run / "metrics.json").read_bytes() == before
    assert execute(from_dict(Run.open(run).recipe()), run, resume=True) == metrics_of(run)
    assert train(data, "auto") == 2
    assert "already holds a run" in capsys.readouterr().err
    assert train(data, "auto", "--resume", "--seed", "1") == 2
    assert "seed: 0 → 1" in capsys.readouterr().err


def test_resuming_an_unfinished_run_gives_what_it_would_have_given(linear_run, tmp_path):
    folder, wanted = copied(linear_run, tmp_path), metrics_of(linear_run)
    (folder / "metrics.json").unlink()
    again = execute(from_dict(Run.open(folder).recipe()), folder, resume=True)
    assert {**again, "seconds": 0} == {**wanted, "seconds": 0}
    assert (folder / "model.safetensors").read_bytes() == (linear_run / "model.safetensors").read_bytes()


def test_a_validation_set_of_the_file_is_judged_under_the_prior_asked_for(data, tmp_path):
    held, truth = bent(45, seed=3)
    with np.load(data / "mine.npz") as arrays:
        X, y = arrays["x"], arrays["y"]
    np.savez(tmp_path / "held.npz", x=X, y=y, x_validation=held, y_validation=truth)
    base = recipe("array")
    source = replace(base.data, path=str(tmp_path / "held.npz"))
    made = replace(base, data=source, learner="linear", deployment_prior="0.2,0.3,0.5")
    found = execute(made, tmp_path / "run")
    assert sum(map(sum, found["validation"]["confusion"])) == 45
    assert sum(found["labeled_counts"]) == 70
    asked = {"validation": (held, truth), "deployment_prior": [0.2, 0.3, 0.5]}
    fitted = CSSTClassifier(learner="linear", **asked).fit(X, y)
    assert found["adjusted"]["rule"] == fitted.fit_.rule.as_dict()
    assert "test" not in found
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_damaged_learners_of_a_run_are_one_sentence(linear_run, data, tmp_path, capsys):
    folder = copied(linear_run, tmp_path)
    path = folder / "model.safetensors"
    words = ["predict", str(folder), str(data / "new.npz"), "-o", str(tmp_path / "out.csv")]
    path.write_bytes(path.read_bytes()[:-5])
    assert main(words) == 2
    assert "model.safetensors is damaged" in capsys.readouterr().err
    path.unlink()
    assert main(words) == 2
    assert "has no model.safetensors: restore it" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_what_needs_a_network_says_so(linear_run, data, tmp_path, capsys):
    assert main(["theory", str(linear_run)]) == 2
    assert "was trained with linear learners: train with --learner network" in capsys.readouterr().err
    assert train(data, "none", "--learner", "forrest") == 2
    assert "forrest" in capsys.readouterr().err
    assert not (data / "none").exists()


def test_images_are_flattened(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (12, 1, 2, 3)).astype(np.uint8)
    y = np.arange(12) % 3 - 1
    np.savez(tmp_path / "images.npz", x=x, y=y)
    base = recipe("array")
    task = replace(base.data, path=str(tmp_path / "images.npz")).load(0, holds_out=False)
    rows = embed_rows(task, base, "linear")
    labeled = rows.labeled.inputs
    assert labeled.dtype == torch.float32
    flat = x.reshape(12, 6).tolist()  # parts are in the order of their rows' content
    assert [y[flat.index(row)] for row in labeled.tolist()] == rows.labeled.labels.tolist()
    assert sorted(labeled.tolist()) == sorted(row for row, label in zip(flat, y, strict=True) if label >= 0)
    assert sorted(rows.unlabeled.tolist()) == sorted(row for row, label in zip(flat, y, strict=True) if label < 0)
    assert (rows.validation, rows.column_sizes) == (None, (0,) * 6)


def test_a_flipped_byte_of_the_model_is_refused(tmp_path):
    X, y = gaussians(60)
    array_run(tmp_path, x=X, y=y)
    path = tmp_path / "run" / MODEL
    content = bytearray(path.read_bytes())
    content[-20] ^= 64
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="does not match the checksum"):
        FittedModel.load(tmp_path / "run")


def array_run(tmp_path, objective="min-recall", **arrays):
    np.savez(tmp_path / "mine.npz", **arrays)
    base = recipe("array")
    source = replace(base.data, path=str(tmp_path / "mine.npz"))
    return execute(replace(base, data=source, learner="linear", objective=objective), tmp_path / "run")


WRONG = {
    "a class without labels": lambda X, y: {"y": np.where(y == 1, -1, y)},
    "one class": lambda X, y: {"y": np.zeros(60, dtype=int)},
    "validation without labels": lambda X, y: {"x_validation": X, "y_validation": np.where(y == 1, -1, y)},
    "validation of other classes": lambda X, y: {"x_validation": X, "y_validation": y + 1},
    "validation of other columns": lambda X, y: {"x_validation": X[:, :2], "y_validation": y},
    "test of other columns": lambda X, y: {"x_test": X[:, :2], "y_test": y},
    "an empty test set": lambda X, y: {"x_test": X[:0], "y_test": y[:0]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit_get_a_sentence(wrong, tmp_path):
    X, y = gaussians(60)
    with pytest.raises(InputError):
        array_run(tmp_path, **{"x": X, "y": y, **WRONG[wrong](X, y)})


def test_evaluate_knows_the_objective_of_the_run(tmp_path):
    X, y = gaussians(60)
    array_run(tmp_path, "max mean(recall[tail])", x=X, y=y, x_test=X, y_test=y)
    assert main(["evaluate", str(tmp_path / "run")]) == 0


def test_a_run_of_another_version_gets_a_sentence(tmp_path, capsys):
    X, y = gaussians(60)
    array_run(tmp_path, x=X, y=y)
    recipe_file = tmp_path / "run" / "recipe.yaml"
    recipe_file.write_text(recipe_file.read_text().replace("rule: none", "finish: none"))
    np.savez(tmp_path / "new.npz", x=X)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.npz"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "do not fit this version of csst (there is no setting finish" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "train again in another folder" in capsys.readouterr().err
