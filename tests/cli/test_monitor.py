"""csst monitor, from files to sentences, and the run that --adapt writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from csst import InputError
from csst.cli import main
from csst.fitting.fitted_model import FittedModel
from csst.report import report_page

CENTERS = np.array([[0.0, 0.0], [3.0, 0.0]])


def write(path: Path, seed: int, labels: int, unlabeled: int = 0, fraud: float = 0.4, offset: float = 0.0) -> Path:
    rng = np.random.default_rng(seed)
    truth = rng.choice(2, size=labels + unlabeled, p=[1 - fraud, fraud])
    rows = CENTERS[truth] + rng.normal(size=(len(truth), 2)) + [0.0, offset]
    words = np.array(["ok", "fraud"], dtype=object)[truth]
    words[labels:] = ""
    lines = [f"{a!r},{b!r},{word}" for (a, b), word in zip(rows.tolist(), words, strict=True)]
    path.write_text("\n".join(["u,v,label", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitor")
    data = write(folder / "train.csv", 0, labels=120, unlabeled=200)
    arguments = ["train", "array", "--data.path", str(data), "--learner", "linear", "--objective", "max mean(f1)"]
    assert main([*arguments, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_monitor_and_adapt(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_rows = write(run.parent / "new.csv", 1, labels=0, unlabeled=400, fraud=0.05)
    file, target = run.parent / "seen.json", run.parent / "adapted"
    assert main(["monitor", str(run), str(new_rows), "--json", str(file), "--adapt", str(target)]) == 0
    text = capsys.readouterr().out
    assert "class balance of 400 new rows" in text
    assert "adapted: max mean(f1)" in text
    seen = json.loads(file.read_text(encoding="utf-8"))
    place = seen["class_names"].index("fraud")
    assert seen["balance"]["low"][place] <= 0.05 <= seen["balance"]["high"][place]
    former, adapted = FittedModel.load(run), FittedModel.load(target)
    assert adapted.metrics["deployment_prior"][place] == pytest.approx(seen["balance"]["prior"][place])
    rows = np.column_stack([np.linspace(0, 3, 300), np.zeros(300)]).astype(np.float32)
    fraud = [int((model.predict(rows) == place).sum()) for model in (former, adapted)]
    assert fraud[1] < fraud[0]
    assert main(["monitor", str(target), str(new_rows)]) == 0
    assert main(["predict", str(target), str(new_rows), "-o", str(run.parent / "out.csv")]) == 0
    assert main(["monitor", str(run), str(new_rows), "--adapt", str(target)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_shift_is_said_and_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_rows = write(run.parent / "moved.csv", 2, labels=0, unlabeled=400, offset=1.5)
    assert main(["monitor", str(run), str(new_rows)]) == 0
    words = r"no balance of the labeled classes explains the rows \(p = 0\.00\d+\); new values are in v"
    assert re.search(words, capsys.readouterr().out)
    assert main(["monitor", str(run), str(new_rows), "--adapt", str(run.parent / "never")]) == 2
    assert "the rule is not adapted" in capsys.readouterr().err
    assert not (run.parent / "never").exists()
    # The page of the run has it, the latest first, with hostile names as text.
    hostile = run.parent / "<b>moved.csv"
    hostile.write_bytes(new_rows.read_bytes())
    assert main(["monitor", str(run), str(hostile)]) == 0
    page = report_page([run])
    assert "New rows since" in page
    assert page.index("&lt;b&gt;moved.csv") < page.rindex("moved.csv")
    assert "no balance of the labeled classes explains the rows" in page


def test_a_damaged_record_of_new_rows_is_one_sentence(run: Path) -> None:
    path = run / "monitor.jsonl"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text("[1]\n", encoding="utf-8")
    with pytest.raises(InputError, match="the page has nothing about new rows"):
        report_page([run])
    path.unlink()
    if before is not None:
        path.write_text(before, encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("u,v\n1,2\n", "needs at least 20 of them; found 1 row"), ("u,w\n1,2\n", "has no column 'v'")],
)
def test_bad_rows_are_one_sentence(run: Path, content: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.parent / "bad.csv"
    path.write_text(content, encoding="utf-8")
    assert main(["monitor", str(run), str(path)]) == 2
    assert sentence in capsys.readouterr().err
