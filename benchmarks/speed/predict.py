"""Time and memory of large files on the command line: python -m benchmarks.speed.predict [--folder FOLDER]

Models learn from 2,000 labels and 8,000 unlabeled rows of 45 columns of numbers with gaps and 5 of categories, in three
classes that overlap; `csst predict` labels a million rows of another file, and a file of a gigabyte, from which
`csst train` learns, too; and a table of 10,000 columns. CPU seconds and the highest resident size are of the whole
command. Every measured line is kept in results/predict.jsonl and never measured again. Writes results/predict.md.
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
MEASURED = ("cli/predict.py", "cli/examples.py", "cli/prediction_files.py", "data/tabular", "learners/forest.py")

RESULTS = Path(__file__).parents[1] / "results"
NUMBERS = 45
WORDS = np.array(["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak"])
#: columns of categories
CATEGORIES = 5
LABELS = 2000
#: rows that are made at a time
CHUNK = 20_000
GIGABYTE = 2**30

#: what is measured: the words of a command, in whose files FOLDER is the folder of the benchmark
STEPS = {
    "predict 1,000,000 × 50, default": "predict FOLDER/auto FOLDER/million.csv -o FOLDER/out.csv",
    "predict 1,000,000 × 50, linear + kernel": "predict FOLDER/linear,kernel FOLDER/million.csv -o FOLDER/out.csv",
    "train on 300 × 10,000, default": "train array --data.path FOLDER/wide.csv --out FOLDER/wide",
    "predict 300 × 10,000": "predict FOLDER/wide FOLDER/wide.csv -o FOLDER/out.csv",
    "predict 1 GB, linear": "predict FOLDER/linear FOLDER/gigabyte.csv -o FOLDER/out.csv",
    "train on 1 GB, linear": "train array --data.path FOLDER/gigabyte.csv --learner linear --out FOLDER/gigabyte",
}


def make_lines(rows: int, labels: int, seed: int) -> list[str]:
    """Return rows as lines of CSV; with labels, the last cell is the class of the first rows and blank after them."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(0, 0.35, (3, NUMBERS))
    classes = rng.integers(0, 3, rows)
    numbers = rng.standard_normal((rows, NUMBERS)) + centers[classes]
    numbers[:, 0] = np.where(numbers[:, 1] * numbers[:, 2] > 0, classes, numbers[:, 0])  # no straight line tells it
    words = WORDS[(classes[:, None] + rng.integers(0, 8, (rows, CATEGORIES))) % 8]
    is_gap = rng.random((rows, NUMBERS)) < 0.02
    lines = []
    for row in range(rows):
        cells = ["" if gap else f"{x:.4f}" for x, gap in zip(numbers[row], is_gap[row], strict=True)]
        label = ["abc"[classes[row]] if row < labels else ""] if labels else []
        lines.append(",".join([*cells, *words[row], *label]))
    return lines


def write_files(folder: Path) -> None:
    """Write train.csv, million.csv, gigabyte.csv and wide.csv."""
    head = ",".join([*(f"n{i}" for i in range(NUMBERS)), *(f"c{i}" for i in range(CATEGORIES))])
    train = [f"{head},label", *make_lines(5 * LABELS, LABELS, seed=1)]
    (folder / "train.csv").write_text("\n".join(train) + "\n")
    with (folder / "million.csv").open("w") as million:
        million.write(head + "\n")
        for seed in range(1_000_000 // CHUNK):
            million.writelines(line + "\n" for line in make_lines(CHUNK, 0, seed=2 + seed))
    with (folder / "gigabyte.csv").open("w") as file:
        file.writelines(line + "\n" for line in train[: LABELS + 1])
        while file.tell() < GIGABYTE:
            with (folder / "million.csv").open() as million:
                next(million)
                file.writelines(line.replace("\n", ",\n") for line in million)  # without a label
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 10_000))
    rows[::2, :20] += 1.2
    with (folder / "wide.csv").open("w") as file:
        file.write(",".join([*(f"g{i}" for i in range(10_000)), "label"]) + "\n")
        for index, row in enumerate(rows):
            file.write(",".join([*(f"{x:.3f}" for x in row), "ab"[index % 2]]) + "\n")


def run(words: Sequence[str]) -> dict[str, float]:
    """Run a csst command; return its CPU seconds, seconds and highest resident size in megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "csst", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"csst {' '.join(words)} ended with {status}")
    seconds = time.perf_counter() - start
    return {"cpu": usage.ru_utime + usage.ru_stime, "seconds": seconds, "megabytes": usage.ru_maxrss / 1024}


def write_page(lines: Sequence[dict[str, float | str]]) -> str:
    """Return the page of the measured lines."""
    about = (
        f"{NUMBERS} columns of numbers with gaps and {CATEGORIES} of categories, three classes, models of {LABELS:,} "
        f"labels and {4 * LABELS:,} unlabeled rows (the default is linear + forest + kernel); {platform.machine()}, "
        f"Python {platform.python_version()}, one thread of a machine that others used, too: CPU seconds count, and "
        "are more than on a quiet one. The memory is all of the process. Wanted of the million rows: at most 360 CPU "
        "seconds by the default, 120 by linear + kernel, and 1,536 MB. Written by `benchmarks/speed/predict.py`."
    )
    table = ["| | CPU s | seconds | peak, MB |", "|---|---|---|---|"]
    table += [
        f"| {line['step']} | {line['cpu']:.0f} | {line['seconds']:.0f} | {line['megabytes']:.0f} |" for line in lines
    ]
    return "\n".join(["# Large files on the command line", "", about, "", *table, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="files and models are kept here; default a temporary folder")
    options = parser.parse_args()
    file = RESULTS / "predict.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "wide.csv").exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_files(folder)
        for learner in ("auto", "linear,kernel", "linear"):
            if not (folder / learner / "metrics.json").exists():
                train = ["--data.path", str(folder / "train.csv"), "--learner", learner, "--out", str(folder / learner)]
                run(["train", "array", *train])
        for step, command in STEPS.items():
            if all(line["step"] != step for line in lines):
                lines.append({"step": step, **run([word.replace("FOLDER", str(folder)) for word in command.split()])})
                print(lines[-1], flush=True)
                with file.open("a") as out:
                    out.write(json.dumps(lines[-1]) + "\n")
    write_results(RESULTS / "predict.md", write_page(lines), MEASURED)


if __name__ == "__main__":
    main()
