"""IMDb with a frozen encoder: python -m benchmarks.effect.text --data-dir DIR --encoder hf:FOLDER [--seeds 3]

DIR holds imdb_train.parquet and imdb_test.parquet (columns text and label). Embeds once into --cache, then trains ERM,
LA, CSL, UDA and CSST(UDA) at rho = 10 and 100. Finished runs in --out are not repeated. Writes
benchmarks/results/text.md. benchmarks/effect/text_finetuned.py fine-tunes the encoder.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.results_check import write_results
from csst.recipes import Recipe, recipe
from csst.runs.begin import assemble
from csst.runs.execute import execute

#: modules of csst that are measured
MEASURED = ("data/text", "maths", "selftraining", "training")

METHODS = ("erm", "la", "csl", "uda", "csst-uda")
PAPER = {
    10: {"erm": ".79/.61", "uda": ".82/.66", "csst-uda": ".89/.88"},
    100: {"erm": ".50/.00", "uda": ".50/.00", "csst-uda": ".77/.75"},
}


def chosen(rho: int, method: str, seed: int, given: argparse.Namespace) -> Recipe:
    base = recipe(f"imdb-lt-{rho}-small")
    files = {"path": str(given.data_dir / "imdb_train.parquet"), "test_path": str(given.data_dir / "imdb_test.parquet")}
    data = replace(base.data, **files)  # type: ignore[type-var]
    embedding = replace(base.embedding, cache=str(given.cache))
    return replace(base, data=data, method=method, seed=seed, encoder=given.encoder, embedding=embedding)


def run(made: Recipe, folder: Path) -> dict[str, Any]:
    print(f"{made.name} {made.method} seed {made.seed} …", file=sys.stderr, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return execute(made, folder, resume=True)


def cells(runs: list[dict[str, Any]]) -> str:
    shown = []
    for key in ("mean_recall", "min_recall", "min_coverage"):
        values = [r["test"][key] for r in runs]
        shown.append(f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else ""))
    return f"{' | '.join(shown)} | {mean(r['seconds'] for r in runs):.0f} | {len(runs)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--encoder", required=True, help="hf:FOLDER of a pretrained sentence encoder")
    parser.add_argument("--cache", type=Path, default=Path("runs/text/cache"))
    parser.add_argument("--out", type=Path, default=Path("runs/text"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--embed-only", action="store_true")
    given = parser.parse_args()
    begun = time.perf_counter()
    for rho in (10, 100):
        for seed in range(given.seeds):
            print(f"embedding rho {rho} seed {seed} …", file=sys.stderr, flush=True)
            assemble(chosen(rho, "csst-uda", seed, given))
    embedding, begun = time.perf_counter() - begun, time.perf_counter()
    print(f"embedding took {embedding:.0f} s", file=sys.stderr)
    if given.embed_only:
        return
    head = "| method | mean recall | min recall | min coverage | seconds | n | the paper (DistilBERT, fine-tuned) |"
    lines = ["# IMDb with a frozen encoder", ""]
    for rho in (10, 100):
        lines += [f"## rho = {rho}", "", head, "|---|---|---|---|---|---|---|"]
        for method in METHODS:
            folders = [given.out / f"{rho}-{method}-{seed}" for seed in range(given.seeds)]
            runs = [run(chosen(rho, method, seed, given), folder) for seed, folder in enumerate(folders)]
            lines.append(f"| {method} | {cells(runs)} | {PAPER[rho].get(method, '–')} |")
            print(lines[-1], flush=True)
        lines.append("")
    spent = time.perf_counter() - begun
    lines += [f"All {2 * len(METHODS) * given.seeds} runs after embedding: {spent / 60:.1f} minutes.", ""]
    write_results(Path(__file__).parents[1] / "results" / "text.md", "\n".join(lines), MEASURED)


if __name__ == "__main__":
    main()
