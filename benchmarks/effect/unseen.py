"""csst on sets on which nothing was chosen: python -m benchmarks.effect.unseen --data-dir DIR [--seeds 3]

Twelve long-tailed sets that neither `versus.py` nor any choice of a default has seen (`few_label_sets.UNSEEN`), two
budgets of labels, some of the methods of `versus.py`. Every measured line is kept in benchmarks/results/unseen.jsonl.
Writes results/unseen.md.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.effect.few_label_sets import UNSEEN, Split, load
from benchmarks.effect.versus import KEYS, OURS, RESULTS, compute_error, format_mean, format_table, measure_cell
from benchmarks.lines import Line, Log
from benchmarks.results_check import write_results

#: modules of csst that are measured
MEASURED = ("learners", "rules", "estimation")

#: labels of the most frequent class: the plan's, and so many
LARGE = dict.fromkeys(UNSEEN, 80) | {"iris": 12}
OTHERS = (
    "logistic regression, balanced",
    "balanced random forest",
    "LightGBM, balanced",
    "self-training, balanced",
)


@lru_cache(maxsize=1)
def load_unseen(name: str, budget: str, seed: int, data_dir: Path | None) -> Split:
    return load(name, seed, data_dir, None if budget == "small" else LARGE[name], UNSEEN[name])


def write_report(lines: list[Line]) -> str:
    values = {tuple(line[key] for key in KEYS): line["min"] for line in lines if "error" not in line}
    estimates = [line for line in lines if line["method"] == OURS and "error" not in line]
    cells = sorted({key[:3] for key in values if all((*key[:3], m) in values for m in (OURS, *OTHERS))})
    names = [name for name in UNSEEN if any(cell[0] == name for cell in cells)]
    rows, differences = [], []
    for name in names:
        measured = [cell for cell in cells if cell[0] == name]
        means = {m: np.mean([values[(*cell, m)] for cell in measured]) for m in (OURS, *OTHERS)}
        best = max(OTHERS, key=lambda m: means[m])
        apart = [values[(*cell, OURS)] - values[(*cell, best)] for cell in measured]
        differences.append(float(np.mean(apart)))
        shown = [f"{means[m]:.3f}" for m in (OURS, *OTHERS)]
        rows.append([name.replace("_", " "), *shown, format_mean(apart, "+"), str(len(measured))])
    bias = [line["expected"] - line["min"] for line in estimates]
    parts = [
        "# Sets on which nothing was chosen",
        "The lowest class recall on test rows of `CSSTClassifier()` and others, on sets that had no part in "
        "any choice. Long-tailed, rare classes differ by seed; 4 to 16 labels of the rarest "
        "class in most. Means over both budgets and all seeds; the difference is to the best other of the set, chosen "
        "by the same test rows, ± the standard error over cells. Tables are of scikit-learn's `make_classification`. "
        "Written by `benchmarks/effect/unseen.py`.",
        format_table(("set", OURS, *OTHERS, "csst − best other", "cells"), rows),
        f"Mean over sets of the difference: {np.mean(differences):+.3f} ± {compute_error(differences):.3f}. The 95 % "
        f"interval of the lowest recall holds in {np.mean([line['holds'] for line in estimates]):.0%} of {len(bias)} "
        f"fits; expected − test {format_mean(bias, '+')}.",
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cells = [
        {"set": name, "budget": budget, "seed": seed, "method": method}
        for seed in range(options.seeds)
        for budget in ("small", "large")
        for name in UNSEEN
        for method in (OURS, *OTHERS)
    ]

    def measure(cell: Line) -> Line:
        return measure_cell(cell, load_unseen(cell["set"], cell["budget"], cell["seed"], options.data_dir))

    lines = Log(RESULTS / "unseen.jsonl", KEYS).measure(cells, measure)
    write_results(RESULTS / "unseen.md", write_report(lines), MEASURED)


if __name__ == "__main__":
    main()
