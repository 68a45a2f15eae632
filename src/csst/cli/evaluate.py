"""csst evaluate RUN: measure a finished run's model again, from its files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from csst.cli.tables import metrics_table, show
from csst.errors import InputError
from csst.evaluation import counts, logits, summary
from csst.recipes import from_dict, trained
from csst.recipes.restore import restored
from csst.runs import Run


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst evaluate", description="Measure a finished run's model again.")
    parser.add_argument("run", help="the run's folder")
    folder = parser.parse_args(words).run
    run = Run.open(folder)
    stored, recipe = run.metrics(), from_dict(run.recipe())
    task, model, trainer = trained(folder, recipe)
    if task.split_hash != stored["split_hash"]:
        raise InputError(f"the data has changed since the run (split {stored['split_hash']}, now {task.split_hash})")
    measured = dict(stored)
    for part, examples in (("validation", task.validation), ("test", task.test)):
        if examples is not None:
            counted = counts(model, examples, task.classes, recipe.training.evaluation_batch, trainer.engine.device)
            measured[part] = summary(counted, trainer.objective)
    if "test" in stored.get("posthoc", {}) and task.test is not None:
        finished = restored(folder, recipe)
        scores = logits(finished.model, task.test.inputs, recipe.training.evaluation_batch, trainer.engine.device)
        counted = finished.rule.counts(torch.softmax(scores.double(), 1), task.test.labels)  # type: ignore[union-attr]
        measured["posthoc"] = {**stored["posthoc"], "test": summary(counted, trainer.objective)}
    show(metrics_table([measured], f"{stored['method']} for '{stored['objective']}'"))
    pairs = [(measured[part], stored[part]) for part in ("validation", "test") if part in stored]
    if "test" in stored.get("posthoc", {}):
        pairs.append((measured["posthoc"]["test"], stored["posthoc"]["test"]))
    same = all(now["confusion"] == then["confusion"] for now, then in pairs)
    print("equal to metrics.json" if same else "differs from metrics.json: another machine or library version?")
    return 0 if same else 1
