"""csst evaluate RUN: measure a finished run's model again, from its files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from csst.cli.tables import metrics_table, show
from csst.errors import InputError
from csst.maths.confusion import confusion_counts
from csst.maths.language import objective as read_objective
from csst.recipes import from_dict
from csst.recipes.recipe import Recipe
from csst.runs import trained
from csst.runs.folder import Run
from csst.runs.members import load_rows
from csst.runs.restore import restored
from csst.training.evaluation import compute_logits, count_confusion, summarize_counts


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst evaluate", description="Measure a finished run's model again.")
    parser.add_argument("run", help="the run's folder")
    folder = parser.parse_args(words).run
    run = Run.open(folder)
    stored, recipe = run.metrics(), from_dict(run.recipe())
    if not recipe.uses_network:
        return evaluate_members(folder, stored, recipe)
    task, model, trainer = trained(folder, recipe)
    if task.split_hash != stored["split_hash"]:
        raise InputError(f"the data has changed since the run (split {stored['split_hash']}, now {task.split_hash})")
    measured = dict(stored)
    for part, examples in (("validation", task.validation), ("test", task.test)):
        if examples is not None:
            counted = count_confusion(
                model, examples, task.classes, recipe.training.evaluation_batch, trainer.engine.device
            )
            measured[part] = summarize_counts(counted, trainer.objective)
    if "test" in stored.get("posthoc", {}) and task.test is not None:
        finished = restored(folder, recipe)
        scores = compute_logits(
            finished.model, task.test.inputs, recipe.training.evaluation_batch, trainer.engine.device
        )
        counted = finished.rule.counts(torch.softmax(scores.double(), 1), task.test.labels)  # type: ignore[union-attr]
        measured["posthoc"] = {**stored["posthoc"], "test": summarize_counts(counted, trainer.objective)}
    pairs = [(measured[part], stored[part]) for part in ("validation", "test") if part in stored]
    if "test" in stored.get("posthoc", {}):
        pairs.append((measured["posthoc"]["test"], stored["posthoc"]["test"]))
    return compare_and_show(measured, stored, pairs)


def evaluate_members(folder: str, stored: dict[str, Any], recipe: Recipe) -> int:
    """The same for learners: the test examples again, as the run's folder predicts them."""
    rows = load_rows(recipe)
    if rows.split_hash != stored["split_hash"]:
        raise InputError(f"the data has changed since the run (split {stored['split_hash']}, now {rows.split_hash})")
    measured, pairs = dict(stored), []
    if rows.test is not None:
        classifier = restored(folder, recipe)
        probs = torch.softmax(classifier.logits(rows.test.inputs).double(), 1)
        objective = read_objective(stored["objective"]).bind(len(rows.class_names), rows.class_names)
        plain = summarize_counts(confusion_counts(rows.test.labels, probs.argmax(1), len(rows.class_names)), objective)
        ruled = summarize_counts(classifier.rule.counts(probs, rows.test.labels), objective)  # type: ignore[union-attr]
        measured |= {"test": plain, "posthoc": {**stored["posthoc"], "test": ruled}}
        pairs = [(plain, stored["test"]), (ruled, stored["posthoc"]["test"])]
    return compare_and_show(measured, stored, pairs)


def compare_and_show(measured: dict[str, Any], stored: dict[str, Any], pairs: list[tuple[Any, Any]]) -> int:
    """The table, and whether it is what metrics.json has."""
    show(metrics_table([measured], f"{stored['method']} for '{stored['objective']}'"))
    same = all(now["confusion"] == then["confusion"] for now, then in pairs)
    print("equal to metrics.json" if same else "differs from metrics.json: another machine or library version?")
    return 0 if same else 1
