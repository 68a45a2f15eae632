"""csst evaluate RUN [labeled.csv]: measure a finished run's model, on labeled rows or again on its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from csst.cli.examples import ExampleReader, make_parser
from csst.cli.terminal import make_metrics_table, make_table, show
from csst.data.tabular.labeled_tables import index_labels
from csst.errors import InputError
from csst.fitting.evaluation import Evaluation
from csst.fitting.fitted_model import FittedModel
from csst.recipes import Recipe
from csst.report.page import evaluation_page
from csst.report.render import write_page
from csst.runs.begin import load_examples, refuse_changed
from csst.runs.folder import read_recipe


def main(argv: Sequence[str]) -> int:
    description = (
        "Measure a finished run's model on labeled examples: confusion, metrics with intervals, the sentence and its "
        "bounds. Without examples, measure it again on its own and compare with metrics.json."
    )
    parser = make_parser("evaluate", description, "column", "label")
    parser.add_argument(
        "labeled",
        nargs="*",
        help="labeled examples: a table with the columns of the training data, an .npz file with x and y, or a folder "
        "of images with one sub-folder per class",
    )
    parser.add_argument(
        "--objective",
        default="",
        help="measure and decide for another sentence than the run's, by a rule fitted now on the examples whose "
        "scores it kept",
    )
    parser.add_argument("-o", "--out", default="", help="the page; default evaluation.html in the run")
    args = parser.parse_args(argv)
    if not args.labeled:
        if args.objective:
            raise InputError("--objective is measured on labeled examples: csst evaluate RUN labeled.csv --objective …")
        return measure_again(args.run)
    model = FittedModel.load(args.run)
    if args.objective:
        model = model.with_objective(args.run, args.objective)
    group = "" if model.groups is None or args.objective else str(model.groups["column"])
    reader = ExampleReader.open(args.run, model, text_column=args.column, label=args.label, group=group)
    evaluation = evaluate_files(reader, args.labeled)
    for title, rows in evaluation.tables.items():
        show(make_table(rows, title))
    print(evaluation.sentence)
    page = Path(args.out) if args.out else Path(args.run) / "evaluation.html"
    write_page(evaluation_page(evaluation, args.run, args.labeled), page)
    print(f"page: {page}")
    return 0


def evaluate_files(reader: ExampleReader, paths: Sequence[str]) -> Evaluation:
    """Measure a model on labeled files, chunk by chunk; rows without a label are refused."""
    model = reader.model
    counts: Any = 0
    for batch in reader.read(paths):
        labels = index_labels(batch.labels, model.class_names, paths[0], "is measured")
        counts = counts + model.count(batch.inputs, torch.from_numpy(labels), batch.groups)
    return model.evaluate(counts)


def measure_again(folder: str) -> int:
    """Measure a run's model on the run's own examples; return 1 if its numbers differ from metrics.json."""
    recipe = read_recipe(folder)
    model = FittedModel.load(folder, "selected")
    former_metrics = model.metrics
    examples = load_measured(recipe, former_metrics["split_hash"])
    metrics = dict(former_metrics)
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for part, labeled in examples.items():
        metrics[part] = model.measure(labeled)
        pairs.append((metrics[part], former_metrics[part]))
    if "test" in former_metrics.get("adjusted", {}):
        rule_metrics = FittedModel.load(folder).measure(examples["test"])
        metrics["adjusted"] = {**former_metrics["adjusted"], "test": rule_metrics}
        pairs.append((rule_metrics, former_metrics["adjusted"]["test"]))
    show(make_metrics_table(metrics))
    if not pairs:
        print("there are no examples to measure again: labels were judged out of fold, and there is no test set")
        return 0
    is_equal = all(measured_numbers["confusion"] == former["confusion"] for measured_numbers, former in pairs)
    print("equal to metrics.json" if is_equal else "differs from metrics.json: another machine or library version?")
    return 0 if is_equal else 1


def load_measured(recipe: Recipe, split_hash: str) -> dict[str, Any]:
    """Return the examples to measure again, by part; without validation examples that were predicted out of fold."""
    task = load_examples(recipe)
    refuse_changed(task, split_hash)
    parts = {"validation": None if recipe.judges_out_of_fold else task.validation, "test": task.test}
    return {part: labeled for part, labeled in parts.items() if labeled is not None}
