"""csst train --confidence and csst certify, from files to sentences."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from csst.cli import main
from csst.report import report_page

CENTERS = np.array([[0.0, 0.0], [4.0, 0.0]])
SENTENCE = "max mean(recall) s.t. recall >= 0.75"


def write(path: Path, seed: int, labels: int, unlabeled: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    truth = rng.choice(2, size=labels + unlabeled, p=[0.6, 0.4])
    rows = CENTERS[truth] + rng.normal(size=(len(truth), 2))
    words = np.array(["ok", "fraud"], dtype=object)[truth]
    words[labels:] = ""
    lines = [f"{a!r},{b!r},{word}" for (a, b), word in zip(rows.tolist(), words, strict=True)]
    path.write_text("\n".join(["u,v,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certify")
    data = write(folder / "train.csv", 0, labels=120, unlabeled=100)
    arguments = ["train", "array", "--data.path", str(data), "--learner", "linear", "--objective", SENTENCE]
    assert main([*arguments, "--confidence", "0.9", "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_train_promises_and_keeps_it(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    certificate = metrics["adjusted"]["certificate"]
    assert certificate["is_certified"]
    assert certificate["confidence"] == 0.9
    assert metrics["objective"] == f"{SENTENCE} with confidence 0.9"
    assert certificate["sentence"] in unescape(report_page([run]))
    assert main(["predict", str(run), str(run.parent / "train.csv"), "-o", str(run.parent / "out.csv")]) == 0


def test_certify_on_fresh_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = write(run.parent / "fresh.csv", 1, labels=150)
    assert main(["certify", str(run), str(fresh)]) == 0
    assert capsys.readouterr().out.startswith("certified with confidence 0.9 after")
    assert main(["certify", str(run), str(fresh), "recall['fraud'] >= 0.999", "--confidence", "0.8"]) == 0
    assert "with confidence 0.8 after" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("train.csv", [], "every row that certifies needs a label; 100 of the 220 rows"),
        ("old.csv", [], "119 of these 119 rows were part of the fit"),
        ("fresh.csv", ["--confidence", "0.8"], "state one of them"),
        ("fresh.csv", ["recall >= 0.5", "--confidence", "1"], "lies between 0 and 1"),
        ("fresh.csv", ["max min(recall)"], "is for bounds"),
        ("rows.npy", [], "labeled rows are an .npz file with x and y, or a table"),
        ("other.csv", [], "has labels that the model does not know: \\['new'\\]"),
    ],
)
def test_bad_input_is_one_sentence(
    run: Path, name: str, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run.parent
    fresh = write(folder / "fresh.csv", 1, labels=150)
    lines = (folder / "train.csv").read_text(encoding="utf-8").splitlines()
    (folder / "old.csv").write_text("\n".join(lines[:120]), encoding="utf-8")
    (folder / "other.csv").write_text(fresh.read_text(encoding="utf-8").replace("fraud", "new"), encoding="utf-8")
    np.save(folder / "rows.npy", np.zeros((3, 2), dtype=np.float32))
    assert main(["certify", str(run), str(folder / name), *more]) == 2
    error = capsys.readouterr().err
    assert re.search(sentence, error), error


def test_train_refuses_two_confidences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "train.csv", 0, labels=40)
    arguments = ["train", "array", "--data.path", str(data), "--learner", "linear", "--out", str(tmp_path / "run")]
    text = f"{SENTENCE} with confidence 0.9"
    assert main([*arguments, "--objective", text, "--confidence", "0.8"]) == 2
    assert "state one of them" in capsys.readouterr().err
    assert main([*arguments, "--objective", SENTENCE, "--confidence", "0.9", "--certifying", "1.5"]) == 2
    assert "certifying is a share of the labels, between 0 and 1; found 1.5" in capsys.readouterr().err


def test_predict_for_another_sentence_promises_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", str(run), str(run.parent / "train.csv"), "-o", str(run.parent / "out.csv")]
    assert main([*arguments, "--objective", f"{SENTENCE} with confidence 0.9"]) == 2
    assert "no fresh labels to be certified by" in capsys.readouterr().err
