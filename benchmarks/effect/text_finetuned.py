"""IMDb with the encoder fine-tuned.

    python -m benchmarks.effect.text_finetuned --data-dir DIR --encoder hf:FOLDER [--rho 100]

DIR holds imdb_train.parquet and imdb_test.parquet (columns text and label). Trains the whole encoder by ERM, CSST(UDA)
and UDA for --steps steps on a CPU, one thread, one run after another; a run that was stopped goes on where it was.
Writes benchmarks/results/text_finetuned.md from all runs that are complete in --out; --page-only trains nothing.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results_check import write_results
from csst.recipes import Recipe, recipe
from csst.runs.execute import execute
from csst.runs.folder import Run
from csst.settings import Dual, Hardware, SelfTrainingSettings

#: modules of csst that are measured
MEASURED = ("data/text", "models/huggingface", "maths", "selftraining", "training", "rules", "estimation")

METHODS = ("erm", "csst-uda", "uda")
RESULTS = Path(__file__).parents[1] / "results"
#: what follows it in the page is written by hand
MARK = "<!-- by hand -->"
FROZEN = "## rho = {rho}, frozen, measured on commit `673a461`"
COLUMNS = "| method | seed | raw: mean recall | min recall | rule: mean recall | min recall | step | hours |"
HEAD = """# IMDb with the encoder fine-tuned

all-MiniLM-L6-v2 (22.7 M parameters), all of it trained, by ERM, UDA and CSST(UDA): AdamW 5e-5, {steps} steps of 8
labeled and 24 unlabeled reviews cut at 128 tokens, strong view TF-IDF word replacement, the paper's unlabeled weight
.1, τ .1 and confidence .9. Splits as in the paper: 1,000 labels, the other training reviews of the long tail unlabeled;
100 validation and 1,000 test reviews per class. Objective `max min(recall)`. *Raw* is the model selected on
validation, *rule* the last model with the decision rule fitted on validation and unlabeled reviews. One thread of a
shared machine; the hours are of training alone. Nothing was tuned on these data.

    python -m benchmarks.effect.text_finetuned --data-dir DIR --encoder hf:FOLDER
"""


def make_recipe(rho: int, method: str, seed: int, args: argparse.Namespace) -> Recipe:
    """The paper's split and text settings, cut to what one CPU thread carries: shorter texts, smaller batches."""
    base = recipe(f"imdb-lt-{rho}")
    files = {"path": str(args.data_dir / "imdb_train.parquet"), "test_path": str(args.data_dir / "imdb_test.parquet")}
    views = replace(base.data.views, strong="tfidf")  # type: ignore[attr-defined]
    training = replace(
        base.training, steps=args.steps, labeled_batch=8, unlabeled_batch=24, lr=5e-5, warmup=args.steps // 20, ema=0.98
    )
    return replace(
        base,
        data=replace(base.data, **files, views=views, validation=100, test=1000),  # type: ignore[type-var]
        encoder=args.encoder,
        method=method,
        seed=seed,
        rule="fit",
        model=replace(base.model, max_length=128),
        training=training,
        selftraining=SelfTrainingSettings(unlabeled_weight=0.1, tau=0.1, confidence=0.9),
        dual=Dual(steps_per_update=25, step_size=0.5, schedule="linear"),
        hardware=Hardware(threads=1),
    )


def format_row(method: str, seed: int, metrics: dict[str, Any]) -> str:
    raw, adjusted = metrics["test"], metrics["adjusted"]["test"]
    shown = [f"{part[key]:.3f}" for part in (raw, adjusted) for key in ("mean_recall", "min_recall")]
    return f"| {method} | {seed} | {' | '.join(shown)} | {metrics['selected_step']} | {metrics['seconds'] / 3600:.2f} |"


def read_frozen_rows(rho: int) -> list[str]:
    """The rows of the same split with the encoder frozen, which the page has from commit 673a461."""
    section = (RESULTS / "text_finetuned.md").read_text().partition(FROZEN.format(rho=rho))[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")]


def write_page(args: argparse.Namespace) -> None:
    """The tables anew, above what the page says about them."""
    page = RESULTS / "text_finetuned.md"
    said = page.read_text().partition(MARK)[2] if page.is_file() else ""
    lines = [HEAD.format(steps=args.steps)]
    for rho in (10, 100):
        rows = []
        for method in METHODS:
            folder = args.out / f"{rho}-{method}-0"
            if folder.is_dir() and Run(folder).is_complete:
                rows.append(format_row(method, 0, Run.open(folder).metrics()))
        if rows:
            lines += [f"## rho = {rho}, fine-tuned", ""]
            lines += [COLUMNS]
            lines += ["|---|---|---|---|---|---|---|---|", *rows, ""]
            lines += [FROZEN.format(rho=rho), "", *read_frozen_rows(rho), ""]
    write_results(page, "\n".join([*lines, MARK]) + (said or "\n"), MEASURED, is_measured=not args.page_only)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--encoder", required=True, help="hf:FOLDER of a pretrained sentence encoder")
    parser.add_argument("--out", type=Path, default=Path("runs/text_finetuned"))
    parser.add_argument("--rho", type=int, choices=(10, 100), default=100)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--page-only", action="store_true")
    args = parser.parse_args()
    for method in () if args.page_only else METHODS:
        print(f"rho {args.rho} {method} …", file=sys.stderr, flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = make_recipe(args.rho, method, 0, args)
            metrics = execute(made, args.out / f"{args.rho}-{method}-0", resume=True, checkpoint_seconds=120)
        print(format_row(method, 0, metrics), flush=True)
    write_page(args)


if __name__ == "__main__":
    main()
