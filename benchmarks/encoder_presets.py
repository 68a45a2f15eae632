"""The paper's Figs. 4 and 5 on a frozen encoder: python benchmarks/encoder_presets.py --data-dir DIR [--seeds 2]

Runs `csst compare cifar10-lt-encoder` with the presets mask-rate, ablation-tau and ablation-labeled on the images that
benchmarks/encoder_images.py cut and embedded in --out; a comparison that was stopped goes on where it was, one with
more seeds keeps those it has. Writes results/encoder_presets.md and its figure, encoder_presets.svg.
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
from encoder_images import ENCODER, cut_pool

from csst.cli import main as csst
from csst.runs.folder import Run

RESULTS = Path(__file__).parent / "results"
PRESETS = ("mask-rate", "ablation-tau", "ablation-labeled")
COLORS = {"fixmatch": "#8b93a1", "csst-no-kl": "#d08a2e", "csst-fixmatch": "#1f6f8b", "csst": "#1f6f8b"}
#: what follows it in the page is written by this script
MARK = "<!-- tables -->"


def run_preset(name: str, args: argparse.Namespace) -> None:
    command = ["compare", "cifar10-lt-encoder", "--data.path", str(args.out / "cifar10_lt.npz"), "--encoder", ENCODER]
    command += ["--embedding.cache", str(args.out), "--preset", name, "--seeds", str(args.seeds), "--jobs", "1"]
    if csst([*command, "--out", str(args.out / f"compare-{name}")]):
        raise SystemExit(f"{name} failed")


def draw_used(axes: list[Any], folder: Path, seeds: int) -> None:
    """The fraction of pseudo-labels used between two multiplier updates, and how many of those were right."""
    for method in ("fixmatch", "csst-no-kl", "csst-fixmatch"):
        journals = [Run(folder / f"{method}-min-recall-{seed}").journal() for seed in range(seeds)]
        for panel, key in zip(axes, ("used", "pseudo_accuracy"), strict=True):
            known = [[np.nan if r[key] is None else r[key] for r in journal[1:]] for journal in journals]
            panel.plot([r["step"] for r in journals[0][1:]], np.mean(known, 0), color=COLORS[method], label=method)
    axes[0].set(xlabel="step", ylabel="pseudo-labels used", ylim=(0, 1))
    axes[1].set(xlabel="step", ylabel="of these right", ylim=(0.8, 1))
    axes[0].legend(frameon=False)


def draw_setting(axes: Any, rows: list[dict[str, Any]], name: str) -> None:
    """The recall of the worst class against what the preset varies, as trained and with the rule."""
    for method in dict.fromkeys(row["method"].split()[0] for row in rows):
        for rule in dict.fromkeys(row["rule"] for row in rows):
            own = [r for r in rows if r["method"].split()[0] == method and r["rule"] == rule]
            own = sorted((r for r in own if r["objective"] == "min-recall"), key=lambda r: r["setting"]["value"])
            x, y = [r["setting"]["value"] for r in own], [r["min_recall"]["mean"] for r in own]
            label = f"{method}{' + rule' if rule else ''}"
            axes.plot(x, y, "o--" if rule else "o-", color=COLORS[method], label=label, ms=4)
    axes.set(xscale="log", xlabel=name, ylabel="recall of the worst class", ylim=(0, 0.8))
    ticks = sorted({r["setting"]["value"] for r in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False)


def read_rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "compare.json").read_text())["rows"]


def write_page(args: argparse.Namespace) -> None:
    """The figure, and the tables of `csst compare` below what the page says about them."""
    folders = {name: args.out / f"compare-{name}" for name in PRESETS}
    matplotlib.rcParams |= {"svg.hashsalt": "csst", "font.size": 9, "legend.fontsize": 8}
    figure, panels = plt.subplots(2, 2, figsize=(8.4, 5.6), layout="constrained")
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
    draw_used(list(panels[0]), folders["mask-rate"], args.seeds)
    draw_setting(panels[1][0], read_rows(folders["ablation-tau"]), "KL threshold τ")
    draw_setting(panels[1][1], read_rows(folders["ablation-labeled"]), "labels, as a fraction of the recipe's")
    figure.savefig(RESULTS / "encoder_presets.svg", metadata={"Date": None})
    page = RESULTS / "encoder_presets.md"
    said = page.read_text().partition(MARK)[0] if page.is_file() else "# Figs. 4 and 5 on a frozen encoder\n\n"
    lines = []
    for name, folder in folders.items():
        tables = (folder / "compare.md").read_text().partition("\n\n")[2].replace("\n## ", "\n### ")
        spent = mean(second for row in read_rows(folder) for second in row["seconds"])
        lines += [f"## `{name}`", "", f"{spent:.0f} seconds a run, on a shared machine.", "", tables.strip(), ""]
    page.write_text(said + MARK + "\n\n" + "\n".join(lines))


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
