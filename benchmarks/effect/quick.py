"""How the methods do on the quick recipes: python -m benchmarks.effect.quick

Every method on the same splits, 3 seeds; for the toys beside the exact best possible worst-class recall. Also the two
priors under which a coverage constraint can be differentiated. Writes benchmarks/results/quick.md. About 4 minutes.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.results_check import write_results
from csst.recipes import Recipe, recipe
from csst.runs.execute import execute

#: modules of csst that are measured
MEASURED = ("maths", "selftraining", "training")

SEEDS = 3
METHODS = ("erm", "la", "csl", "fixmatch", "uda", "csst-fixmatch", "csst-uda", "csst-no-kl")


def measured(base: Recipe, folder: Path) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [execute(replace(base, seed=seed), folder / f"{abs(hash(base))}-{seed}") for seed in range(SEEDS)]


def cell(runs: list[dict[str, Any]], key: str) -> str:
    values = [run["test"][key] for run in runs]
    return f"{mean(values):.3f} ± {stdev(values):.3f}"


def table(base: Recipe, folder: Path, methods: tuple[str, ...]) -> list[str]:
    lines = ["| method | min recall | mean recall | min coverage | seconds |", "|---|---|---|---|---|"]
    for method in methods:
        runs = measured(replace(base, method=method), folder)
        cells = [cell(runs, key) for key in ("min_recall", "mean_recall", "min_coverage")]
        lines.append(f"| {method} | {' | '.join(cells)} | {mean(run['seconds'] for run in runs):.1f} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    lines = ["# The quick recipes, measured", "", f"Test set, mean ± std over {SEEDS} seeds, one CPU thread.", ""]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for toy in ("toy", "toy-overlap"):
            best, weights = recipe(toy).data.gaussians().minimax()  # type: ignore[attr-defined]
            shares = ", ".join(f"{w:.3f}" for w in weights)
            lines += [f"## {toy}, max min(recall)", "", f"Exact best possible: **{best:.4f}** (weights {shares}).", ""]
            lines += [*table(recipe(toy), folder, METHODS), ""]
        lines += ["## digits, max min(recall)", "", *table(recipe("digits"), folder, METHODS), ""]
        goal = "mean-recall-coverage"
        coverage = replace(recipe("digits"), objective=goal)
        lines += ["## digits, max mean(recall) s.t. coverage >= 0.95/K", "", *table(coverage, folder, METHODS), ""]
        lines += ["The same, the gain derived under the evaluation prior (`dual.metric_prior: evaluation`):", ""]
        evaluation = replace(coverage, dual=replace(coverage.dual, metric_prior="evaluation"))
        lines += [*table(evaluation, folder, ("csl", "csst-fixmatch", "csst-uda")), ""]
    write_results(Path(__file__).parents[1] / "results" / "quick.md", "\n".join(lines), MEASURED)


if __name__ == "__main__":
    main()
