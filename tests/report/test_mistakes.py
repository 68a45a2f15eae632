"""Mistakes to look at: the right examples, by cell of the confusion, as thumbnails, texts or rows."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from csst.cli import main
from csst.data.tabular.column_kinds import learn_columns
from csst.data.text.texts import Texts
from csst.errors import InputError
from csst.report import report_page
from csst.report.mistakes import MOST_EXAMPLES, MOST_PER_CELL, Example, collect_mistakes, decode_row, make_viewer
from csst.report.run_view import read_run
from tests.report.samples import XSS, write_run


def test_the_largest_cells_come_first_and_the_least_probable_truth_in_each():
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    predictions = np.array([1, 1, 0, 0, 1, 2, 1, 1])
    probs = np.full((8, 3), 0.1)
    probs[np.arange(8), labels] = [0.3, 0.2, 0.9, 0.4, 0.9, 0.9, 0.2, 0.1]
    cells = collect_mistakes(labels, predictions, probs, ["a", "b", "c"], lambda i, p: Example(p, text=str(i)))
    assert [(cell.truth, cell.prediction, cell.count) for cell in cells] == [
        ("a", "b", 2),
        ("c", "b", 2),
        ("b", "a", 1),
    ]
    assert [example.text for example in cells[0].examples] == ["1", "0"]
    assert [example.text for example in cells[1].examples] == ["7", "6"]
    many = collect_mistakes(
        np.arange(900) % 30,
        (np.arange(900) + 1) % 30,
        np.full((900, 30), 0.1),
        [str(k) for k in range(30)],
        lambda i, p: Example(p),
    )
    assert sum(len(cell.examples) for cell in many) == MOST_EXAMPLES
    assert max(len(cell.examples) for cell in many) == MOST_PER_CELL


def test_images_texts_and_rows_are_shown():
    images = torch.zeros(3, 3, 200, 100, dtype=torch.uint8)
    images[1, 0] = 255
    show, head = make_viewer(images, None)
    uri = show(1, 0.5).image
    picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
    assert max(picture.size) == 64
    assert picture.getpixel((5, 5))[0] > 200
    assert head == []
    noise = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert MOST_EXAMPLES * len(make_viewer(noise, None)[0](0, 0.5).image) < 300_000, (
        "what nothing compresses worse than"
    )
    show, _ = make_viewer(Texts(["one", "two " * 200]), None)
    assert show(0, 0.5).text == "one"
    assert len(show(1, 0.5).text) == 280
    table = {"size": np.array([1.5, np.nan]), "kind": np.array(["u", None], dtype=object)}
    columns = learn_columns(table)
    rows = columns.encode(table)
    assert decode_row(rows[0].tolist(), columns) == ["1.5", "u"]
    assert decode_row(rows[1].tolist(), columns) == ["", ""]
    show, head = make_viewer(torch.from_numpy(rows), columns)
    assert head == ["size", "kind"]
    assert show(0, 0.5).cells == ("1.5", "u")


@pytest.mark.usefixtures("pages")
def test_a_run_keeps_its_mistakes_and_its_page_shows_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = (np.eye(3)[y] + 0.8 * random.normal(size=(120, 3))).astype(np.float32)
    lines = ["a,b,c,label", *(",".join([*(f"{v:.6f}" for v in row), "xyz"[k]]) for row, k in zip(x, y, strict=True))]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    words = ["--data.path", "mine.csv", "--learner", "linear", "--out", "run"]
    assert main(["train", "array", *words]) == 0
    run = read_run("run")
    adjusted = json.loads((tmp_path / "run" / "metrics.json").read_text())["adjusted"]["validation"]["confusion"]
    counts = {(cell.truth, cell.prediction): cell.count for cell in run.mistakes}
    # The rows are those of the labels that were judged out of fold, decided by the rule in use.
    assert sum(counts.values()) <= 2 * sum(adjusted[i][j] for i in range(3) for j in range(3) if i != j) + 3
    for cell in run.mistakes:
        for example in cell.examples:
            row = np.array([float(value) for value in example.cells])
            index = int(np.abs(x - row).sum(1).argmin())
            assert "xyz"[y[index]] == cell.truth, "an example with the label of its cell"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Mistakes to look at" in page
    assert f"<title>mine.csv: {run.objective}</title>" in page


@pytest.mark.usefixtures("pages")
def test_a_network_with_a_promised_bound_keeps_its_mistakes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    y = np.arange(240) % 3
    np.savez("mine.npz", x=(np.eye(3)[y] + 0.8 * random.normal(size=(240, 3))).astype(np.float32), y=y)
    words = ["--data.path", "mine.npz", "--data.validation", "0.5", "--learner", "network", "--method", "erm"]
    words += ["--training.steps", "20", "--rule", "fit", "--out", "run"]
    sentence = "max accuracy s.t. recall['1'] >= 0.1 with confidence 0.9"
    assert main(["train", "array", *words, "--objective", sentence]) == 0
    # Half of the validation rows certify; the mistakes are those of the other half.
    assert 0 < sum(cell.count for cell in read_run("run").mistakes) <= 60


@pytest.mark.usefixtures("real_figures")
def test_mistakes_are_escaped_and_a_damaged_file_gets_a_sentence(tmp_path):
    folder = write_run(tmp_path / "run", 3, updates=0, posthoc=True)
    examples = [{"probability": 0.1, "image": "", "text": text, "cells": []} for text in XSS]
    cell = {"truth": XSS[0], "prediction": XSS[1], "count": 6, "head": [], "examples": examples}
    (folder / "mistakes.json").write_text(json.dumps([cell]), encoding="utf-8")
    page = report_page([folder])
    assert "<img src=x" not in page
    assert "<script>alert(2)" not in page
    (folder / "mistakes.json").write_text('[{"truth": 1}]')
    with pytest.raises(InputError, match=r"mistakes\.json cannot be read: delete it"):
        report_page([folder])
