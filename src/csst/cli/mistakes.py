"""Keep the mistakes of a finished run that are worth a look, for its page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from csst.data.embeddings import Embedder, embed_parts
from csst.data.examples import Selection, as_rows
from csst.data.row_hashes import order_by_content
from csst.data.task import Labeled
from csst.fitting.metrics import read_outputs
from csst.models.encoders import encoder
from csst.recipes import Recipe
from csst.report.mistakes import MistakenCell, find_mistakes
from csst.report.run_view import MISTAKES
from csst.rules import rule_from_dict
from csst.runs.folder import Run, read_recipe


def write_mistakes(folder: str) -> None:
    """Write mistakes.json into a run's folder; nothing if its examples cannot be told from its outputs."""
    run = Run(folder)
    cells = find_run_mistakes(run)
    if cells is not None:
        content = json.dumps([asdict(cell) for cell in cells], ensure_ascii=False)
        run.write(MISTAKES, content.encode("utf-8", "replace"))


def find_run_mistakes(run: Run) -> list[MistakenCell] | None:
    """Return the mistakes of the deployed model on test rows or, without any, on labels that it was judged by.

    None if outputs were not stored, or their rows differ from the data (some labels certify, or it has changed).
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
    task = recipe.data.load(recipe.seed, recipe.holds_out)
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
        model = encoder(recipe.encoder, task.kind, recipe.embedding.max_length)
        encoded_task = embed_parts(task, Embedder(model, recipe.embedding))
    seen_part = encoded_task.labeled if encoded_task.validation is None else encoded_task.validation
    labels = judged_part.labels.numpy()
    order = np.asarray(order_by_content(as_rows(seen_part.inputs), labels))
    return Selection(judged_part.inputs, torch.from_numpy(order)), labels[order]
