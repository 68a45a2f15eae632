"""Min recall on test by validation labels per class: python benchmarks/few_labels.py [--data-dir DIR] [--seeds 5]

Long-tailed digits and, where DIR holds fashion_mnist.npz, Fashion-MNIST pixels. The multipliers follow

    raw        recall on the validation labels as it is counted
    shrunk     the same drawn together by a Beta-Binomial model, with dual steps shortened (the estimator's default)
    cross-fit  out-of-fold predictions; the validation labels join the labeled ones that are learned from

Labeled, unlabeled and test examples of a seed are the same everywhere; smaller validation sets are parts of larger
ones. Results are kept in --out, line by line, and not computed again. Writes benchmarks/results/few_labels.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from csst import CSSTClassifier
from csst.data.splits import long_tail

WAYS = ("raw", "shrunk", "cross-fit")
#: labeled and unlabeled examples of the head class, imbalance, test examples per class, validation labels per class
PLANS: dict[str, tuple[int, int, float, int, tuple[int, ...]]] = {
    "digits": (30, 60, 10, 40, (3, 5, 15, 40)),
    "fashion": (200, 600, 20, 500, (3, 5, 15, 50, 500)),
}


def pool(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    with np.load(folder / "fashion_mnist.npz") as stored:  # type: ignore[operator]
        return stored["x_train"].reshape(60000, -1).astype(np.float32) / 255, stored["y_train"]


def one(X: np.ndarray, y: np.ndarray, plan: Any, size: int, way: str, seed: int, given: argparse.Namespace) -> dict:
    labeled, unlabeled, imbalance, test, sizes = plan
    split = long_tail(y, labeled, unlabeled, imbalance, validation=sizes[-1], test=test, seed=seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(split.validation)
    held = np.concatenate([order[y[order] == c][:size] for c in range(10)])
    settings = {"steps": given.steps, "steps_per_update": given.every, "step_size": given.step_size, "guard": False}
    more = {"unlabeled_batch": 128, "random_state": seed, "hidden": 64, "depth": 1}
    start = time.perf_counter()
    if way == "cross-fit":
        made = CSSTClassifier(validation="cross-fit", **settings, **more)
        known = np.concatenate([split.labeled, held])
    else:
        made = CSSTClassifier(validation=(X[held], y[held]), shrinkage=way == "shrunk", **settings, **more)
        known = split.labeled
    made.fit(X[known], y[known], X_unlabeled=X[split.unlabeled])
    predicted, truth = made.predict(X[split.test]), y[split.test]
    recall = [float((predicted[truth == c] == c).mean()) for c in range(10)]
    return {"min": min(recall), "mean": mean(recall), "seconds": time.perf_counter() - start}


def cell(values: list[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "") + f" (n = {len(values)})"


def table(name: str, found: dict[str, dict], sizes: tuple[int, ...], seeds: range, steps: int) -> list[str]:
    def values(way: str, size: int) -> list[float]:
        keys = [f"{name} {steps} {way} {size} {seed}" for seed in seeds]
        return [found[key]["min"] for key in keys if key in found]

    lines = [f"## {name}", "", f"| validation labels per class | {' | '.join(WAYS)} |", "|---|---|---|---|"]
    for size in sizes:
        cells = [cell(got) if (got := values(way, size)) else "–" for way in WAYS]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    most, few = sizes[-1], [values(way, 5) for way in WAYS]
    if len(values("raw", most)) == len(few[0]) == len(few[1]) == len(seeds):
        top = mean(values("raw", most))
        lost = {way: top - mean(got) for way, got in zip(WAYS, few, strict=True) if len(got) == len(seeds)}
        said = ", ".join(f"{way} {loss:.3f}" for way, loss in lost.items())
        met = "less than" if lost["shrunk"] < lost["raw"] / 2 else "not less than"
        verdict = f"shrunk loses {met} half of what raw loses" if lost["raw"] > 0 else "raw loses nothing to be halved"
        lines += ["", f"Lost at 5 per class against raw at {most}: {said}; {verdict}."]
    else:
        lines += ["", "Not all seeds have been run: no verdict."]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/few_labels.jsonl"))
    parser.add_argument("--only", choices=list(PLANS), help="one of the two")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--step-size", type=float, default=0.5)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--no-run", action="store_true", help="write the tables of what is there")
    parser.add_argument("--no-write", action="store_true", help="print the tables only")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ["digits", *(["fashion"] if given.data_dir and (given.data_dir / "fashion_mnist.npz").is_file() else [])]
    names = [name for name in names if given.only in (None, name)]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    stored = given.out.read_text().splitlines() if given.out.is_file() else []
    found: dict[str, dict] = {line["key"]: line for line in map(json.loads, stored)}
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    plan = [
        (name, size, way, seed) for name in names for seed in seeds for size in PLANS[name][4] for way in given.ways
    ]
    plan = [p for p in plan if not (p[2] == "cross-fit" and p[1] > 40)]  # four trainings on thousands of labels
    todo = [] if given.no_run else [p for p in plan if f"{p[0]} {given.steps} {p[2]} {p[1]} {p[3]}" not in found]
    print(f"{len(todo)} of {len(plan)} trainings to do, about {len(todo) * 10 / 60:.0f} minutes", file=sys.stderr)
    data: dict[str, Any] = {}
    for name, size, way, seed in todo:
        data.setdefault(name, pool(name, given.data_dir))
        key = f"{name} {given.steps} {way} {size} {seed}"
        found[key] = {"key": key, **one(*data[name], PLANS[name], size, way, seed, given)}
        print(key, f"{found[key]['min']:.3f}", f"{found[key]['seconds']:.0f} s", file=sys.stderr, flush=True)
        with given.out.open("a") as file:
            file.write(json.dumps(found[key]) + "\n")
    lines = ["# Few validation labels", "", "Min recall on a balanced test set, `max min(recall)`, csst, mean ± sample"]
    lines[-1] += (
        f" std over n of {len(seeds)} seeds; {given.steps} steps, a multiplier update every {given.every} steps with"
    )
    lines += [f"step size {given.step_size} falling to 0. {platform.machine()}, one thread."]
    lines += ["Digits has about 180 examples per class, of which 40 at most are left for validation.", ""]
    for name in names:
        lines += table(name, found, PLANS[name][4], seeds, given.steps)
    print("\n".join(lines))
    if not given.no_write:
        (Path(__file__).parent / "results" / "few_labels.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
