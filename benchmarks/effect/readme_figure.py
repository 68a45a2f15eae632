"""The picture of the README: recall of every class, from most to fewest labels, today and with csst.

    python -m benchmarks.effect.readme_figure

Drawn from benchmarks/results/versus.jsonl, which benchmarks/effect/versus.py wrote: CIFAR-10 features with the large
budget of labels, all its seeds. Which classes are rare differs by seed, so classes are averaged by their rank.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[2]
SET, BUDGET = "cifar10_features", "large"
SHOWN = {
    "logistic regression, balanced": ("balanced logistic regression", "#b9bec7"),
    "balanced random forest": ("balanced random forest", "#8b93a1"),
    "csst": ("csst: max min(recall)", "#1f6f8b"),
}


def main() -> None:
    recalls, labels, seeds = read_ranked()
    matplotlib.rcParams["svg.hashsalt"] = "csst"
    matplotlib.rcParams["font.size"] = 11
    figure, axes = plt.subplots(figsize=(7.6, 3.1), layout="constrained")
    places, width = np.arange(len(labels)), 0.27
    for n, (method, (name, color)) in enumerate(SHOWN.items()):
        low = recalls[method].min(1).mean()
        words = f"{name} (lowest {low:.2f})"
        axes.bar(places + (n - 1) * width, recalls[method].mean(0), width, color=color, label=words)
    axes.set_xticks(places, [f"{count:.0f}" for count in labels])
    axes.set_xlabel(f"labels of the class, mean over {seeds} seeds")
    axes.set_ylabel("recall on test rows")
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 1.08), fontsize=10)
    figure.savefig(ROOT / "docs/assets/recall.svg", metadata={"Date": None})
    for method, values in recalls.items():
        print(f"{method:32} lowest {values.min(1).mean():.3f}, mean {values.mean():.3f}")


def read_ranked() -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """Recalls of each method, (seeds, classes) from most to fewest labels; the labels by rank; how many seeds."""
    recalls, labels = defaultdict(list), {}
    for line in (ROOT / "benchmarks/results/versus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if (row["set"], row["budget"]) == (SET, BUDGET) and row["method"] in SHOWN:
            order = np.argsort(-np.array(row["labels"]), kind="stable")
            recalls[row["method"]].append(np.array(row["recalls"])[order])
            labels[row["seed"]] = np.array(row["labels"])[order]
    return {name: np.array(values) for name, values in recalls.items()}, np.mean(list(labels.values()), 0), len(labels)


if __name__ == "__main__":
    main()
