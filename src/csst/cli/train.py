"""csst train RECIPE --method M --objective "..." --seed S --out DIR [--resume]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from csst.cli import is_main_process
from csst.cli.arguments import Parser, recipe_and_rest
from csst.cli.progress import Progress
from csst.cli.report import write_page
from csst.cli.tables import metrics_table, show
from csst.recipes import Recipe, refuse_unused_settings
from csst.recipes import recipe as read_recipe
from csst.report import report_page
from csst.runs.execute import execute


def parser_of(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst train {name}",
        usage="csst train RECIPE [--method M] [--objective '...'] [--seed S] [--out DIR] [--resume] [--GROUP.NAME V]",
        description="Train a classifier. Every setting of the recipe is an argument; --config takes them from YAML.",
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=str, default="", help="the run's folder; default runs/RECIPE-METHOD-SEED")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out where it stopped")
    parser.add_argument("--checkpoint_seconds", type=float, default=30.0, help="time between two checkpoints")
    return parser


def main(argv: Sequence[str]) -> int:
    recipe, args = recipe_and_rest(argv, parser_of)
    refuse_unused_settings(read_recipe(recipe.name), recipe)
    out = args.out or f"runs/{recipe.name}-{recipe.method}-{recipe.seed}".replace(":", "_")
    with Progress(recipe.training.steps) as progress:
        metrics = execute(recipe, out, args.resume, progress.show, args.checkpoint_seconds)
    if not is_main_process():
        return 0
    page = Path(out) / "report.html"
    write_page(report_page([out]), page)
    show(metrics_table([metrics], f"{metrics['method']} for '{metrics['objective']}'"))
    if "selected_step" in metrics:
        print(f"selected at step {metrics['selected_step']} of {metrics['steps']}; results: {out}/metrics.json, {page}")
    else:
        print(f"{metrics['adjusted']['sentence']}\nresults: {out}/metrics.json, {page}")
    return 0
