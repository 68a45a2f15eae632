"""Settings for digits with a decision rule, chosen on validation: python -m benchmarks.effect.tuning [--write]

The weight of the unlabeled loss for FixMatch and CSST, and for CSST how the multipliers start and move. A setting is
judged by the value of its model with the rule, cross-fitted on validation; the test columns show whether that was a
good choice and decide nothing. Finished runs in --out are kept. Writes benchmarks/results/tuning.md.
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
MEASURED = ("maths", "selftraining", "training", "rules", "estimation")

NOTES = "\n**How to read it.**"  # what people wrote below the table, from here on, is kept
#: method, weight of the unlabeled loss, initial multipliers, dual step
SETTINGS: list[tuple[str, float, str, float]] = [
    ("erm", 1.0, "uniform", 0.25),
    ("fixmatch", 1.0, "uniform", 0.25),
    ("fixmatch", 0.1, "uniform", 0.25),
    ("csst", 1.0, "uniform", 0.25),
    ("csst", 0.1, "uniform", 0.25),
    ("csst", 1.0, "prior", 0.1),
    ("csst", 0.3, "uniform", 0.1),
]


def made(setting: tuple[str, float, str, float], seed: int) -> Recipe:
    method, weight, initial, step = setting
    base = recipe("digits")
    return replace(
        base,
        method=method,
        seed=seed,
        rule="fit",
        selftraining=replace(base.selftraining, unlabeled_weight=weight),
        dual=replace(base.dual, initial=initial, step_size=step),
    )


def row(setting: tuple[str, float, str, float], runs: list[dict[str, Any]]) -> str:
    columns = [
        [run["adjusted"]["value"] for run in runs],
        [run["adjusted"]["test"]["min_recall"] for run in runs],
        [run["adjusted"]["test"]["mean_recall"] for run in runs],
        [run["test"]["min_recall"] for run in runs],
        [run["test"]["mean_recall"] for run in runs],
    ]
    cells = [f"{mean(c):.3f}" + (f" ± {stdev(c):.3f}" if len(c) > 1 else "") for c in columns]
    method, weight, initial, step = setting
    moves = [initial, f"{step:g}"] if method == "csst" else ["–", "–"]
    return f"| {method} | {weight:g} | {' | '.join([*moves, *cells])} | {len(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2,100,101,102,103,104,105")
    parser.add_argument("--out", type=Path, default=Path("runs/tuning"))
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/tuning.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    print(f"{len(SETTINGS) * len(seeds)} runs of about 10 seconds", file=sys.stderr)
    lines = ["# Settings for digits with a decision rule", "", f"Seeds {given.seeds.replace(',', ', ')},"]
    lines[-1] += " objective `max min(recall)`, mean ± std. The first column of numbers decides, the others do not."
    lines += [
        "",
        "| method | weight | λ⁰ | ω | cross-fitted on validation | test min, with the rule | test mean, with the rule ",
    ]
    lines[-1] += "| test min, as trained | test mean, as trained | n |"
    lines += ["|---" * 10 + "|"]
    for setting in SETTINGS:
        name = "-".join(f"{word:g}" if isinstance(word, float) else word for word in setting)
        runs = [execute(made(setting, seed), given.out / f"{name}-{seed}", resume=True) for seed in seeds]
        lines.append(row(setting, runs))
        print(lines[-1], flush=True)
    if given.write:
        file = Path(__file__).parents[1] / "results" / "tuning.md"
        known = file.read_text() if file.is_file() else ""
        notes = NOTES + known.split(NOTES, 1)[1] if NOTES in known else ""
        write_results(file, "\n".join([*lines, ""]) + notes, MEASURED)


if __name__ == "__main__":
    main()
