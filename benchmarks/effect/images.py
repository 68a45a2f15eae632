"""The CPU-sized image recipes: python -m benchmarks.effect.images --data-dir DIR [--seeds N] [--methods fixmatch,csst]

DIR holds fashion_mnist.npz and cifar10_pool.npz (x_train, y_train, x_test, y_test; uint8). Finished runs in --out are
not repeated. Also measures BatchNorm with separate and joint batches. Writes benchmarks/results/images.md.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.results_check import write_results
from csst.recipes import Recipe, recipe
from csst.runs.execute import execute

#: modules of csst that are measured
MEASURED = ("data/images", "models/wide_resnet.py", "maths", "selftraining", "training")

FILES = {"fashion-lt-small": "fashion_mnist.npz", "cifar10-lt-small": "cifar10_pool.npz"}


def run(made: Recipe, folder: Path) -> dict[str, Any]:
    print(f"{made.name} {made.method} seed {made.seed} {made.training.batchnorm} …", file=sys.stderr, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return execute(made, folder, resume=True)


def row(label: str, runs: list[dict[str, Any]]) -> str:
    cells = []
    for key in ("mean_recall", "min_recall", "min_coverage"):
        values = [r["test"][key] for r in runs]
        cells.append(f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else ""))
    return f"| {label} | {' | '.join(cells)} | {mean(r['seconds'] for r in runs):.0f} | {len(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/images"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", default="fixmatch,csst")
    given = parser.parse_args()
    lines = ["# Image recipes on a CPU", "", "Objective `max min(recall)`, test set, no decision rule.", ""]
    for name, file in FILES.items():
        base = recipe(name)
        base = replace(base, data=replace(base.data, path=str(given.data_dir / file)))  # type: ignore[type-var]
        variants = {method: replace(base, method=method) for method in given.methods.split(",")}
        if name == "fashion-lt-small":
            joint = replace(base.training, batchnorm="joint")
            variants["csst, batchnorm joint"] = replace(base, method="csst", training=joint)
        first = f"{base.model.name}, {base.training.steps} steps of {base.training.labeled_batch} + 2 × "
        lines += [f"## {name}", "", f"{first}{base.training.unlabeled_batch} images.", ""]
        lines += ["| method | mean recall | min recall | min coverage | seconds | n |", "|---|---|---|---|---|---|"]
        for label, made in variants.items():
            folders = [
                given.out / f"{name}-{label.replace(', ', '-').replace(' ', '-')}-{s}" for s in range(given.seeds)
            ]
            lines.append(row(label, [run(replace(made, seed=s), folder) for s, folder in enumerate(folders)]))
            print(lines[-1], flush=True)
        lines.append("")
    write_results(Path(__file__).parents[1] / "results" / "images.md", "\n".join(lines), MEASURED)


if __name__ == "__main__":
    main()
