"""Tables on the command line as they are: the same predictions as the estimator's, and a sentence for bad ones."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest

from csst import CSSTClassifier
from csst.cli import main
from csst.fitting.fitted_model import FittedModel


def write_table(path, rows: int, seed: int, is_labeled: bool = True) -> None:
    """A table with gaps, categories, dates, an ID and a label that is blank in half of the rows."""
    random = np.random.default_rng(seed)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "size", "color", "day", "old", *(["kind"] if is_labeled else [])])
        for row in range(rows):
            kind = "rare" if row % 5 == 0 else "usual"
            size = "" if random.random() < 0.1 else f"{random.normal() + 2 * (kind == 'rare'):.4f}"
            color = random.choice(["red", "green", "", "blue"] if kind == "usual" else ["red", "black"])
            day = f"2024-{random.integers(1, 13):02d}-{random.integers(1, 29):02d}"
            label = [kind if random.random() < 0.5 else ""] if is_labeled else []
            table.writerow([row + 1, size, color, day, bool(random.random() < 0.5), *label])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run on a messy table, and new rows."""
    folder = tmp_path_factory.mktemp("tables")
    write_table(folder / "mine.csv", 200, seed=0)
    write_table(folder / "new.csv", 30, seed=1, is_labeled=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--data.path", "mine.csv", "--data.label", "kind", "--data.drop", "id", "--out", "run"]
        assert main(["train", "array", *words, "--objective", "max min(recall)"]) == 0
    return folder


@pytest.fixture(scope="module")
def fitted(folder):
    """The estimator on the rows of that run."""
    frame = pytest.importorskip("pandas").read_csv(folder / "mine.csv")
    return CSSTClassifier("max min(recall)").fit(frame.drop(columns=["id", "kind"]), frame["kind"])


def read_predictions(path) -> list[str]:
    with open(path, newline="", encoding="utf-8") as file:
        return [row["prediction"] for row in csv.DictReader(file)]


def test_the_command_line_predicts_what_the_estimator_predicts(folder, fitted, monkeypatch):
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "new.csv", "--probabilities", "-o", "out.csv"]) == 0
    new = pd.read_csv("new.csv").drop(columns="id")
    assert read_predictions("out.csv") == fitted.predict(new).tolist()
    assert len(set(read_predictions("out.csv"))) == 2
    probabilities = pd.read_csv("out.csv")[["p(rare)", "p(usual)"]].to_numpy()
    np.testing.assert_allclose(probabilities, fitted.predict_proba(new), atol=5e-7)
    columns = json.loads((folder / "run" / "columns.json").read_text(encoding="utf-8"))
    assert [column["kind"] for column in columns] == ["number", "category", "date", "category"]


