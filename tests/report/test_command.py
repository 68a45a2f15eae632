"""csst report on the command line."""

from __future__ import annotations

import pytest

from csst import InputError
from csst.cli.report import choose_place, main
from tests.report.samples import write_run


def test_one_run_and_several(tmp_path, capsys):
    runs = [str(write_run(tmp_path / "runs" / name, 3, updates=0, method=name)) for name in ("a", "b")]
    assert main(runs[:1]) == 0
    assert (tmp_path / "runs/a/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "report of 1 run: " in capsys.readouterr().out
    assert main(runs) == 0
    assert "2 runs on made-up" in (tmp_path / "runs/report.html").read_text(encoding="utf-8")
    assert main([runs[0], "-o", str(tmp_path / "new/page.html")]) == 0
    assert (tmp_path / "new/page.html").is_file()
    assert not list(tmp_path.rglob("*.partial"))


def test_where_the_page_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert choose_place(["runs/a"]).as_posix() == "runs/a/report.html"
    assert choose_place(["runs/x/a", "runs/y/b"]) == tmp_path / "runs/report.html"
    assert choose_place(["runs/a", "runs/a/inner"]) == tmp_path / "runs/report.html"
    assert choose_place(["/one/a", "/two/b"]).as_posix() == "report.html"


def test_mistakes(tmp_path):
    run = write_run(tmp_path / "runs" / "a", 2, updates=2)
    with pytest.raises(InputError, match=r"is not a run: it has no recipe\.yaml"):
        main([str(tmp_path / "nothing")])
    with pytest.raises(InputError, match=r"is not a run but holds some: name one of them, such as .*a$"):
        main([str(tmp_path / "runs")])
    with pytest.raises(InputError, match="appears twice"):
        main([str(run), str(tmp_path / "runs" / "." / "a")])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        main([str(run), "-o", str(tmp_path / "file" / "page.html")])
