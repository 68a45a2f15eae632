"""The paper's Figs. 4 and 5 on a frozen encoder: python -m benchmarks.effect.encoder_presets --data-dir DIR [--seeds 2]

Runs `csst compare cifar10-lt-encoder` with the presets mask-rate, ablation-tau and ablation-labeled on the images that
benchmarks/effect/encoder_images.py cut and embedded in --out; a comparison that was stopped goes on where it was, one
with more seeds keeps those it has. Writes results/encoder_presets.md and its figure, docs/assets/encoder_presets.svg.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.effect.encoder_images import ENCODER, cut_pool
from benchmarks.results_check import write_results
from csst.cli import main as csst
from csst.runs.folder import Run

#: modules of csst that are measured
MEASURED = ("maths", "selftraining", "training", "comparison/presets.py")

RESULTS = Path(__file__).parents[1] / "results"
FIGURE = Path(__file__).parents[2] / "docs/assets/encoder_presets.svg"
PRESETS = ("mask-rate", "ablation-tau", "ablation-labeled")
COLORS = {"fixmatch": "#8b93a1", "csst-no-kl": "#d08a2e", "csst-fixmatch": "#1f6f8b", "csst": "#1f6f8b"}
#: the objectives of all three, each with the recall that it is about
OBJECTIVES = {"min-recall": "min_recall", "mean-recall-coverage": "mean_recall"}
KEYS = {"used": "used", "pseudo_accuracy": "right, of those used"}
#: what follows it in the page is written by this script
MARK = "<!-- tables -->"


def run_preset(name: str, args: argparse.Namespace) -> None:
    command = ["compare", "cifar10-lt-encoder", "--data.path", str(args.out / "cifar10_lt.npz"), "--encoder", ENCODER]
    command += ["--embedding.cache", str(args.out), "--preset", name, "--seeds", str(args.seeds), "--jobs", "1"]
    if csst([*command, "--out", str(args.out / f"compare-{name}")]):
        raise SystemExit(f"{name} failed")


def draw_used(axes: Any, folder: Path, seeds: int, objective: str, key: str) -> None:
    """The fraction of pseudo-labels used between two multiplier updates, or how many of those were right."""
    for method in ("fixmatch", "csst-no-kl", "csst-fixmatch"):
        journals = [Run(folder / f"{method}-{objective}-{seed}").journal() for seed in range(seeds)]
        known = [[np.nan if r[key] is None else r[key] for r in journal[1:]] for journal in journals]
        axes.plot([r["step"] for r in journals[0][1:]], np.mean(known, 0), color=COLORS[method], label=method)
    axes.set(xlabel="step", ylabel=f"pseudo-labels {KEYS[key]}", ylim=(0, 1.02), title=objective)


def draw_setting(axes: Any, rows: list[dict[str, Any]], objective: str, measure: str) -> None:
    """A recall against what the preset varies, as trained and with the rule."""
    rows = [row for row in rows if row["objective"] == objective]
    for method, rule in dict.fromkeys((row["method"].split()[0], row["rule"]) for row in rows):
        own = [r for r in rows if r["method"].split()[0] == method and r["rule"] == rule]
        own.sort(key=lambda r: r["setting"]["value"])
        x, y = [r["setting"]["value"] for r in own], [r[measure]["mean"] for r in own]
        label = f"{method}{' + rule' if rule else ''}"
        axes.plot(x, y, "o--" if rule else "o-", color=COLORS[method], label=label, ms=4)
    words = measure.replace("_", " ")
    axes.set(xscale="log", xlabel=rows[0]["setting"]["name"], ylabel=words, ylim=(0, 0.9), title=objective)
    ticks = sorted({r["setting"]["value"] for r in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "compare.json").read_text())["rows"]


def write_page(args: argparse.Namespace) -> None:
    """The figure, and the tables of `csst compare` below what the page says about them."""
    folders = {name: args.out / f"compare-{name}" for name in PRESETS}
    matplotlib.rcParams |= {"svg.hashsalt": "csst", "font.size": 9, "legend.fontsize": 8}
    figure, panels = plt.subplots(2, 4, figsize=(12.6, 5.6), layout="constrained")
    rows = {name: read_rows(folder) for name, folder in folders.items()}
    for column, (objective, measure) in enumerate(OBJECTIVES.items()):
        draw_used(panels[0][column], folders["mask-rate"], args.seeds, objective, "used")
        draw_used(panels[0][column + 2], folders["mask-rate"], args.seeds, objective, "pseudo_accuracy")
        draw_setting(panels[1][column], rows["ablation-tau"], objective, measure)
        draw_setting(panels[1][column + 2], rows["ablation-labeled"], objective, measure)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    for panel in (panels[0][0], panels[1][0], panels[1][3]):
        panel.legend(frameon=False)
    figure.savefig(FIGURE, metadata={"Date": None})
    page = RESULTS / "encoder_presets.md"
    said = page.read_text().partition(MARK)[0] if page.is_file() else "# Figs. 4 and 5 on a frozen encoder\n\n"
    lines = []
    for name, folder in folders.items():
        tables = (folder / "compare.md").read_text().partition("\n\n")[2].replace("\n## ", "\n### ")
        spent = mean(second for row in rows[name] for second in row["seconds"])
        lines += [f"## `{name}`", "", f"{spent:.0f} seconds a run, on a shared machine.", "", tables.strip(), ""]
    write_results(page, said + MARK + "\n\n" + "\n".join(lines), MEASURED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/encoder_images"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--page-only", action="store_true")
    args = parser.parse_args()
    if not args.page_only:
        cut_pool(args.data_dir, args.out)
        for name in PRESETS:
            run_preset(name, args)
    write_page(args)


if __name__ == "__main__":
    main()
