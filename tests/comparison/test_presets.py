"""Every table and figure of the paper's experiments from one command: rows, tables and pictures of each preset."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import csst.report.comparison as comparison
from csst.cli import main
from csst.comparison.presets import FRACTIONS, PRESETS, TAUS, UPDATES, read_preset
from csst.errors import InputError
from csst.recipes import RECIPES, recipe

TINY = ["--training.steps", "4", "--training.labeled_batch", "4", "--training.unlabeled_batch", "8"]
TINY += ["--dual.steps_per_update", "2", "--seeds", "1", "--jobs", "1", "--rules", "none"]
TINY += ["--selftraining.confidence", "0.1", "--selftraining.tau", "5"]  # so that pseudo-labels are used
SMALL_TOY = ["--data.labeled", "12", "--data.unlabeled", "40", "--data.validation", "10", "--data.test", "10"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Presets share runs, as the same command in the same folder does not repeat them."""
    return tmp_path_factory.mktemp("presets")


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr("csst.estimation.expectation.DRAWS", 4)
    monkeypatch.setattr("csst.estimation.intervals.DRAWS", 4)
    monkeypatch.setattr(comparison, "SECTIONS", 1)


def read_pictures(out: Path) -> list[str]:
    page = (out / "compare.html").read_text()
    return [part.split('"')[0] for part in page.split('role="img" aria-label="')[1:]]


#: of the other presets the slow tests write table and pictures
FAST = ("table-min-recall", "mask-rate")


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]
)
def test_every_preset_writes_its_table_and_its_pictures(name, shared):
    out = shared / ("own" if name == "protocol-1500-3000" else "out")
    assert main(["compare", "toy", "--preset", name, "--out", str(out), *TINY, *SMALL_TOY]) == 0
    rows = read_preset(name, recipe("toy"))
    stored = json.loads((out / "compare.json").read_text())["rows"]
    assert sorted((row["method"], row["objective"]) for row in stored) == sorted((r.label, r.objective) for r in rows)
    read = list(csv.DictReader((out / "compare.csv").read_text().splitlines()))
    assert len(read) == len(rows)
    assert {row["seed"] for row in read} == {"0"}
    text = (out / "compare.md").read_text()
    assert all(f"| {row.label} |" in text for row in rows)
    pictures = read_pictures(out)
    objectives = {row.objective for row in rows}
    for begin, count in (
        ("Value of", len(objectives)),
        ("objective value against", len(objectives)),
        ("Recall of 3 classes in", len(objectives)),
        ("Examples of every class", 1),
        ("mean_recall against", len(objectives) if "ablation" in name else 0),
    ):
        assert sum(picture.startswith(begin) for picture in pictures) == count, begin
    per_objective = len(rows) // len(objectives)
    assert f"Recall of 3 classes in {per_objective} rows" in " ".join(pictures)  # all of them
    if name == "mask-rate":
        shown = [picture for picture in pictures if picture.startswith("Pseudo-labels used, and their accuracy")]
        assert all(method in picture for picture in shown for method in ("fixmatch", "csst-no-kl", "csst-fixmatch"))
        assert len(shown) == 2


def test_a_recipe_whose_data_is_not_cut_by_counts_is_refused():
    for name in ("protocol-1500-3000", "ablation-labeled"):
        with pytest.raises(InputError, match=f"the preset {name} needs data cut by counts; recipe array has no data"):
            PRESETS[name].make(recipe("array"))


def test_the_values_of_an_ablation_are_those_of_the_figures():
    """Fig. 5b and Fig. 5a."""
    rows = PRESETS["ablation-tau"].make(recipe("toy"))
    assert [row.setting.value for row in rows[:6]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]
    assert [row.changes["selftraining"]["tau"] for row in rows[:6]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]
    labeled = PRESETS["ablation-labeled"].make(recipe("digits"))
    assert sorted({row.setting.value for row in labeled}) == [0.25, 0.5, 1.0, 2.0]


