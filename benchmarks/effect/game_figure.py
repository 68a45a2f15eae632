"""The picture of the game over time: lambda and the recall of every class, by gradient beside solved.

    python -m benchmarks.effect.game_figure RUN_BY_GRADIENT RUN_SOLVED [--out docs/assets/game_over_time.svg]

Both are folders of runs by the same recipe and seed, such as benchmarks/effect/scratch.py leaves them in --out. Drawn
from their journals: the multipliers and the recalls, estimated on validation rows, at every update.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from csst.report.figures.curves import Game, paint_games
from csst.runs.folder import Run

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradient", type=Path)
    parser.add_argument("solved", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/assets/game_over_time.svg")
    options = parser.parse_args()
    runs = {"λ by gradient": Run.open(options.gradient), "λ solved": Run.open(options.solved)}
    counts = next(iter(runs.values())).metrics()["labeled_counts"]
    matplotlib.rcParams["svg.hashsalt"] = "csst"
    matplotlib.rcParams["font.size"] = 10
    matplotlib.rcParams["axes.spines.top"] = False
    matplotlib.rcParams["axes.spines.right"] = False
    figure = plt.figure(figsize=(7.6, 4.4), layout="constrained")
    paint_games(figure, [read_game(title, run) for title, run in runs.items()], counts)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside right center", title="labels", fontsize=9)
    figure.savefig(options.out, metadata={"Date": None})


def read_game(title: str, run: Run) -> Game:
    """Return the multipliers and recalls in a run's journal."""
    records = [record for record, _ in run.records()]
    values = {name: np.array([record[name] for record in records]) for name in ("step", "multipliers", "recall")}
    return Game(title, values["step"].tolist(), values["multipliers"], values["recall"])


if __name__ == "__main__":
    main()
