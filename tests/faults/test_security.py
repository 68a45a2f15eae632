"""Files and names from strangers: none of them runs code, writes elsewhere, or becomes a formula or a script."""

from __future__ import annotations

import ast
import csv
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import csst
from csst.cli import main
from csst.data import Arrays
from csst.data.images.files import ImageFolder
from csst.report.comparison_tables import as_csv, quote_formula
from tests.helpers.comparisons import make_line
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SOURCE = Path(__file__).parent.parent.parent / "src" / "csst"
FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]


class Bomb:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return (os.mkdir, (str(self.place),))


def test_arrays_of_objects_are_refused_before_they_are_made(tmp_path):
    for key in ("x", "y", "class_names", "x_unlabeled"):
        arrays = {"x": np.zeros((4, 2)), "y": np.array([0, 1, 0, 1])}
        np.savez(tmp_path / "evil.npz", **{**arrays, key: np.array([Bomb(tmp_path / "boom")], dtype=object)})
        with pytest.raises(csst.InputError, match=r"evil\.npz cannot be read as an \.npz file of plain arrays"):
            Arrays(str(tmp_path / "evil.npz")).load(0)
    assert not (tmp_path / "boom").exists()


def test_an_archive_is_never_unpacked_to_disk(tmp_path, monkeypatch):
    """Names inside an archive can lead anywhere, so none of them is ever used as a path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "a.npz", "w") as archive:
        for name in ("../x.npy", "/tmp/y.npy", "x.npy"):
            file = io.BytesIO()
            np.save(file, np.zeros((3, 2)))
            archive.writestr(name, file.getvalue())
    with pytest.raises(csst.InputError, match=r"unknown arrays \['\.\./x', '/tmp/y'\]"):
        Arrays(str(tmp_path / "in" / "a.npz")).load(0)
    with tarfile.open(tmp_path / "in" / "b.npz", "w") as archive:
        archive.addfile(tarfile.TarInfo("../b"), io.BytesIO())
    with pytest.raises(csst.InputError, match="cannot be read as an"):
        Arrays(str(tmp_path / "in" / "b.npz")).load(0)
    assert sorted(os.listdir(tmp_path)) == ["in"]
    unpackers = ("extractall", "unpack_archive", ".extract(")
    assert not [p for p in SOURCE.rglob("*.py") if any(word in p.read_text("utf-8") for word in unpackers)]


def test_no_path_leads_out_of_the_image_folder(tmp_path):
    (tmp_path / "secret").mkdir()
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8)).save(tmp_path / "images" / name / f"{number}.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "secret" / "s.png")
    for path in ("../secret/s.png", str(tmp_path / "secret" / "s.png"), "a/../../secret/s.png"):
        (tmp_path / "images" / "table.csv").write_text(f"path,label\na/0.png,a\n{path},b\n")
        with pytest.raises(csst.InputError, match="outside"):
            ImageFolder(table=str(tmp_path / "images" / "table.csv"), size=8).load(0)
    (tmp_path / "images" / "c").symlink_to(tmp_path / "secret")
    with pytest.raises(csst.InputError, match="is a link to"):
        ImageFolder(path=str(tmp_path / "images"), size=8).load(0)
    (tmp_path / "images" / "c").unlink()
    (tmp_path / "images" / "a" / "9.png").symlink_to(tmp_path / "secret" / "s.png")
    with pytest.raises(csst.InputError, match="outside"):
        ImageFolder(path=str(tmp_path / "images"), size=8).load(0)


def test_a_run_goes_where_it_was_told_whatever_the_method_is_called(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "toy", "--method", "../../evil:x"]
    assert main(words) == 2
    assert os.listdir(tmp_path) == []


def test_names_are_no_formulas_in_any_table(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = np.eye(3)[y] * 3 + rng.normal(size=(90, 3))
    np.savez(tmp_path / "data.npz", x=x, y=np.where(np.arange(90) < 60, y, -1), class_names=np.array(FORMULAS[:3]))
    run = str(tmp_path / "run")
    words = ["train", "array", "--data.path", str(tmp_path / "data.npz"), "--learner", "network", "--out", run]
    words += ["--training.steps", "10"]
    assert main([*words, "--training.labeled_batch", "8", "--training.unlabeled_batch", "8"]) == 0
    np.savez(tmp_path / "new.npz", x=x[:20])
    assert main(["predict", run, str(tmp_path / "new.npz"), "-o", str(tmp_path / "out.csv"), "--probabilities"]) == 0
    rows = list(csv.reader((tmp_path / "out.csv").open(newline="", encoding="utf-8")))
    assert rows[0][2] == f"p('{FORMULAS[0]})"
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
    assert {row[0] for row in rows[1:]} <= {f"'{name}" for name in FORMULAS[:3]}
    for formula in FORMULAS:
        line = make_line(formula, [0.5], objective=formula)
        (_, row) = csv.reader(io.StringIO(as_csv([line]), newline=""))
        assert row[:2] == [f"'{formula}", f"'{formula}"]
        assert quote_formula(formula)[0] == "'"
    assert quote_formula("cat") == "cat"


def test_code_from_a_hub_is_never_trusted_and_nothing_is_evaluated():
    """Every trust_remote_code in the source is the literal False, and no call can run text or pickles."""
    trusted = 0
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
                trusted += 1
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "trust_remote_code":
                        assert isinstance(value, ast.Constant), path
                        assert value.value is False, path
                        trusted += 1
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "os.system"), path
                options = {k.arg: ast.unparse(k.value) for k in node.keywords}
                assert options.get("shell", "False") == "False", path
                if called == "torch.load":
                    assert options.get("weights_only") == "True", path
                if called == "np.load":
                    assert options.get("allow_pickle") == "False", path
    assert trusted >= 5