def test_presets_mirror_the_paper():
    base = recipe("digits")
    result = {name: read_preset(name, base) for name in PRESETS}
    methods = {name: list(dict.fromkeys(row.method for row in rows)) for name, rows in result.items()}
    assert methods["table-min-recall"] == methods["seeds"] == ["erm", "la", "csl", "fixmatch", "csst-fixmatch"]
    assert methods["table-ssl-min-recall"] == methods["table-ssl-coverage"]
    assert methods["table-ssl-coverage"] == ["crest", "darp", "flexmatch", "fixmatch", "csst-fixmatch"]
    assert {row.objective for row in result["table-coverage"]} == {"mean-recall-coverage"}
    assert {row.objective for row in read_preset("table-min-recall", recipe("cifar100-lt"))} == {"min-ht-recall"}
    coverage = read_preset("table-coverage", recipe("imagenet100-lt"))
    assert {row.objective for row in coverage} == {"mean-recall-ht-coverage"}
    taus = [row.recipe(base, 0, "none").selftraining.tau for row in result["ablation-tau"]]
    assert taus == [*TAUS, *TAUS]
    for rows in result.values():
        assert len({row.folder for row in rows}) == len(rows)
        assert all(set(row.folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789-+.=_") for row in rows)
    for preset in PRESETS.values():
        assert set(preset.recipes) <= set(RECIPES)
    with pytest.raises(InputError, match="did you mean 'seeds'"):
        read_preset("seedz", base)


def test_scratch_has_every_method_and_every_way_in_which_multipliers_move():
    base = recipe("mnist-lt")
    rows = {row.label: row.recipe(base, 0, "fit") for row in read_preset("scratch", base)}
    plain = ["erm", "la", "fixmatch", "uda", "flexmatch", "darp", "crest+"]
    moving = [f"{method} {update}" for method in ("csst-fixmatch", "csst-uda", "csst-balanced") for update in UPDATES]
    others = ["csl gradient", "fixmatch 1/pi", "csst-no-kl gradient", "csst-no-kl solve"]
    assert sorted(rows) == sorted([*plain, *moving, *others])
    for label, made in rows.items():
        if label in [*moving, *others] and label != "fixmatch 1/pi":
            assert f"{made.method} {made.dual.update}" == label
    taus = {made.method: made.selftraining.tau for made in rows.values()}
    assert taus["csst-balanced"] == base.selftraining.tau == 0.1
    assert {taus[f"csst-{name}"] for name in ("fixmatch", "uda", "no-kl")} == {0.05}
    weighted = rows["fixmatch 1/pi"]
    assert (weighted.method, weighted.dual.update, weighted.objective) == ("csst-no-kl", "fixed", "min-recall")
    few = read_preset("scratch-few", base)
    assert {row.label for row in few} < set(rows)
    coverage = read_preset("scratch-coverage", base)
    assert [row.label for row in coverage] == [row.label for row in few]
    assert {row.objective for row in coverage} == {"mean-recall-coverage"}


def test_the_amount_of_labels_changes_and_nothing_else():
    base = recipe("digits")
    rows = read_preset("ablation-labeled", base)
    assert {row.objective for row in rows} == {"min-recall", "mean-recall-coverage"}
    assert min(FRACTIONS) < 1 < max(FRACTIONS)
    tasks = [row.recipe(base, 0, "none").data.load(0) for row in rows]
    assert all(task.unlabeled.equal(tasks[0].unlabeled) for task in tasks)
    assert all(task.test.inputs.equal(tasks[0].test.inputs) for task in tasks)
    assert all(task.validation.inputs.equal(tasks[0].validation.inputs) for task in tasks)
    counts = {row.setting.value: int(task.train_counts[0]) for row, task in zip(rows, tasks, strict=True)}
    assert counts == {0.25: 8, 0.5: 15, 1.0: 30, 2.0: 60}
    with pytest.raises(InputError, match=r"no data\.labeled"):
        read_preset("ablation-labeled", recipe("array"))
    full = replace(base, data=replace(base.data, unlabeled=30))
    with pytest.raises(InputError, match=r"takes up to 2 times the labels from the unlabeled examples; found .* 30"):
        read_preset("ablation-labeled", full)


def test_the_protocol_has_1500_labeled_and_3000_unlabeled_examples_of_the_first_class():
    base = recipe("cifar10-lt")
    data = [row.recipe(base, 0, "none").data for row in read_preset("protocol-1500-3000", base)]
    assert {(one.labeled, one.unlabeled, one.imbalance) for one in data} == {(1500, 3000, 100.0)}


def test_the_page_about_comparisons_lists_every_preset_beside_the_paper():
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "compare.md").read_text()
    for name, preset in PRESETS.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert f"| {preset.paper} |" in line
        assert all(f"`{element}`" in line for element in preset.recipes)


def write_images(path: Path, classes: int, train: int) -> list[str]:
    """Noise in the shape of images: `train` of every class to train on, 4 to hold out."""
    rng = np.random.default_rng(0)
    labels, held = np.repeat(np.arange(classes), train), np.repeat(np.arange(classes), 4)
    x, y = (rng.integers(0, 255, (len(part), 8, 8, 3), dtype=np.uint8) for part in (labels, held))
    np.savez(path, x_train=x, y_train=labels, x_test=y, y_test=held)
    return ["--data.path", str(path), "--model.name", "mlp", "--data.padding", "1"]


def write_tracks(path: Path) -> list[str]:
    """Noise of 43 classes in eight tracks of three images each."""
    words = write_images(path, 43, 24)
    stored = dict(np.load(path))
    np.savez(path, **stored, track=np.tile(np.repeat(np.arange(8), 3), 43))
    return [*words, "--data.labeled", "100", "--data.validation", "3"]


def write_folders(path: Path) -> list[str]:
    from PIL import Image

    rng = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 2)):
        for c in range(100):
            (path / part / f"{c:03}").mkdir(parents=True)
            for n in range(count):
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(
                    path / part / f"{c:03}" / f"{n}.png"
                )
    words = ["--data.path", str(path / "train"), "--data.test_path", str(path / "val"), "--model.name", "mlp"]
    return [*words, "--data.size", "8", "--data.workers", "0"]


