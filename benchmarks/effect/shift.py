"""Unlabeled rows of another class balance.

    python -m benchmarks.effect.shift --data-dir DIR [--seeds 0,1,2,3,4] [--sets a,b]

FixMatch and CSST where the unlabeled rows have the labels' long tail (equal), none (uniform) or the opposite one
(reversed), with `selftraining.unlabeled_prior` "labeled" (nothing is corrected) and "estimated". CSST with the estimate
is the method csst-balanced. Each as trained and with the decision rule, on the same rows, from the same weights.

Every run is a line of benchmarks/results/shift.jsonl and is never computed again; runs go seed by seed. Writes
benchmarks/results/shift.md (--report: only that). What was chosen was chosen on seeds 10 to 14.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.effect.few_label_sets import Plan, Split, load
from benchmarks.effect.versus import describe_machine, format_mean, format_table
from benchmarks.results_check import write_results
from csst.data.task import Task, make_task
from csst.fitting.fit import fit
from csst.learners.network import Network
from csst.models import Model, build
from csst.models.table import table_network
from csst.settings import Dual, Hardware, Selection, SelfTrainingSettings, Settings, Training

#: modules of csst that are measured
MEASURED = ("maths", "selftraining", "training", "rules", "estimation")

OBJECTIVE = "max min(recall)"
PLANS = {
    "digits": Plan(30, 60, 10, 25, 60),
    "fashion": Plan(300, 2400, 100, 25, 500),
    "cifar10_features": Plan(500, 1500, 100, 25, 500),
}
NAMES = {"digits": "digits", "fashion": "Fashion-MNIST, PCA", "cifar10_features": "CIFAR-10 features"}
BALANCES = ("equal", "uniform", "reversed")
#: a method without the correction, and with it
PAIRS = {"fixmatch": "fixmatch, estimated", "csst": "csst-balanced"}
METHODS = tuple(name for pair in PAIRS.items() for name in pair)
RESULTS = Path(__file__).parents[1] / "results"

Line = dict[str, Any]


@dataclass(frozen=True)
class ShiftAndErase:
    """For tiny single-channel pictures (B, H, W): a shift of up to `pixels`, noise, and a square of zeros."""

    pixels: int
    noise: float = 0.0
    erase: int = 0

    def __call__(self, batch: Tensor, generator: torch.Generator) -> Tensor:
        count, height, width = batch.shape
        across = torch.arange(width)
        down = torch.arange(height)
        low = -self.pixels
        high = self.pixels + 1
        rows = down + torch.randint(low, high, (count, 1), generator=generator)
        columns = across + torch.randint(low, high, (count, 1), generator=generator)
        is_inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
        places = rows.clamp(0, height - 1)[:, :, None] * width + columns.clamp(0, width - 1)[:, None, :]
        pictures = batch.reshape(count, -1).gather(1, places.reshape(count, -1).to(batch.device)).reshape(batch.shape)
        pictures = pictures * is_inside.to(batch)
        if self.noise:
            pictures = pictures + self.noise * torch.randn(batch.shape, generator=generator).to(batch.device)
        if self.erase:
            top = torch.randint(0, height - self.erase + 1, (count, 1), generator=generator)
            start = torch.randint(0, width - self.erase + 1, (count, 1), generator=generator)
            in_rows = ((down >= top) & (down < top + self.erase))[:, :, None]
            in_columns = ((across >= start) & (across < start + self.erase))[:, None, :]
            pictures = pictures.masked_fill((in_rows & in_columns).to(batch.device), 0)
        return pictures


def load_task(name: str, balance: str, seed: int, data_dir: Path | None) -> Task:
    """The task of a seed: digits with views of images, the others with views of embeddings."""
    split = load(name, seed, data_dir, plan=PLANS[name], unlabeled_balance=balance)
    truth = torch.from_numpy(split.y_unlabeled)
    return load_digits(split, truth) if name == "digits" else load_rows(split, truth)


def load_digits(split: Split, truth: Tensor) -> Task:
    def picture(rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows.reshape(-1, 8, 8) / 16).float()

    return make_task(
        "digits",
        (picture(split.x_labeled), torch.from_numpy(split.y_labeled)),
        picture(split.x_unlabeled),
        (picture(split.x_validation), torch.from_numpy(split.y_validation)),
        (picture(split.x_test), torch.from_numpy(split.y_test)),
        views=(ShiftAndErase(pixels=0, noise=0.05), ShiftAndErase(pixels=1, noise=0.1, erase=2)),
        unlabeled_truth=truth,
    )


def load_rows(split: Split, truth: Tensor) -> Task:
    task = make_task(
        "arrays",
        (split.x_labeled, split.y_labeled),
        split.x_unlabeled,
        (split.x_validation, split.y_validation),
        (split.x_test, split.y_test),
        class_names=tuple(map(str, range(split.classes))),
        unlabeled_truth=truth,
    )
    return task.with_views("embedding")


def make_network(task: Task, method: str, seed: int) -> Network:
    """The network of a run: 128 and 128 hidden units."""
    is_digits = task.name == "digits"
    name, _, prior = method.partition(", ")
    training = Training(
        steps=400 if is_digits else 300,
        labeled_batch=32 if is_digits else 64,
        unlabeled_batch=128,
        lr=0.03,
        ema=0.98,
    )
    settings = Settings(
        training=training,
        selftraining=SelfTrainingSettings(unlabeled_prior="estimated" if prior else "labeled"),
        dual=Dual(steps_per_update=20, step_size=0.25, schedule="linear"),
        selection=Selection("last"),
        hardware=Hardware(threads=1),
    )

    def make() -> nn.Module:
        if is_digits:
            return build(Model(), task.input_shape, task.classes, seed)
        assert task.moments is not None
        return table_network([0] * task.input_shape[0], task.moments, 128, 2, task.classes, seed)

    return Network(make, name, settings)


def summarize(counts: Tensor) -> Line:
    recall = counts.diagonal().double() / counts.sum(1)
    return {"min": round(float(recall.min()), 4), "mean": round(float(recall.mean()), 4)}


def distance(left: Any, right: Any) -> float:
    """Total variation between two class balances."""
    return round(float(np.abs(np.asarray(left) - np.asarray(right)).sum() / 2), 4)


def measure(cell: Line, data_dir: Path | None) -> Line:
    """One run: recalls on test as trained and with the rule, pseudo-labels at the end, and the balance believed."""
    task = load_task(cell["set"], cell["balance"], cell["seed"], data_dir)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit(task, make_network(task, cell["method"], cell["seed"]), OBJECTIVE, seed=cell["seed"])
    details, seconds = fitted.full_details, time.process_time() - begin
    assert details.adjusted_outputs is not None
    assert task.unlabeled_truth is not None
    last = details.history[-1]
    truth = np.bincount(task.unlabeled_truth.numpy(), minlength=task.classes) / len(task.unlabeled)
    labeled = task.train_prior.tolist()
    return cell | {
        "raw": summarize(details.adjusted_outputs.counts("test")),
        "rule": summarize(details.adjusted_outputs.counts("test", details.adjusted)),
        "used": last["used"],
        "pseudo_accuracy": last["pseudo_accuracy"],
        "gap": distance(labeled, truth),
        "believed_gap": distance(last["unlabeled_prior"] or labeled, truth),
        "seconds": round(seconds, 2),
    }


def read_lines(file: Path) -> list[Line]:
    return [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []


def identify(line: Line) -> tuple[Any, ...]:
    return tuple(line[k] for k in ("set", "balance", "seed", "method"))


def report(lines: Iterable[Line], seeds: list[int]) -> str:
    """The page: a table per set, and whether the correction pays."""
    by_key = {identify(line): line for line in lines}

    def values(name: str, balance: str, method: str, of: Any) -> list[float]:
        rows = (by_key.get((name, balance, seed, method)) for seed in seeds)
        return [of(row) for row in rows if row is not None and of(row) is not None]

    def gains(name: str, balance: str, plain: str, how: str) -> list[float]:
        pairs = [[by_key.get((name, balance, seed, m)) for m in (plain, PAIRS[plain])] for seed in seeds]
        return [b[how]["min"] - a[how]["min"] for a, b in pairs if a is not None and b is not None]

    parts = [
        "# Unlabeled rows of another class balance",
        f"FixMatch and CSST for `{OBJECTIVE}` where unlabeled rows have the labels' long tail (equal), none (uniform) "
        'or the opposite one (reversed). "fixmatch, estimated" is FixMatch with `selftraining.unlabeled_prior = '
        '"estimated"`; `csst-balanced` is CSST with it. Lowest (mean) class recall on balanced test rows, mean over '
        f"seeds {', '.join(map(str, seeds))} ± its standard error, of the last averaged model; 25 validation labels "
        "per class. Used and right: fraction of unlabeled rows whose pseudo-label was used in the last 20 steps, and "
        "of those that were right. Gap: total variation between the true balance of the unlabeled rows and the one "
        f"believed at the end (without correction: the labels'). {describe_machine()}. "
        "Written by `benchmarks/effect/shift.py`.",
        "## With correction less without, min recall, paired by seed",
    ]
    rows = []
    for name in PLANS:
        for balance in BALANCES:
            cells = [format_mean(gains(name, balance, plain, how), "+") for plain in PAIRS for how in ("raw", "rule")]
            rows.append([NAMES[name], balance, *cells])
    for balance in BALANCES:
        pooled = [
            [gain for name in PLANS for gain in gains(name, balance, plain, how)]
            for plain in PAIRS
            for how in ("raw", "rule")
        ]
        rows.append(["**all**", balance, *(format_mean(cell, "+") for cell in pooled)])
    head = ["set", "unlabeled", "FixMatch", "FixMatch + rule", "CSST", "CSST + rule"]
    parts.append(format_table(head, rows))
    for name in PLANS:
        rows = []
        for balance in BALANCES:
            for method in METHODS:
                cells = []
                for how in ("raw", "rule"):
                    lowest = values(name, balance, method, lambda line, how=how: line[how]["min"])
                    average = values(name, balance, method, lambda line, how=how: line[how]["mean"])
                    cells.append(f"{format_mean(lowest)} ({np.mean(average or [np.nan]):.3f})")
                used, right, gap, seconds = (
                    np.mean(values(name, balance, method, lambda line, key=key: line[key]) or [np.nan])
                    for key in ("used", "pseudo_accuracy", "believed_gap", "seconds")
                )
                count = len(values(name, balance, method, lambda line: line["seconds"]))
                numbers = [f"{used:.0%}", f"{right:.0%}", f"{gap:.2f}", f"{seconds:.1f}", str(count)]
                rows.append([balance, method, *cells, *numbers])
        head = ["unlabeled", "method", "min (mean)", "with the rule", "used", "right", "gap", "CPU s", "n"]
        parts += [f"## {NAMES[name]}", format_table(head, rows)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--sets", default=",".join(PLANS))
    parser.add_argument("--balances", default=",".join(BALANCES))
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by semicolons")
    parser.add_argument("--out", type=Path, default=RESULTS / "shift.jsonl")
    parser.add_argument("--report", action="store_true", help="only write the page")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds, done = [int(seed) for seed in args.seeds.split(",")], {identify(line) for line in read_lines(args.out)}
    cells = [
        {"set": name, "balance": balance, "seed": seed, "method": method}
        for seed in seeds
        for name in args.sets.split(",")
        for balance in args.balances.split(",")
        for method in args.methods.split(";")
    ]
    for cell in cells:
        if args.report or identify(cell) in done:
            continue
        line = measure(cell, args.data_dir)
        with args.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(*identify(line), line["raw"], line["rule"], f"{line['seconds']} s", flush=True)
    page = args.out.with_suffix(".md")
    known = page.read_text() if page.is_file() else ""
    notes = "\n## What it says" + known.split("\n## What it says", 1)[1] if "\n## What it says" in known else ""
    write_results(page, report(read_lines(args.out), seeds) + notes, MEASURED)


if __name__ == "__main__":
    main()
