"""Image recipes end to end: real files, real networks, small enough for every test run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from csst.cli import main
from csst.fitting.fitted_model import FittedModel
from csst.recipes import RECIPES, recipe
from csst.runs.execute import execute
from csst.runs.folder import Run
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Four classes of color photographs' pieces, told apart by photograph and brightness."""
    photos, rng = load_sample_images().images, np.random.default_rng(0)

    def piece(label):
        photo, (y, x) = photos[label % 2], rng.integers(0, 390, 2)
        return np.clip(photo[y : y + 16, x : x + 16] * (1.0 if label < 2 else 0.4), 0, 255).astype(np.uint8)

    parts = {}
    for name, each in (("train", 60), ("test", 24)):
        labels = np.repeat(np.arange(4), each)
        parts |= {f"x_{name}": np.stack([piece(label) for label in labels]), f"y_{name}": labels}
    path = tmp_path_factory.mktemp("images") / "photos.npz"
    np.savez(path, **parts, classes=["china", "flower", "dark china", "dark flower"])
    return path


def small(name: str, path, **training):
    made = recipe(name)
    data = replace(
        made.data, path=str(path), classes=4, labeled=16, unlabeled=40, imbalance=4, validation=12, padding=2
    )
    settings = {"steps": 12, "labeled_batch": 8, "unlabeled_batch": 16, **training}
    return replace(
        made,
        data=data,
        model=replace(made.model, name="wrn-10-1"),
        training=replace(made.training, **settings),
        dual=replace(made.dual, steps_per_update=4),
        hardware=replace(made.hardware, threads=1),
    )


@pytest.mark.parametrize("method", ["csst", "fixmatch", "erm"])
def test_a_wide_resnet_trains_on_images(archive, tmp_path, method):
    metrics = execute(replace(small("cifar10-lt-small", archive), method=method), tmp_path / "run")
    assert metrics["class_names"][0] == "china"
    assert metrics["labeled_counts"] == [16, 10, 6, 4]
    journal = Run(tmp_path / "run").journal()
    assert journal[-1]["labeled_loss"] < journal[1]["labeled_loss"]


def test_batchnorm_joint_and_separate_differ_and_both_train(archive, tmp_path):
    both = [execute(small("fashion-lt-small", archive, batchnorm=b), tmp_path / b) for b in ("separate", "joint")]
    first = [Run(tmp_path / b).journal()[1]["labeled_loss"] for b in ("separate", "joint")]
    assert first[0] != first[1]
    assert all(metrics["steps"] == 12 for metrics in both)


def test_a_run_with_batchnorm_resumes_to_the_bit(archive, tmp_path):
    class Stop(Exception):
        pass

    def stop(trainer, record):
        if record.step == 8:
            raise Stop

    made = small("cifar10-lt-small", archive)
    execute(made, tmp_path / "whole")
    with pytest.raises(Stop):
        execute(made, tmp_path / "cut", on_record=stop, checkpoint_seconds=0)
    execute(made, tmp_path / "cut", resume=True)
    one, two = (torch.load(tmp_path / d / "checkpoint.pt", weights_only=True)["trainer"] for d in ("whole", "cut"))
    for part in ("model", "ema"):
        assert all(torch.equal(one[part][k], two[part][k]) for k in one[part])


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_accumulation_clipping_and_precision(archive, tmp_path, precision):
    made = small("cifar10-lt-small", archive, steps=4)
    hardware = replace(made.hardware, accumulate=2, clip=1.0, precision=precision)
    metrics = execute(replace(made, hardware=hardware), tmp_path / "run")
    assert metrics["steps"] == 4


