"""A run finds its data from any folder; groups of classes are named on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

from csst.cli import main
from csst.fitting.fitted_model import FittedModel
from csst.fitting.plan import read_group
from csst.recipes import recipe, with_overrides
from csst.recipes.recipe import absolute_paths, with_absolute_paths
from csst.report import report_page
from csst.report.bounds import find_coverage_bounds, read_sentence
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

STEPS = ["--learner", "network", "--training.steps", "6"]
STEPS += ["--training.labeled_batch", "16", "--training.unlabeled_batch", "16"]


@pytest.fixture
def folders(tmp_path):
    """Two folders side by side, with data in the first."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 20])
    x = rng.standard_normal((110, 4)) + 2 * np.eye(4)[y]
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    known = {"x": x, "y": np.where(np.arange(110) % 2, y, -1), "x_test": x, "y_test": y}
    np.save(here / "new.npy", x[:5])
    np.savez(here / "mine.npz", class_names=["cat", "dog", "2"], **known)
    return here, there


def test_a_run_with_a_relative_path_is_used_from_any_folder(folders, monkeypatch, capsys):
    here, there = folders
    train = ["train", "array", *STEPS, "--checkpoint_seconds", "0"]
    monkeypatch.chdir(here)
    assert main([*train, "--data.path", "mine.npz", "--out", "run"]) == 0
    stored = (here / "run" / "metrics.json").read_text()
    monkeypatch.chdir(there)
    assert main(["evaluate", "../here/run"]) == 0
    assert "equal to metrics.json" in capsys.readouterr().out
    assert main(["predict", "../here/run", "../here/new.npy", "-o", "out.csv"]) == 0
    for words in (["--data.path", "../here/mine.npz"], ["--config", "../here/run/recipe.yaml"]):
        (here / "run" / "metrics.json").unlink()  # as if it had been killed before the end
        assert main([*train, *words, "--out", "../here/run", "--resume"]) == 0
        again = json.loads((here / "run" / "metrics.json").read_text())
        assert again["test"]["confusion"] == json.loads(stored)["test"]["confusion"]
    assert main([*train, "--data.path", "../here/other.npz", "--out", "../here/run", "--resume"]) == 2
    assert "data.path" in capsys.readouterr().err


def test_so_is_one_of_learners_without_a_network(folders, monkeypatch):
    here, there = folders
    monkeypatch.chdir(here)
    assert main(["train", "array", "--learner", "linear", "--data.path", "mine.npz", "--out", "run"]) == 0
    monkeypatch.chdir(there)
    assert main(["evaluate", "../here/run"]) == 0


def test_a_relative_path_of_an_older_run_is_the_same_where_it_began(folders, monkeypatch):
    here, _ = folders
    monkeypatch.chdir(here)
    train = ["train", "array", *STEPS, "--data.path", "mine.npz", "--out", "run"]
    assert main(train) == 0
    settings = yaml.safe_load((here / "run" / "recipe.yaml").read_text())
    assert settings["data"]["path"] == str(here / "mine.npz")
    settings["data"]["path"] = "mine.npz"
    (here / "run" / "recipe.yaml").write_text(yaml.safe_dump(settings))
    assert main([*train, "--resume"]) == 0


def test_which_settings_are_paths(tmp_path, monkeypatch):
    """Files always; hf:NAME only where it is a folder, else it is of the hub; columns and names never."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    (tmp_path / "text").mkdir()
    root = str(tmp_path)
    values = {"name": "text", "encoder": "hf:bert", "data": {"path": "a.csv", "text": "text", "unlabeled_path": ""}}
    assert absolute_paths(values) == {
        "name": "text",
        "encoder": f"hf:{root}/bert",
        "data": {"path": f"{root}/a.csv", "text": "text", "unlabeled_path": ""},
    }
    assert absolute_paths({"path": "hf:owner/name"}) == {"path": "hf:owner/name"}
    base = recipe("text")
    views = {"strong": "backtranslation", "cache": "t.sqlite"}
    changed = with_absolute_paths(with_overrides(base, {"data": {"path": "/a.csv", "views": views}}))
    assert (changed.data.path, changed.data.views.cache) == ("/a.csv", f"{root}/t.sqlite")
    assert with_absolute_paths(base) == base


def test_groups_on_the_command_line(folders, monkeypatch, capsys):
    """By index, by name, in YAML; a class may be named 2."""
    here, _ = folders
    monkeypatch.chdir(here)
    goal = "max min(recall[head], recall[tail]) s.t. coverage[tail] >= 0.2"
    train = ["train", "array", *STEPS, "--data.path", "mine.npz", "--objective", goal]
    assert main([*train, "--groups.head", "2", "--groups.tail", "cat,1", "--out", "a"]) == 0
    expected = {"head": (2,), "tail": (0, 1)}
    model = FittedModel.load("a")
    assert dict(model.objective.binding.groups) == expected  # by frequency the head would be cat and dog
    test = model.metrics["test"]
    recall = test["recall"]
    assert test["objective_value"] == pytest.approx(min(recall[2], (recall[0] + recall[1]) / 2))
    (here / "mine.yaml").write_text("groups:\n  head: [2]\n  tail: cat, dog\n")
    linear = ["train", "array", "--data.path", "mine.npz", "--objective", goal, "--learner", "linear"]
    assert main([*linear, "--config", "mine.yaml", "--out", "b"]) == 0
    assert dict(FittedModel.load("b").objective.binding.groups) == expected
    capsys.readouterr()
    assert main([*train, "--groups.head", "2", "--groups.tail", "cat,1", "--out", "a", "--resume"]) == 0
    assert main([*train, "--groups.head", "0", "--groups.tail", "1", "--out", "a", "--resume"]) == 2
    assert "groups.head: 2 → 0" in capsys.readouterr().err
    assert main([*train, "--groups.head", "0", "--groups.tail", "bird", "--out", "c"]) == 2
    assert "there is no class 'bird'" in capsys.readouterr().err
    assert main(["frontier", "a", "--points", "2"]) == 0
    assert "mean of tail" in report_page(["a"])


def test_members_of_a_group():
    names = ("cat", "dog", "7")
    pairs = (("0, 1", [0, 1]), ("cat,7", ["cat", "7"]), ("7", ["7"]), (7, ["7"]), ([2, "dog"], [2, "dog"]))
    for written, members in pairs:
        assert read_group(written, names) == members
    text = "max accuracy s.t. coverage[tail] >= 0.1"
    (bound,) = find_coverage_bounds(read_sentence(text, names, [5, 3, 1], {"tail": "0,1"}))
    assert bound.classes == (0, 1)
    (bound,) = find_coverage_bounds(read_sentence(text, names, [5, 3, 1]))
    assert bound.classes == (2,)
