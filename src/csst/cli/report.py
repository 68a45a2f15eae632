"""csst report RUN... [-o report.html]: one page to look at, from the folders of runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from csst.errors import InputError
from csst.report import report_page


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst report", description="Write one self-contained HTML page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("-o", "--out", default="", help="the page; default report.html in the run, or beside the runs")
    args = parser.parse_args(argv)
    out = Path(args.out) if args.out else default_place(args.runs)
    write_page(report_page(args.runs), out)
    print(f"report of {len(args.runs)} run{'s' if len(args.runs) > 1 else ''}: {out}")
    return 0


def default_place(runs: Sequence[str]) -> Path:
    """RUN/report.html; for several runs report.html in the folder that holds them all, or here if that is the root."""
    if len(runs) == 1:
        return Path(runs[0]) / "report.html"
    parents = [Path(run).resolve().parent for run in runs]
    try:
        common = Path(os.path.commonpath(parents))
    except ValueError:  # on different drives
        return Path("report.html")
    return Path("report.html") if common == Path(common.anchor) else common / "report.html"


def write_page(page: str, out: Path) -> None:
    """Write the page whole or not at all."""
    neighbor = out.with_name(out.name + ".partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        neighbor.write_text(page, encoding="utf-8")
        os.replace(neighbor, out)
    except OSError as error:
        raise InputError(f"the page {out} cannot be written: {error.strerror or error}") from None