def stream(folder, classes: int, **network):
    """ImageNet-100's recipe on a folder of few small photographs, read by two workers, for two steps."""
    photos, rng = load_sample_images().images, np.random.default_rng(0)
    for label in range(classes):
        place = folder / "photos" / f"class {label:03d}"
        place.mkdir(parents=True)
        for number in range(8):
            y, x = rng.integers(0, 380, 2)
            tint = photos[label % 2][y : y + 40, x : x + 40] * (0.3 + 0.7 * label / classes)
            Image.fromarray(tint.astype(np.uint8)).save(place / f"{number}.jpg")
    made = recipe("imagenet100-lt")
    made = replace(
        made,
        data=replace(
            made.data,
            path=str(folder / "photos"),
            labeled=2,
            unlabeled=3,
            imbalance=1,
            size=32,
            workers=2,
            held_out=0.3,
            in_memory_megabytes=0,
        ),
        model=replace(made.model, **network),
        training=replace(made.training, steps=2, labeled_batch=8, unlabeled_batch=16),
        dual=replace(made.dual, steps_per_update=1),
        hardware=replace(made.hardware, threads=1),
    )
    metrics = execute(made, folder / "run")
    assert len(metrics["test"]["recall"]) == classes
    assert len(metrics["multipliers"]) == 2  # head and tail
    weights = FittedModel.load(folder / "run").model.state_dict()
    return sum(w.numel() for w in weights.values())


def test_a_folder_streams_through_workers(tmp_path):
    assert stream(tmp_path, 10, name="wrn-10-1") < 1e6


@pytest.mark.slow
def test_a_folder_of_a_hundred_classes_streams_through_workers_into_a_resnet_50(tmp_path):
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    assert 23e6 < stream(tmp_path, 100) < 24e6  # a ResNet-50 with 100 classes


def test_the_papers_table_is_in_the_recipes():
    """Paper, tab:hyperparams: tau, weight, batches, lr, dual step, steps per update, weight decay, rho, network."""
    table = {
        "cifar10-lt": (0.05, 1.0, 64, 256, 3e-3, 0.25, 32, 0.95, 1e-4, 100, "wrn-28-2"),
        "cifar100-lt": (0.05, 1.0, 64, 256, 3e-3, 0.25, 100, 0.95, 1e-3, 10, "wrn-28-8"),
        "imagenet100-lt": (0.05, 1.0, 64, 256, 0.1, 0.1, 500, 0.95, 1e-4, 10, "hf-config:resnet"),
    }
    for name, expected in table.items():
        r = recipe(name)
        s, t, d = r.selftraining, r.training, r.dual
        found = (s.tau, s.unlabeled_weight, t.labeled_batch, t.unlabeled_batch, t.lr, d.step_size, d.steps_per_update)
        assert (*found, s.confidence, t.weight_decay, r.data.imbalance, r.model.name) == expected
        assert (t.optimizer, d.schedule, d.initial) == ("sgd", "constant", "uniform")
    assert (recipe("cifar10-lt").data.labeled, recipe("cifar10-lt").data.unlabeled) == (1000, 4000)


def test_digits_are_images_with_unlabeled_ones_in_the_tail():
    made = recipe("digits")
    task = made.data.load(0)
    assert (task.kind, task.input_shape, task.labeled.inputs.dtype) == ("image", (1, 8, 8), torch.uint8)
    assert int(task.test.inputs.max()) == 255
    assert task.train_counts.tolist() == [30, 23, 17, 13, 10, 8, 6, 5, 3, 3]
    assert task.unlabeled_truth.bincount().min() >= 25
    assert not task.weak.flip
    assert not task.strong.flip
    # Two of eight pixels: a wider square would hide most of a digit.
    assert round(task.strong.cutout * 8) == 2
    assert made.model.name == "wrn-10-1"


def test_every_recipe_has_a_command_in_its_docstring():
    for name, make in RECIPES.items():
        assert f"csst train {name}" in make.__doc__
        assert make().name == name


def test_predicting_images_and_the_wrong_network(archive, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--training.steps", "4", "--training.labeled_batch", "8", "--training.unlabeled_batch", "8"]
    words += ["--data.path", str(archive), "--data.classes", "4", "--data.labeled", "8", "--data.unlabeled", "16"]
    words += ["--data.imbalance", "2", "--model.name", "wrn-10-1", "--data.validation", "8"]
    assert main(["train", "fashion-lt-small", *words, "--out", "run"]) == 0
    np.savez(tmp_path / "new.npz", x=np.load(archive)["x_test"][:3].transpose(0, 3, 1, 2))
    assert main(["predict", "run", "new.npz", "-o", "out.csv"]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 4
    assert main(["train", "toy", "--model.name", "wrn-28-2", "--out", "other"]) == 2
    assert "takes images" in capsys.readouterr().err
    assert main(["train", "cifar10-lt-small", "--out", "other"]) == 2
    assert "--data.path" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["recipe"] == "fashion-lt-small"
