"""The picture of the game over time: lambda and the recall of every class, by gradient beside solved.

    python benchmarks/game_figure.py RUN_BY_GRADIENT RUN_SOLVED [--out docs/assets/game_over_time.svg]

Both are folders of runs by the same recipe and seed, such as those that benchmarks/scratch.py leaves in --out. What is
drawn is in their journals: the multipliers and the recalls, estimated on validation rows, at every update.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from csst.report.figures.svg import rank_colors
from csst.runs.folder import Run

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradient", type=Path)
    parser.add_argument("solved", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/assets/game_over_time.svg")
    options = parser.parse_args()
    runs = {"λ by gradient": Run.open(options.gradient), "λ solved": Run.open(options.solved)}
    matplotlib.rcParams["svg.hashsalt"] = "csst"
    matplotlib.rcParams["font.size"] = 10
    figure, axes = plt.subplots(2, 2, figsize=(7.6, 4.4), sharex=True, sharey="row", layout="constrained")
    for (title, run), column in zip(runs.items(), axes.T, strict=True):
        paint(run, title, column)
    axes[0, 0].set_ylabel("multiplier λ of the class")
    axes[1, 0].set_ylabel("recall on validation")
    axes[1, 0].set_ylim(0, 1.02)
    handles, names = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside right center", title="labels", fontsize=9)
    figure.savefig(options.out, metadata={"Date": None})


def paint(run: Run, title: str, column: np.ndarray) -> None:
    """Draw a run's multipliers above its recalls, a line per class, from most to fewest labels."""
    records = [record for record, _ in run.records()]
    counts = run.metrics()["labeled_counts"]
    steps = [record["step"] for record in records]
    colors = rank_colors(counts, len(counts))
    for axes, name in zip(column, ("multipliers", "recall"), strict=True):
        values = np.array([record[name] for record in records])
        for k in np.argsort(-np.array(counts), kind="stable"):
            axes.plot(steps, values[:, k], color=colors[k], lw=1.4, label=str(counts[k]))
        axes.spines[["top", "right"]].set_visible(False)
    column[0].set_title(title, fontsize=10)
    column[1].set_xlabel("step")


if __name__ == "__main__":
    main()
