"""csst predict: what it takes as input, and what it says of anything else."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from PIL import Image

from csst.cli import main


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A run on photographs of night and day, and new ones."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for name, bright in (("day", 180), ("night", 30)):
        for n in range(12):
            place = folder / ("labeled" if n < 10 else "new") / (name if n < 10 else "")
            place.mkdir(parents=True, exist_ok=True)
            pixels = (bright + random.integers(0, 40, (10, 10, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{name}-{n}.png")
    words = ["--data.path", str(folder / "labeled"), "--data.size", "8", "--learner", "linear"]
    assert main(["train", "folder", *words, "--out", str(folder / "run")]) == 0
    return folder


def predictions(path):
    with open(path, newline="") as file:
        return {row["file"]: row["prediction"] for row in csv.DictReader(file)}


def test_images_may_be_one_file_several_or_folders(photos, monkeypatch):
    monkeypatch.chdir(photos)
    assert main(["predict", "run", "new", "-o", "folder.csv"]) == 0
    expected = predictions("folder.csv")
    assert expected == {"day-10.png": "day", "day-11.png": "day", "night-10.png": "night", "night-11.png": "night"}
    assert main(["predict", "run", "new/night-10.png", "-o", "one.csv"]) == 0
    assert predictions("one.csv") == {"new/night-10.png": "night"}
    assert main(["predict", "run", "new/day-10.png", "new/night-11.png", "-o", "two.csv"]) == 0
    assert predictions("two.csv") == {"new/day-10.png": "day", "new/night-11.png": "night"}
    assert main(["predict", "run", "labeled/day/day-1.png", "new", "-o", "more.csv"]) == 0
    assert predictions("more.csv") == {
        "labeled/day/day-1.png": "day",
        **{f"new/{name}": label for name, label in expected.items()},
    }


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (["nowhere.png"], "there is no image 'nowhere.png'"),
        (["broken.png"], "the image broken.png cannot be read (not a PNG, JPEG, WebP, BMP or GIF image)"),
        (["new/day-10.png", "a.npz"], "only images may be several files; found 2: pass image files, a folder of them"),
        (["notes.txt"], "it is of another format, or holds pickled objects, which are never read"),
        (["notes.npy"], "it is of another format, or holds pickled objects, which are never read"),
    ],
)
def test_what_is_no_image_gets_a_sentence(inputs, says, photos, monkeypatch, capsys):
    monkeypatch.chdir(photos)
    for name in ("broken.png", "notes.txt", "notes.npy"):
        (photos / name).write_text("just words")
    assert main(["predict", "run", *inputs, "-o", "out.csv"]) == 2
    sentence = capsys.readouterr().err
    assert says in sentence
    assert "allow_pickle" not in sentence


def test_an_image_for_a_run_on_rows_gets_a_sentence(photos, monkeypatch, capsys):
    monkeypatch.chdir(photos)
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    np.savez("rows.npz", x=random.normal(size=(60, 3)) + 3 * y[:, None], y=y)
    assert main(["train", "array", "--data.path", "rows.npz", "--learner", "linear", "--out", "rows"]) == 0
    assert main(["predict", "rows", "new/day-10.png", "-o", "out.csv"]) == 2
    assert "this run did not learn from images, and new/day-10.png is one: pass an .npz" in capsys.readouterr().err
    assert main(["predict", "rows", "rows.npz", "rows.npz", "-o", "out.csv"]) == 2
    assert "only images may be several files; found 2" in capsys.readouterr().err
