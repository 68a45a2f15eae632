"""Does memory stay flat? python -m benchmarks.quality.soak [--steps 10000] [--fits 1000]

One process trains a network for many steps, with multipliers and checkpoints as usual, and then fits many linear models
with their rules, one after the other. Its resident memory is read at ten points of each. Prints one table and ends with
code 1 if memory grows by more than `MOST` from the second point to the last.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csst import CSSTClassifier
from csst.recipes import recipe
from csst.runs.execute import execute

POINTS = 10
#: MB by which memory may grow from the second point, when all is warm, to the last
MOST = 20.0


def read_memory() -> float:
    """Resident memory of this process in MB, after what is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def train(steps: int) -> Iterator[float]:
    """Yield memory at ten points of one training."""
    toy = recipe("toy")
    short = replace(
        toy,
        data=replace(toy.data, labeled=60, unlabeled=120, validation=40, test=60),
        training=replace(toy.training, steps=steps, labeled_batch=16, unlabeled_batch=32),
        dual=replace(toy.dual, steps_per_update=100, update="solve"),
    )
    memory: list[float] = []

    def watch(trainer: Any, record: Any) -> None:
        if record.step >= (len(memory) + 1) * steps // POINTS:
            memory.append(read_memory())

    with tempfile.TemporaryDirectory() as folder:
        execute(short, Path(folder) / "run", on_record=watch)
    yield from memory


def fit(fits: int) -> Iterator[float]:
    """Yield memory at ten points of many fits."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.where(x[:, 0] + 0.5 * rng.normal(size=80) > 0.8, "rare", "common").astype(object)
    y[rng.random(80) < 0.3] = None
    for number in range(1, fits + 1):
        CSSTClassifier("max min(recall)", learner="linear", random_state=number).fit(x, y)
        if number % (fits // POINTS) == 0:
            yield read_memory()


def describe(what: str, count: int, memory: list[float], seconds: float) -> str:
    """A row of the table: memory at every point, and its slope from the second point on."""
    slope = float(np.polyfit(np.arange(len(memory) - 1), memory[1:], 1)[0])
    points = " ".join(f"{value:.0f}" for value in memory)
    return f"| {count:,} {what} | {points} | {memory[-1] - memory[1]:+.1f} | {slope:+.2f} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--fits", type=int, default=1_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, grows = [], False
    for what, count, measure in (("training steps", given.steps, train), ("fits", given.fits, fit)):
        begun = time.process_time()
        memory = list(measure(count))
        rows.append(describe(what, count, memory, time.process_time() - begun))
        grows |= memory[-1] - memory[1] > MOST
        print(rows[-1], file=sys.stderr, flush=True)
    print(
        "| in one process | MB at ten points | second to last | MB per point | seconds of CPU |\n|---|---|---|---|---|"
    )
    print("\n".join(rows))
    sys.exit(grows)


if __name__ == "__main__":
    main()