def test_other_order_new_category_and_more_columns_just_work(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "one.csv").write_text("more,old,day,color,size\n1,True,2024-05-01,violet,\n")
    assert main(["predict", "run", "one.csv", "-o", "one-out.csv"]) == 0
    assert len(read_predictions("one-out.csv")) == 1
    assert "values of 'color' that training did not have, in 1 of 1 rows, count as none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size,color,old\n1,red,True\n", "new2.csv has no column 'day' of the training data"),
        ("size,color,day,old\nbig,red,2024-01-01,True\n", "'size' of new2.csv held numbers in training, and now row 0"),
        ("size,color,day,old\n1,red,tomorrow,True\n", "'day' of new2.csv held dates (year-month-day) in training"),
        ("", "new2.csv holds no rows"),
        ("size color day old\n1 red 2024-01-01 True\n", "new2.csv has one column only, 'size color day old'"),
    ],
)
def test_new_rows_that_differ_get_a_sentence(folder, monkeypatch, capsys, text, sentence):
    monkeypatch.chdir(folder)
    (folder / "new2.csv").write_text(text)
    assert main(["predict", "run", "new2.csv", "-o", "out2.csv"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_test_table_is_measured(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    lines = (folder / "mine.csv").read_text(encoding="utf-8").splitlines()
    labeled = [line for line in lines[1:] if not line.endswith(",")]
    (folder / "test.csv").write_text("\n".join([lines[0], *labeled]))
    words = ["--data.path", "mine.csv", "--data.label", "kind", "--data.drop", "id", "--learner", "linear"]
    assert main(["train", "array", *words, "--data.test_path", "test.csv", "--out", "tested"]) == 0
    metrics = json.loads((folder / "tested" / "metrics.json").read_text())
    assert sum(map(sum, metrics["test"]["confusion"])) == len(labeled)
    shown = capsys.readouterr().out
    assert "2 categories: False, True" in shown
    assert main(["train", "array", *words, "--data.test_path", "mine.csv", "--out", "bad"]) == 2
    assert "every row that tests the model needs a label" in capsys.readouterr().err


def test_a_network_learns_from_categories_and_gaps_too(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["--data.path", "mine.csv", "--data.label", "kind", "--data.drop", "id", "--learner", "network"]
    short = ["--training.steps", "20", "--dual.steps_per_update", "10"]
    assert main(["train", "array", *words, *short, "--out", "network"]) == 0
    table = FittedModel.load("network").model[0]
    assert table.sizes == [0, 5, 0, 2, 0, 12, 7], "size, color, day, old, size is missing, month, weekday"
    days = table.mean[1].item()
    assert 19_723 < days < 20_088, "the mean day of 2024, in days since 1970"
    assert main(["evaluate", "network"]) == 0, "loaded and measured again, it is the model of the run"
    assert main(["predict", "network", "new.csv", "-o", "network.csv"]) == 0
    assert len(read_predictions("network.csv")) == 30


def test_several_learners_are_named_with_commas(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["--data.path", "mine.csv", "--data.label", "kind", "--data.drop", "id"]
    assert main(["train", "array", *words, "--learner", "linear,lda", "--out", "two"]) == 0
    metrics = json.loads((folder / "two" / "metrics.json").read_text())
    assert {*(member["name"] for member in metrics["members"]), *metrics["left_out"]} == {"linear", "lda"}
    assert main(["train", "array", *words, "--learner", "linear,lad", "--out", "bad"]) == 2
    assert "or several such as linear,kernel; found 'linear,lad'" in capsys.readouterr().err


def test_predictions_go_to_the_terminal_with_the_columns_that_are_kept(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "new.csv", "--keep", "id,color"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["id", "color", "prediction", "probability"]
    assert [row["id"] for row in rows] == [str(n) for n in range(1, 31)]
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)
    assert main(["predict", "run", "new.csv", "--keep", "all", "--probabilities"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0])[:5] == ["id", "size", "color", "day", "old"]
    assert list(rows[0])[5:] == ["prediction", "probability", "p(rare)", "p(usual)"]
    assert all(row["probability"] == row[f"p({row['prediction']})"] for row in rows)
    assert main(["predict", "run", "new.csv", "--keep", "idd"]) == 2
    assert "new.csv has no column 'idd'; did you mean 'id'?" in capsys.readouterr().err
    (folder / "clash.csv").write_text("prediction,size,color,day,old\n1,2,red,2024-05-01,True\n")
    assert main(["predict", "run", "clash.csv", "--keep", "all"]) == 2
    assert "the input has a column 'prediction', too" in capsys.readouterr().err
    assert main(["predict", "run", "new.csv", "-o", "out.txt"]) == 2
    assert "predictions are written as .csv or .parquet; found out.txt" in capsys.readouterr().err


def test_chunks_give_the_same_predictions_and_errors_name_the_row_of_the_file(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "new.csv", "-o", "whole.csv"]) == 0
    monkeypatch.setattr("csst.data.tabular.files.CHUNK_ROWS", 7)
    assert main(["predict", "run", "new.csv", "-o", "parts.csv"]) == 0
    assert (folder / "parts.csv").read_text() == (folder / "whole.csv").read_text()
    lines = (folder / "new.csv").read_text().splitlines()
    (folder / "late.csv").write_text("\n".join([*lines, "31,big,red,2024-05-01,True"]))
    assert main(["predict", "run", "late.csv", "-o", "late-out.csv"]) == 2
    assert "'size' of late.csv held numbers in training, and now row 30 has 'big'" in capsys.readouterr().err
    assert not list(folder.glob("late-out.csv*")), "no file with half of the predictions"


def test_parquet_predictions(folder, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra hf is not installed")
    monkeypatch.chdir(folder)
    assert main(["predict", "run", "new.csv", "--keep", "id", "-o", "out.parquet"]) == 0
    assert main(["predict", "run", "new.csv", "-o", "out.csv"]) == 0
    table = parquet.read_table("out.parquet").to_pydict()
    assert list(table) == ["id", "prediction", "probability"]
    assert table["prediction"] == read_predictions("out.csv")


def test_evaluation_on_labeled_rows_is_the_estimators(folder, fitted, monkeypatch, capsys):
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(folder)
    write_table(folder / "more.csv", 400, seed=2)
    frame = pd.read_csv("more.csv").dropna(subset="kind")
    frame.to_csv("labeled.csv", index=False)
    assert main(["evaluate", "run", "labeled.csv", "-o", "page.html"]) == 0
    shown = capsys.readouterr().out
    evaluation = fitted.evaluate(frame.drop(columns=["id", "kind"]), frame["kind"])
    assert evaluation.sentence in shown.replace("\n", " ")
    assert evaluation.numbers["objective_value"] == pytest.approx(
        fitted.score(frame.drop(columns=["id", "kind"]), frame["kind"])
    )
    assert evaluation.sentence in (folder / "page.html").read_text(encoding="utf-8").replace("&#39;", "'")
    assert main(["evaluate", "run", "labeled.csv", "--objective", "max accuracy"]) == 0
    assert "'max accuracy' is" in capsys.readouterr().out
    assert main(["evaluate", "run", "more.csv"]) == 2
    assert "every row that is measured needs a label" in capsys.readouterr().err
    (folder / "other.csv").write_text("size,color,day,old,kind\n1,red,2024-01-01,True,strange\n")
    assert main(["evaluate", "run", "other.csv"]) == 2
    assert "other.csv has labels that the model does not know: ['strange']" in capsys.readouterr().err
    assert main(["evaluate", "run", "new.csv"]) == 2
    assert "new.csv has no column 'kind'" in capsys.readouterr().err


def test_a_folder_is_predicted_file_by_file(folder, tmp_path, monkeypatch, capsys):
    """Predictions have the place of their file; done files are not predicted again, changed ones are."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(folder / "new.csv")
    (tmp_path / "new" / "day=1").mkdir(parents=True)
    frame[:10].to_parquet("new/day=1/part-0.parquet")
    frame[10:].to_csv("new/rest.csv", index=False)
    (tmp_path / "new" / "_SUCCESS").touch()
    command = ["predict", str(folder / "run"), "new", "-o", "out", "--keep", "id"]
    assert main(command) == 0
    parts = [pd.read_parquet("out/day=1/part-0.parquet"), pd.read_csv("out/rest.csv")]
    assert main(["predict", str(folder / "run"), str(folder / "new.csv"), "-o", "whole.csv"]) == 0
    assert [*parts[0]["prediction"], *parts[1]["prediction"]] == read_predictions("whole.csv")
    assert [*parts[0]["id"].astype(int), *parts[1]["id"]] == frame["id"].tolist()
    before = (tmp_path / "out/rest.csv").stat().st_mtime_ns
    later = (tmp_path / "out/day=1/part-0.parquet").stat().st_mtime + 5
    os.utime("new/day=1/part-0.parquet", (later, later))
    capsys.readouterr()
    assert main(command) == 0
    assert "1 of 2 files have predictions already\n1/1 10 predictions in" in capsys.readouterr().out
    assert (tmp_path / "out/rest.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["new"], "new is a folder, which is predicted file by file: name a folder for predictions by -o"),
        (["new", "-o", "new/out"], "predictions would lie among the files of new"),
        (["new", "-o", "out.csv"], "new is a folder, so are its predictions; found the file name out.csv"),
        (["empty", "-o", "out"], "empty holds no .csv, .tsv, .jsonl or .parquet file"),
        (["new", "-o", "taken"], "taken holds files that are no predictions of csst"),
        (["new", "-o", "other"], "other holds predictions of another model or with other options"),
    ],
)
def test_folders_that_cannot_be_predicted(folder, tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    for name in ("new", "empty", "taken", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "new/a.csv").write_bytes((folder / "new.csv").read_bytes())
    (tmp_path / "taken/mine.txt").touch()
    (tmp_path / "other/predictions.json").write_text("{}")
    assert main(["predict", str(folder / "run"), *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("gap", ["NA", "?", "unlabeled", ""])
def test_a_class_that_looks_like_a_gap_is_told_once(tmp_path, recwarn, gap):
    """R writes NA where a row has no label; a class of that name would be learned."""
    rng = np.random.default_rng(0)
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", "b", "label"])
        for row in range(60):
            table.writerow([*rng.normal(size=2).round(3) + row % 2 * 2, ["ok", "fraud"][row % 2] if row < 30 else gap])
    command = ["train", "array", "--data.path", str(tmp_path / "rows.csv"), "--learner", "linear"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    said = f"30 rows of {tmp_path / 'rows.csv'} have the label {gap!r}, which counts as a class"
    assert sum(said in str(warning.message) for warning in recwarn) == (gap != "")
