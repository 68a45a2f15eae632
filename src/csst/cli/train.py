"""csst train RECIPE --method M --objective "..." --seed S --out DIR [--resume]: train a classifier."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from csst.cli.arguments import Parser, parse_recipe
from csst.cli.terminal import make_columns_table, make_metrics_table, show
from csst.data.embeddings import embed_parts
from csst.data.examples import Selection, as_rows
from csst.data.row_hashes import order_by_content
from csst.data.task import Labeled
from csst.errors import InputError
from csst.fitting.metrics import read_outputs
from csst.fitting.model_file import load_embedder
from csst.recipes import Recipe, refuse_unused_settings
from csst.recipes import recipe as make_recipe
from csst.report import report_page
from csst.report.mistakes import MistakenCell, find_mistakes
from csst.report.render import write_page
from csst.report.run_view import MISTAKES
from csst.rules import rule_from_dict
from csst.rules.claims import certificate_from_dict
from csst.runs.begin import load_examples
from csst.runs.execute import execute
from csst.runs.folder import Run, read_recipe
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
    refuse_unused_settings(make_recipe(recipe.name), recipe)
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


def write_mistakes(folder: str) -> None:
    """Write mistakes.json into a run's folder; nothing if its examples cannot be told from its outputs."""
    run = Run(folder)
    cells = find_run_mistakes(run)
    if cells is not None:
        content = json.dumps([asdict(cell) for cell in cells], ensure_ascii=False)
        run.write(MISTAKES, content.encode("utf-8", "replace"))


def find_run_mistakes(run: Run) -> list[MistakenCell] | None:
    """Return the mistakes of the deployed model on test rows or, without any, on labels that it was judged by.

    None if outputs were not stored, or their rows differ from the data (some labels of a learner other than a network
    certify, or the data has changed).
    """
    if not run.path("outputs.npz").is_file():
        return None
    metrics = run.metrics()
    outputs = read_outputs(run.folder)
    part = "test" if "test" in outputs.parts else "validation"
    scores, labels = outputs.parts[part]
    inputs, truth = load_judged(read_recipe(run.folder), part)
    if inputs is None or not np.array_equal(truth, labels.numpy()):
        return None
    rule = rule_from_dict(metrics["adjusted"]["rule"]) if "adjusted" in metrics else None
    if rule is not None and rule.column:  # groups of the rows are not stored
        return None
    probs = torch.softmax(scores.double(), 1)
    return find_mistakes(Labeled(inputs, labels), probs, rule, metrics["class_names"], run.columns())


def load_judged(recipe: Recipe, part: str) -> tuple[Any, np.ndarray]:
    """Return the examples behind the stored outputs of a part, in their order, and their classes; None if unknown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training has loaded the same examples, and said what is odd about them
        task = load_examples(recipe)
    if part == "test" or recipe.uses_network:
        labeled = task.test if part == "test" else task.validation
        if labeled is None or (part == "validation" and recipe.folds):
            return None, np.zeros(0)
        return labeled.inputs, labeled.labels.numpy()
    if recipe.folds:
        task = replace(task.join_validation(), validation=None)
    judged_part = task.labeled if task.validation is None else task.validation
    # Learners see the rows, or their embeddings, in the order of their content.
    encoded_task = task
    if recipe.frozen:
        encoded_task = embed_parts(task, load_embedder(recipe, task.kind))
    seen_part = encoded_task.labeled if encoded_task.validation is None else encoded_task.validation
    labels = judged_part.labels.numpy()
    order = np.asarray(order_by_content(as_rows(seen_part.inputs), labels))
    return Selection(judged_part.inputs, torch.from_numpy(order)), labels[order]
