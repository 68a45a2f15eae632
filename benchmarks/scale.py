"""Time and memory of fit by rows and by classes: python benchmarks/scale.py [--rows 10000 100000 1000000]

Rows of 50 float32 columns: 5 classes with 1,000 labels in all and more and more unlabeled rows, and 1,000 classes with
20 labels each. The default learner. Each size is fitted in a process of its own. The memory is the highest resident
size during fit beyond that just before it, after a tiny fit has loaded all libraries. Writes results/scale.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

COLUMNS, CLASSES, LABELS = 50, 5, 1000
MANY_CLASSES, LABELS_EACH, UNLABELED = 1000, 20, 20_000


def make_rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes, the last ten times rarer than the first; labels of 1,000 rows."""
    rng = np.random.default_rng(seed)
    fractions = 10 ** -np.linspace(0, 1, CLASSES)
    y = rng.choice(CLASSES, count, p=fractions / fractions.sum())
    X = rng.standard_normal((count, COLUMNS), dtype=np.float32)
    X += 0.5 * rng.standard_normal((CLASSES, COLUMNS)).astype(np.float32)[y]
    return X, np.where(np.arange(count) < LABELS, y, -1), y


def make_classes(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1,000 classes, each around a point of its own, 20 labels of each."""
    rng = np.random.default_rng(seed)
    labeled = np.repeat(np.arange(MANY_CLASSES), LABELS_EACH)
    y = np.concatenate([labeled, rng.integers(0, MANY_CLASSES, UNLABELED)])
    X = rng.standard_normal((len(y), COLUMNS), dtype=np.float32)
    X += 1.5 * rng.standard_normal((MANY_CLASSES, COLUMNS)).astype(np.float32)[y]
    return X, np.where(np.arange(len(y)) < len(labeled), y, -1), y


def read_resident() -> float:
    """The resident size now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def read_high_water() -> float:
    """The highest resident size since the last reset, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(rows: int) -> dict[str, float | str]:
    """A fit of so many rows; 0 for the one of many classes."""
    from csst import CSSTClassifier

    warnings.simplefilter("ignore")
    CSSTClassifier().fit(*make_rows(3000, seed=1)[:2])  # loads all libraries
    X, labels, truth = make_rows(rows) if rows else make_classes()
    before, start, begin = read_resident(), time.perf_counter(), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    fitted = CSSTClassifier().fit(X, labels)
    seconds, cpu, extra = time.perf_counter() - start, time.process_time() - begin, read_high_water() - before
    some = np.flatnonzero(labels == -1)[:20_000]
    start = time.process_time()
    predicted = fitted.predict(X[some])
    return {
        "members": " + ".join(fitted.fit_.model.names),
        "megabytes": X.nbytes / 2**20,
        "seconds": seconds,
        "cpu": cpu,
        "extra": extra,
        "predict": (time.process_time() - start) / len(some) * 1e5,
        "right": float((predicted == truth[some]).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--one", type=int, help="measure so many rows in this process and print JSON; 0: many classes")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one)))
        return
    file = Path(__file__).parent / "results" / "scale.jsonl"
    known = (
        {json.loads(text)["rows"]: json.loads(text) for text in file.read_text().splitlines()} if file.exists() else {}
    )
    for count in [*options.rows, 0]:
        if count not in known:
            run = [sys.executable, __file__, "--one", str(count)]
            known[count] = {"rows": count, **json.loads(subprocess.run(run, check=True, capture_output=True).stdout)}
            print(known[count], flush=True)
            with file.open("a") as out:
                out.write(json.dumps(known[count]) + "\n")
    head = "| | learners | data, MB | fit, CPU s | extra memory, MB | predict 100,000 rows, CPU s | right |"
    about = (
        f"{COLUMNS} float32 columns; {platform.machine()}, Python {platform.python_version()}, one thread. The extra "
        "memory is the peak during fit beyond what the process held before it, which includes the data itself. "
        "Written by `benchmarks/scale.py`."
    )
    lines = ["# Scale", "", about, "", head, "|---|---|---|---|---|---|---|"]
    for count, line in sorted(known.items(), key=lambda pair: (pair[0] == 0, pair[0])):
        name = f"{count:,} rows, {CLASSES} classes, {LABELS:,} labels"
        if not count:
            name = f"{MANY_CLASSES * LABELS_EACH + UNLABELED:,} rows, {MANY_CLASSES:,} classes × {LABELS_EACH} labels"
        lines.append(
            f"| {name} | {line['members']} | {line['megabytes']:.0f} | {line['cpu']:.1f} | {line['extra']:.0f} | "
            f"{line['predict']:.1f} | {line['right']:.2f} |"
        )
    file.with_suffix(".md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
