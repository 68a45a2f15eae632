"""Time and memory of fit by the number of rows: python benchmarks/scale.py [--rows 10000 100000 1000000]

Rows of 50 float32 features in 5 classes, 1 % of them labeled. Each size is fitted in a process of its own. The memory
is the highest resident size during fit beyond that just before it, after a tiny fit has loaded all libraries.
Writes benchmarks/results/scale.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES, CLASSES = 50, 5


def rows_of(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes, the last ten times rarer than the first; labels of 1 % of the rows."""
    rng = np.random.default_rng(0)
    share = 10 ** -np.linspace(0, 1, CLASSES)
    y = rng.choice(CLASSES, count, p=share / share.sum())
    X = rng.standard_normal((count, FEATURES), dtype=np.float32)
    X += 0.5 * rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)[y]
    return X, np.where(np.arange(count) % 100 == 0, y, -1), y


def resident() -> float:
    """The resident size now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measured(file: str, steps: int) -> dict[str, float]:
    import warnings

    from csst import CSSTClassifier

    warnings.simplefilter("ignore")
    X, y, _ = rows_of(5000)
    CSSTClassifier(steps=20, guard=False).fit(X, y)
    with np.load(file) as stored:  # made by another process: nothing freed in making it is left here
        X, y, truth = stored["X"], stored["y"], stored["truth"]
    before, start = resident(), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    fitted = CSSTClassifier(steps=steps, guard=False).fit(X, y)
    seconds, extra = time.perf_counter() - start, high_water() - before
    start = time.perf_counter()
    reached = fitted.score(X, truth)
    return {
        "megabytes": X.nbytes / 2**20,
        "seconds": seconds,
        "extra": extra,
        "min_recall": reached,
        "predict": time.perf_counter() - start,
    }


def high_water() -> float:
    """The highest resident size since the last reset, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--one", help="measure with the rows of this file in this process and print JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.steps)))
        return
    lines = ["# Scale", "", f"{FEATURES} float32 features, 1 % labeled, {given.steps} steps, without the guard, one"]
    lines[-1] += f" thread; {platform.machine()}, Python {platform.python_version()}. The extra memory is the peak"
    lines += ["during fit beyond what the process held before it, which includes the data itself.", ""]
    lines += ["| rows | data, MB | fit, s | extra memory, MB | extra / data | predict all, s | min recall |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for count in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/rows.npz"
            np.savez(file, **dict(zip(("X", "y", "truth"), rows_of(count), strict=True)))
            words = [sys.executable, __file__, "--one", file, "--steps", str(given.steps)]
            found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        ratio = found["extra"] / found["megabytes"]
        lines.append(
            f"| {count:,} | {found['megabytes']:.0f} | {found['seconds']:.1f} | {found['extra']:.0f} | {ratio:.1f} | "
            f"{found['predict']:.1f} | {found['min_recall']:.2f} |"
        )
        print(lines[-1], flush=True)
    (Path(__file__).parent / "results" / "scale.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
