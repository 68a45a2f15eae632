"""How large it may get: python -m benchmarks.speed.reliability [--only NAME]

Each load in a process of its own: time and peak memory, to benchmarks/results/reliability.md. A few minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import csst
from benchmarks.results_check import write_results
from csst.maths.confusion import Confusion
from csst.maths.gain import gain_matrix
from csst.maths.objectives import payoff_of
from csst.recipes import recipe
from csst.runs.execute import execute

#: modules of csst that are measured
MEASURED = ("data/tabular", "maths", "report", "training")

RESULTS = Path(__file__).parents[1] / "results" / "reliability.md"
GOAL = "max mean(recall) s.t. coverage >= 0.95/K"


def trained(x: np.ndarray, y: np.ndarray, folder: Path, steps: int, **held: np.ndarray) -> str:
    np.savez(folder / "data.npz", x=x, y=y, **held)
    made = recipe("array")
    made = replace(
        made,
        objective=GOAL,
        data=replace(made.data, path=str(folder / "data.npz")),
        training=replace(made.training, steps=steps),
        dual=replace(made.dual, steps_per_update=max(1, steps // 5)),
    )
    metrics = execute(made, folder / "run")
    return f"{metrics['unlabeled_count']:,} unlabeled, {len(metrics['class_names']):,} classes, {steps} steps"


def million_unlabeled(folder: Path) -> str:
    rng = np.random.default_rng(0)
    y = np.r_[np.arange(1000) % 10, np.full(1_000_000, -1)]
    x = rng.normal(size=(len(y), 32)).astype(np.float32)
    x[:1000, :10] += 2 * np.eye(10, dtype=np.float32)[y[:1000]]
    return trained(x, y, folder, 100)


def thousand_classes(folder: Path) -> str:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(1000, 64)).astype(np.float32)
    y = np.r_[np.arange(5000) % 1000, np.full(20_000, -1)]
    x = centers[np.r_[y[:5000], rng.integers(0, 1000, 20_000)]] + 0.3 * rng.normal(size=(25_000, 64)).astype(np.float32)
    held = np.arange(5000) % 1000
    return trained(x, y, folder, 50, x_validation=centers[held], y_validation=held)


def million_lines(folder: Path) -> str:
    from csst.report import report_page

    run = recipe("toy")
    execute(replace(run, training=replace(run.training, steps=40)), folder / "run")
    path = folder / "run" / "journal.jsonl"
    lines = path.read_text().splitlines()
    one = json.loads(lines[-1])
    with path.open("w") as journal:
        for number in range(1_000_000):
            one["step"] = number
            journal.write(json.dumps(one) + "\n")
    begun = time.perf_counter()
    page = report_page([folder / "run"])
    took, size = time.perf_counter() - begun, path.stat().st_size / 2**20
    return f"{size:.0f} MB of journal; the page alone {took:.1f} s, {len(page) / 1024:.0f} kB"


def ten_thousand_classes(folder: Path) -> str:
    return of_classes(10_000, gain=False)


def gain_of_a_thousand(folder: Path) -> str:
    return of_classes(1_000, gain=True)


def of_classes(classes: int, gain: bool) -> str:
    begun = time.perf_counter()
    prior = torch.full((classes,), 1 / classes, dtype=torch.float64)
    bound = csst.objective(GOAL).bind(classes, [f"class {n}" for n in range(classes)]).bind_prior(prior)
    read = time.perf_counter() - begun
    confusion = Confusion.uniform(prior)
    begun = time.perf_counter()
    payoff = payoff_of(bound, confusion)
    said = f"parse and bind {read:.2f} s, payoff {time.perf_counter() - begun:.2f} s"
    if gain:
        begun = time.perf_counter()
        gain_matrix(bound, bound.domain.start(len(payoff), classes), confusion, prior)
        said += f", gain {time.perf_counter() - begun:.2f} s"
    return said


LOADS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "unlabeled": ("1,000,000 unlabeled examples of 32 features, array recipe", million_unlabeled),
    "classes": ("training with 1,000 classes", thousand_classes),
    "journal": ("a report of 1,000,000 journal lines", million_lines),
    "payoff": ("parse, bind and payoff with 10,000 classes", ten_thousand_classes),
    "gain": ("parse, bind, payoff and gain with 1,000 classes", gain_of_a_thousand),
}


def alone(name: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        said = LOADS[name][1](Path(folder))
        took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"| {LOADS[name][0]} | {took:.1f} s | {peak / 2**20:.2f} GB | {before / 2**20:.2f} GB | {said} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=LOADS)
    given = parser.parse_args()
    if given.only:
        return alone(given.only)
    rows = []
    for name in LOADS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.reliability", "--only", name], capture_output=True, text=True
        )
        rows.append(
            done.stdout.strip() or f"| {LOADS[name][0]} | failed: {done.stderr.strip().splitlines()[-1]} | | | |"
        )
        print(rows[-1], flush=True)
    about = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores (shared), one thread, "
    about += f"torch {torch.__version__}, Python {platform.python_version()}"
    head = "| load | time | peak memory | of which before it began | |\n|---|---|---|---|---|"
    text = f"# Loads\n\nMeasured by `benchmarks/speed/reliability.py` on {about}.\n\n{head}\n" + "\n".join(rows) + "\n"
    write_results(RESULTS, text, MEASURED)


if __name__ == "__main__":
    main()
