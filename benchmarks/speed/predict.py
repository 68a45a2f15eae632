"""Time and memory of csst predict on a large CSV file: python -m benchmarks.speed.predict [--rows N] [--folder FOLDER]

A table of 50 columns: 45 of numbers with gaps and 5 of categories, three classes that overlap. Models learn from 2,000
labels and 8,000 unlabeled rows by `csst train array`; `csst predict` labels new rows of a file. CPU seconds and the
highest resident size are those of the command, of which the operating system keeps account. Writes
results/predict.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results_check import write_results

#: modules of csst that are measured
MEASURED = ("cli/predict.py", "cli/examples.py", "cli/prediction_files.py", "data/tabular", "learners", "rules/rule.py")

RESULTS = Path(__file__).parents[1] / "results" / "predict.md"
NUMBERS = 45
CATEGORIES = 5
LABELS = 2000
UNLABELED = 8000
#: rows that are written at a time
CHUNK = 20_000
#: learners on the command line, with the largest number of CPU minutes wanted for a million rows
LEARNERS = {"auto": 6, "linear,kernel": 2, "linear": 2, "kernel": 2, "forest": 6, "propagation": 6}
WORDS = np.array(["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak"])


def write_table(path: Path, rows: int, labels: int, seed: int) -> None:
    """Write rows as CSV, the first `labels` of them with a class and the others with a blank; no class if it is 0."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(0, 0.35, (3, NUMBERS))
    names = [f"n{i}" for i in range(NUMBERS)] + [f"c{i}" for i in range(CATEGORIES)]
    with path.open("w") as file:
        file.write(",".join([*names, *(["label"] if labels else [])]) + "\n")
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            classes = rng.integers(0, 3, count)
            numbers = rng.standard_normal((count, NUMBERS)) + centers[classes]
            numbers[:, 0] = np.where(numbers[:, 1] * numbers[:, 2] > 0, classes, numbers[:, 0])  # no straight line
            words = WORDS[(classes[:, None] + rng.integers(0, 8, (count, CATEGORIES))) % 8]
            is_gap = rng.random((count, NUMBERS)) < 0.02
            for row in range(count):
                cells = ["" if gap else f"{x:.4f}" for x, gap in zip(numbers[row], is_gap[row], strict=True)]
                cells += words[row].tolist()
                if labels:
                    cells.append("abc"[classes[row]] if start + row < labels else "")
                file.write(",".join(cells) + "\n")


def run(words: Sequence[str]) -> tuple[float, float, float]:
    """Run a csst command; return its CPU seconds, seconds and highest resident size in megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "csst", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"csst {' '.join(words)} ended with {status}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1024


def measure(learner: str, folder: Path, new: Path) -> str:
    """Train and predict with a learner; return a line of the table."""
    model = folder / f"run-{learner}"
    if not (model / "metrics.json").exists():
        path = str(folder / "train.csv")
        run(["train", "array", "--data.path", path, "--learner", learner, "--out", str(model)])
    members = [member["name"] for member in json.loads((model / "metrics.json").read_text())["members"]]
    cpu, seconds, megabytes = run(["predict", str(model), str(new), "-o", str(folder / "out.csv")])
    line = f"| `{learner}` | {' + '.join(members)} | {cpu:.0f} | {seconds:.0f} | {megabytes:.0f} |"
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS))
    parser.add_argument("--folder", type=Path, help="keep files and models here; default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f"new-{options.rows}.csv"
        if not new.exists():
            write_table(folder / "train.csv", LABELS + UNLABELED, LABELS, seed=1)
            write_table(new, options.rows, 0, seed=2)
        size = new.stat().st_size / 2**20
        lines = [measure(learner, folder, new) for learner in options.learners]
    if options.rows == 1_000_000 and options.learners == list(LEARNERS):
        write_results(RESULTS, write_page(lines, size), MEASURED)


def write_page(lines: Sequence[str], megabytes: float) -> str:
    """Return the page of the measured lines."""
    about = (
        f"A CSV file of 1,000,000 rows × {NUMBERS + CATEGORIES} columns ({megabytes:.0f} MB; {NUMBERS} of numbers with "
        f"gaps, {CATEGORIES} of categories) by models of {LABELS:,} labels and {UNLABELED:,} unlabeled rows, three "
        f"classes; {platform.machine()}, Python {platform.python_version()}, one thread. The memory is all of the "
        "process. Wanted: at most 6 CPU minutes by the default and 2 by linear + kernel, and 1,536 MB. Written by "
        "`benchmarks/speed/predict.py`."
    )
    head = "| learner | members | CPU s | seconds | peak, MB |"
    return "\n".join(["# Predicting a large file", "", about, "", head, "|---" * 5 + "|", *lines, ""])


if __name__ == "__main__":
    main()
