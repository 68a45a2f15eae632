"""Time and memory of fit by rows, classes and columns: python -m benchmarks.speed.scale [--cases NAME ...]

Rows of float32. The default learner: 10 classes with 3,000 labels in all and more and more unlabeled rows; 1,000
classes with 20 labels each; and 10,000 rows of 400 columns. `learner="propagation"`, whose graph holds up to 60,000
rows: 10 classes with 500 labels. Each case is fitted in a process of its own. The memory is the highest resident size
during fit beyond that just before it, after a tiny fit has loaded all libraries. Every measured line is kept in
results/scale.jsonl and never computed again. Writes results/scale.md.
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
from typing import Any, NamedTuple

import numpy as np

from benchmarks.results_check import write_results

#: modules of csst that are measured
MEASURED = ("learners", "rules", "estimation")

RESULTS = Path(__file__).parents[1] / "results"


class Case(NamedTuple):
    """A learner, how many classes there are, labels of all of them together, rows without a label, and columns."""

    learner: str
    classes: int
    labels: int
    unlabeled: int
    columns: int = 50
    apart: float = 0.5

    @property
    def title(self) -> str:
        rows = f"{self.unlabeled:,} × {self.columns} unlabeled rows"
        return f"{rows}, {self.classes:,} classes, {self.labels:,} labels"


CASES = {
    **{f"rows-{n // 1000}k": Case("auto", 10, 3000, n) for n in (10_000, 100_000, 300_000, 1_000_000)},
    "classes-1000": Case("auto", 1000, 20_000, 20_000, apart=1.5),
    "classes-1000-rows-1000k": Case("auto", 1000, 20_000, 1_000_000, apart=1.5),
    "columns-400": Case("auto", 10, 1000, 9000, columns=400, apart=0.2),
    "columns-400-labeled": Case("auto", 10, 10_000, 0, columns=400, apart=0.2),
    **{f"propagation-{n // 1000}k": Case("propagation", 10, 500, n) for n in (10_000, 50_000, 200_000)},
}


def make_rows(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes, each around a point of its own; only the first rows have a label."""
    rng, count = np.random.default_rng(seed), case.labels + case.unlabeled
    y = np.concatenate([np.arange(case.labels) % case.classes, rng.integers(0, case.classes, case.unlabeled)])
    X = rng.standard_normal((count, case.columns), dtype=np.float32)
    X += case.apart * rng.standard_normal((case.classes, case.columns)).astype(np.float32)[y]
    return X, np.where(np.arange(count) < case.labels, y, -1), y


def read_resident() -> float:
    """The resident size now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def read_high_water() -> float:
    """The highest resident size since the last reset, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(case: Case) -> dict[str, float | str]:
    from threadpoolctl import threadpool_limits

    from csst import CSSTClassifier

    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        CSSTClassifier(learner=case.learner).fit(*make_rows(Case(case.learner, 3, 60, 300), seed=1)[:2])
        X, labels, truth = make_rows(case)
        before, start, begin = read_resident(), time.perf_counter(), time.process_time()
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        fitted = CSSTClassifier(learner=case.learner).fit(X, labels)
        seconds, cpu, peak = time.perf_counter() - start, time.process_time() - begin, read_high_water()
        some = np.arange(len(X))[-20_000:]
        start = time.process_time()
        predicted = fitted.predict(X[some])
        return {
            "members": " + ".join(fitted.fit_.model.names),
            "megabytes": X.nbytes / 2**20,
            "seconds": seconds,
            "cpu": cpu,
            "extra": peak - before,
            "peak": peak,
            "predict": (time.process_time() - start) / len(some) * 1e5,
            "right": float((predicted == truth[some]).mean()),
        }


def write_report(lines: list[dict[str, Any]]) -> str:
    about = (
        f"Rows of float32; {platform.machine()}, Python {platform.python_version()}, one thread. The extra "
        "memory is the peak during fit beyond what the process held before it, which includes the data itself; the "
        "peak is all of the process. Written by `benchmarks/speed/scale.py`."
    )
    caps = (
        "Capped, whatever the rows are: the principal components (5,000 rows), the kernel's landmarks (300), the graph "
        'of the default (10,000 unlabeled rows; 60,000 for `learner="propagation"`), and the unlabeled rows that '
        "the decision rule is fitted on (10,000). All rows are read, checked, and counted for the columns' means and "
        "deviations, and new rows are scored in pieces: linear in rows."
    )
    head = "| | learners | data, MB | fit, CPU s | extra memory, MB | peak, MB | predict 100,000 rows, CPU s | right |"
    table = [head, "|---" * 8 + "|"]
    for name, case in CASES.items():
        for line in lines:
            if line["case"] == name:
                table.append(
                    f"| {case.title} | {line['members']} | {line['megabytes']:.0f} | {line['cpu']:.1f} | "
                    f"{line['extra']:.0f} | {line['peak']:.0f} | {line['predict']:.1f} | {line['right']:.2f} |"
                )
    return "\n".join(["# Scale", "", about, "", *table, "", caps, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--one", choices=list(CASES), help="measure this case in this process and print JSON")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(CASES[options.one])))
        return
    file = RESULTS / "scale.jsonl"
    lines = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    for name in options.cases:
        if any(line["case"] == name for line in lines):
            continue
        run = [sys.executable, "-m", "benchmarks.speed.scale", "--one", name]
        lines.append({"case": name, **json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)})
        print(lines[-1], flush=True)
        with file.open("a") as out:
            out.write(json.dumps(lines[-1]) + "\n")
    write_results(RESULTS / "scale.md", write_report(lines), MEASURED)


if __name__ == "__main__":
    main()