def write_texts(path: Path, classes: int, column: str) -> list[str]:
    path.mkdir()
    for part, count in (("train", 40), ("test", 8)):
        rows = [
            {column: f"{part} w{c} v{n} u{n % 7}", "label": f"{c:02}"} for c in range(classes) for n in range(count)
        ]
        (path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["--data.path", str(path / "train.jsonl"), "--data.test_path", str(path / "test.jsonl")]
    words += ["--encoder", "words", "--frozen", "--model.name", "linear", "--data.views.strong", "dropout"]
    return [*words, "--training.optimizer", "sgd", "--training.warmup", "0", "--embedding.cache", str(path / "cache")]


def write_data(name: str, preset: str, path: Path) -> list[str]:
    """Arguments that put generated data of the right kind in the place of the recipe's."""
    if name.startswith("imdb"):
        return [*write_texts(path / name, 2, "text"), "--data.labeled", "10", "--data.unlabeled", "30"]
    if name == "dbpedia14-lt":
        return [*write_texts(path / name, 14, "content"), "--data.labeled", "10", "--data.unlabeled", "30"]
    if name == "imagenet100-lt":
        return [*write_folders(path / name), "--data.labeled", "1", "--data.unlabeled", "3"]
    if preset == "protocol-1500-3000":
        return write_images(path / "many.npz", 10, 4500)
    if name == "traffic-signs":
        return write_tracks(path / "signs.npz")
    classes = 100 if name == "cifar100-lt" else 10
    counts = ["--data.labeled", "10", "--data.unlabeled", "26"]
    if name in ("mnist-lt", "fashion-lt"):
        counts += ["--data.validation", "4", "--model.reduce", "1"]
    return [*write_images(path / f"{name}.npz", classes, 40), *counts]


@pytest.mark.slow  # small: on the toy, above
@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("preset", "name"), [(p, name) for p, preset in PRESETS.items() for name in preset.recipes])
def test_every_preset_runs_on_the_recipes_it_is_for(preset, name, tmp_path):
    words = write_data(name, preset, tmp_path)
    assert main(["compare", name, "--preset", preset, "--out", str(tmp_path / "c"), *TINY, *words]) == 0
    rows = json.loads((tmp_path / "c" / "compare.json").read_text())["rows"]
    assert len(rows) == len(read_preset(preset, recipe(name)))
    assert any(picture.startswith("Value of") for picture in read_pictures(tmp_path / "c"))
