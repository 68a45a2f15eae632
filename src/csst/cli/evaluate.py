"""csst evaluate RUN: measure a finished run's model again, from its files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from csst.cli.terminal import metrics_table, show
from csst.errors import InputError
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import read_recipe
from csst.learners.dealing import deal_certifying
from csst.recipes import Recipe


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst evaluate", description="Measure a finished run's model again.")
    parser.add_argument("run", help="the run's folder")
    folder = parser.parse_args(argv).run
    recipe = read_recipe(folder)
    model = FittedModel.load(folder, "selected")
    former_metrics = model.metrics
    examples = load_examples(recipe, former_metrics["split_hash"])
    metrics = dict(former_metrics)
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for part, labeled in examples.items():
        metrics[part] = model.measure(labeled)
        pairs.append((metrics[part], former_metrics[part]))
    if "test" in former_metrics.get("adjusted", {}):
        rule_metrics = FittedModel.load(folder).measure(examples["test"])
        metrics["adjusted"] = {**former_metrics["adjusted"], "test": rule_metrics}
        pairs.append((rule_metrics, former_metrics["adjusted"]["test"]))
    show(metrics_table([metrics], f"{metrics['method']} for '{metrics['objective']}'"))
    if not pairs:
        print("there are no examples to measure again: labels were judged out of fold, and there is no test set")
        return 0
    is_equal = all(new["confusion"] == former["confusion"] for new, former in pairs)
    print("equal to metrics.json" if is_equal else "differs from metrics.json: another machine or library version?")
    return 0 if is_equal else 1


def load_examples(recipe: Recipe, split_hash: str) -> dict[str, Any]:
    """Return the examples to measure again, by part; without validation examples that were predicted out of fold."""
    task = recipe.data.load(recipe.seed, recipe.holds_out)
    if recipe.uses_network:
        objective = recipe.bind_objective(task.class_names)
        task = deal_certifying(task, objective, recipe.deployment_prior, recipe.seed, recipe.certifying, True)
    if task.split_hash != split_hash:
        raise InputError(f"the data has changed since the run (split {split_hash}, now {task.split_hash})")
    parts = {"validation": None if recipe.judges_out_of_fold else task.validation, "test": task.test}
    return {part: labeled for part, labeled in parts.items() if labeled is not None}
