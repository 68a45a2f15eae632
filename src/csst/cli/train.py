"""csst train RECIPE --method M --objective "..." --seed S --out DIR [--resume]: train a classifier."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from csst.cli.arguments import Parser, parse_recipe
from csst.cli.mistakes import write_mistakes
from csst.cli.terminal import make_columns_table, make_metrics_table, show
from csst.errors import InputError
from csst.recipes import Recipe, refuse_unused_settings
from csst.recipes import recipe as read_recipe
from csst.report import report_page
from csst.report.render import write_page
from csst.rules.certified import certificate_from_dict
from csst.runs.execute import execute
from csst.runs.folder import Run
from csst.training.interruption import is_main_process
from csst.training.progress import Progress, Watchers
from csst.training.tracking import TensorBoard


def make_parser(name: str, base: Recipe) -> Parser:
    parser = Parser(
        prog=f"csst train {name}",
        usage="csst train RECIPE [--method M] [--objective '...'] [--seed S] [--out DIR] [--resume] [--GROUP.NAME V]",
        description="Train a classifier. Every setting of the recipe is an argument; --config takes them from YAML.",
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=str, default="", help="the run's folder; default runs/RECIPE-METHOD-SEED")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out where it stopped")
    parser.add_argument("--checkpoint_seconds", type=float, default=30.0, help="time between two checkpoints")
    parser.add_argument(
        "--log",
        type=Literal["", "tensorboard"],
        default="",
        help="tensorboard writes losses, multipliers, class recalls and the used fraction to OUT/tensorboard",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    recipe, args = parse_recipe(argv, make_parser)
    refuse_unused_settings(read_recipe(recipe.name), recipe)
    out = args.out or f"runs/{recipe.name}-{recipe.method}-{recipe.seed}".replace(":", "_")
    logs = Path(out) / "tensorboard"
    if args.log and not recipe.uses_network:
        raise InputError(f"--log records the training of a network; learner {recipe.learner} has none: leave it out")
    with Progress(recipe.training.steps) as progress, ExitStack() as stack:
        watchers = Watchers([progress.show])
        if args.log and is_main_process():
            watchers.append(stack.enter_context(TensorBoard(logs)))
            print(f"view it with: tensorboard --logdir {shlex.quote(str(logs))}", file=sys.stderr, flush=True)
        metrics = execute(recipe, out, args.resume, watchers, args.checkpoint_seconds)
    if not is_main_process():
        return 0
    columns = Run(out).columns()
    if columns is not None:
        show(make_columns_table(columns))
    write_mistakes(out)
    page = Path(out) / "report.html"
    write_page(report_page([out]), page)
    show(make_metrics_table(metrics))
    if "selected_step" in metrics:
        print(f"selected at step {metrics['selected_step']} of {metrics['steps']}; results: {out}/metrics.json, {page}")
    else:
        print(f"{metrics['adjusted']['sentence']}\nresults: {out}/metrics.json, {page}")
    certificate = metrics.get("adjusted", {}).get("certificate")
    if certificate is not None:
        print("\n".join(certificate_from_dict(certificate).lines()))
    if args.log:
        print(f"curves: tensorboard --logdir {shlex.quote(str(logs))}")
    return 0
