"""csst report RUN... [-o report.html]: write one page about runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from csst.report import report_page
from csst.report.render import write_page


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst report", description="Write one self-contained HTML page about runs.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="the folder of a run, finished or not")
    parser.add_argument("-o", "--out", default="", help="the page; default report.html in the run, or beside the runs")
    args = parser.parse_args(argv)
    path = Path(args.out) if args.out else choose_place(args.runs)
    write_page(report_page(args.runs), path)
    print(f"report of {len(args.runs)} run{'s' if len(args.runs) > 1 else ''}: {path}")
    return 0


def choose_place(runs: Sequence[str]) -> Path:
    """Return RUN/report.html; for several runs report.html in their common folder, or here if that is the root."""
    if len(runs) == 1:
        return Path(runs[0]) / "report.html"
    parents = [Path(run).resolve().parent for run in runs]
    try:
        folder = Path(os.path.commonpath(parents))
    except ValueError:  # on different drives
        return Path("report.html")
    return Path("report.html") if folder == Path(folder.anchor) else folder / "report.html"
