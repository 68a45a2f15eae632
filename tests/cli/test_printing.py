"""What csst prints is what was written: Rich takes [head] for markup and :cat: for a picture, and must not."""

from __future__ import annotations

import ast
import csv
import io
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.table import Table

import csst
from csst.cli import main
from csst.cli.terminal import make_metrics_table, show
from csst.data.embeddings import Embedder
from csst.report.run_view import read_run
from csst.settings import Embedding
from csst.training.progress import Progress, plain_console

SOURCE = Path(csst.__file__).parent
ODD = "max min(recall[head], recall[tail]) s.t. coverage[':cat:'] >= 0.1 [/] [bold]"


def calls(name):
    """(file, call) for every call of a function with this name in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name:
                yield path.relative_to(SOURCE).as_posix(), node


def switched_off(node):
    return {word.arg for word in node.keywords if isinstance(word.value, ast.Constant) and word.value.value is False}


def test_every_console_prints_words_as_they_stand():
    consoles = list(calls("Console"))
    assert {"training/progress.py", "data/embeddings.py"} <= {path for path, _ in consoles}
    for path, node in consoles:
        only_asked = not node.args and not node.keywords  # Console().is_terminal prints nothing
        assert only_asked or {"markup", "emoji", "highlight"} <= switched_off(node), f"{path}:{node.lineno}"


def test_every_column_with_words_of_a_run_prints_them_as_they_stand():
    """A column has a switch of its own, whatever its console's."""
    filled = [(path, node) for path, node in calls("TextColumn") if "{" in ast.unparse(node.args[0])]
    assert {"training/progress.py", "data/embeddings.py"} <= {path for path, _ in filled}
    for path, node in filled:
        assert "markup" in switched_off(node), f"{path}:{node.lineno}"


def test_nothing_prints_by_rich_but_these():
    """print and warnings know no markup; rich.print would."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "from rich import" not in text, path
        assert "import rich\n" not in text, path


def test_titles_and_cells_of_tables(capsys):
    part = {"constraint_slack": [], "mean_recall": 1, "min_recall": 1, "min_coverage": 1, "objective_value": 1}
    show(make_metrics_table({"method": "[b] :cat:", "objective": ODD, "test": part}))
    other = Table("a [red] head", title="[i]")
    other.add_row("cell [/] :cat:")
    show(other)
    printed = " ".join(capsys.readouterr().out.replace("│", " ").replace("┃", " ").split())
    for words in (ODD, "[b] :cat:", "a [red] head", "[i]", "cell [/] :cat:"):
        assert words in printed


def test_errors_and_warnings(capsys, monkeypatch):
    assert main(["objective", "max mean(recall[head]) s.t. [tail]"]) == 2
    assert "recall[head]) s.t. [tail]" in capsys.readouterr().err

    def warn(argv):
        warnings.warn(f"about {ODD}", stacklevel=2)
        raise csst.InputError(ODD)

    monkeypatch.setattr("csst.cli.recipes.main", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: sys.stderr.write(
            warnings.formatwarning(message, category, filename, lineno)
        )
        assert main(["recipes"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"csst: about {ODD}", f"csst: {ODD}"]


def test_only_the_first_process_warns(capsys, monkeypatch):
    def warn(argv):
        sys.stderr.write(warnings.formatwarning("once is enough", UserWarning, "", 0))

    monkeypatch.setattr("csst.cli.recipes.main", warn)
    for name, value, times in (("RANK", "0", 1), ("RANK", "1", 0), ("LOCAL_RANK", "1", 0), ("NODE_RANK", "2", 0)):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            main(["recipes"])
        assert capsys.readouterr().err.count("once is enough") == times, name


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Puts a terminal, wide enough for a line, in the place of stderr; pytest does so too, before each test begins."""

    def put():
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setenv("COLUMNS", "250")
        monkeypatch.setenv("TERM", "xterm")
        return made

    return put


def test_the_live_line_and_what_is_printed_below_it(terminal):
    record = SimpleNamespace(step=1, recall=[0.1], value=0.2, slack=[], used=None, multipliers=[1.0])
    record.examples_per_second = None
    names, labels = SimpleNamespace(class_names=[":cat:"]), SimpleNamespace(labels=["recall[head]"])
    trainer = SimpleNamespace(task=names, multipliers=labels, is_complete=False)
    screen = terminal()
    with Progress(10) as progress:
        progress.show(trainer, record)
        print(f"a note on {ODD}", file=sys.stderr, end="", flush=True)  # as Rich passes on what has no end of line
        progress.live.refresh()
    for words in ("(:cat:)", "λ recall[head] 1.00", f"a note on {ODD}"):
        assert words in screen.getvalue()


def test_the_bar_of_embedding(terminal):
    class Sum:
        fingerprint, width = "", 1

        def __call__(self, batch):
            return batch.float().flatten(1).sum(1, keepdim=True)

    screen = terminal()
    Embedder(Sum(), Embedding())(torch.zeros(4, 3, 2, 2, dtype=torch.uint8), "[head] :cat:")
    assert "embedding [head] :cat:" in screen.getvalue()


def test_the_plain_console_takes_options():
    assert plain_console(stderr=True).stderr


def test_what_is_minimized_is_printed_as_it_is(tmp_path, capsys):
    """Inside, a higher value is better; a cost of .3 is no value of -.3 for the reader."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 150)
    rows = rng.normal(labels[:, None] * 1.2, 1.0, (300, 3)).round(4)
    np.savez(tmp_path / "rows.npz", x=rows, y=np.where(np.arange(300) % 2, labels, -1))
    np.savez(tmp_path / "new.npz", x=rows + 0.001, y=labels)
    (tmp_path / "costs.csv").write_text("EUR,0,1\n0,0,1\n1,3,0\n")
    run = str(tmp_path / "run")
    data = ["--data.path", str(tmp_path / "rows.npz"), "--learner", "linear", "--out", run]
    assert main(["train", "array", *data, "--objective", "min cost", "--costs", str(tmp_path / "costs.csv")]) == 0
    trained = capsys.readouterr().out
    assert main(["evaluate", run, str(tmp_path / "new.npz")]) == 0
    evaluated = capsys.readouterr().out
    assert main(["monitor", run, str(tmp_path / "new.npz")]) == 0
    monitored = capsys.readouterr().out
    compared = ["--objective", "min cost", "--costs", str(tmp_path / "costs.csv"), "--out", str(tmp_path / "compared")]
    chosen_rows = ["--data.path", str(tmp_path / "rows.npz"), "--methods", "linear", "--seeds", "2", "--jobs", "1"]
    assert main(["compare", "array", *chosen_rows, *compared]) == 0
    table = list(csv.DictReader((tmp_path / "compared" / "compare.csv").open()))
    assert all(float(line["objective_value"]) > 0 for line in table)
    for printed in (trained, evaluated, monitored, capsys.readouterr().out):
        assert "0." in printed
        assert "-0." not in printed
    view = read_run(run)
    expected = view.rule.expected_value
    interval = view.rule.results["validation"].value_interval
    assert 0 < interval.low < expected < interval.high
    assert view.rule.results["validation"].objective_value == pytest.approx(expected, abs=0.1)
