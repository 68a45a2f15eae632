"""csst predict RUN INPUT -o out.csv: labels and probabilities for new examples."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from csst.data.arrays import read_npz
from csst.data.task import as_inputs
from csst.errors import InputError
from csst.evaluation import logits
from csst.recipes import from_dict, trained
from csst.runs import Run


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst predict", description="Label new examples with a finished run's model.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument("input", help="an .npz file with x, or an .npy file: one row per example")
    parser.add_argument("-o", "--output", required=True, help="the CSV file to write")
    given = parser.parse_args(words)
    recipe = from_dict(Run.open(given.run).recipe())
    task, model, trainer = trained(given.run, recipe)
    inputs = as_inputs(read(given.input), "x")
    if tuple(inputs.shape[1:]) != task.input_shape:
        raise InputError(
            f"the model takes inputs of shape {task.input_shape}; {given.input} has {tuple(inputs.shape[1:])}"
        )
    probs = torch.softmax(logits(model, inputs, recipe.training.evaluation_batch, trainer.engine.device), 1)
    names = [plain(name) for name in task.class_names]
    with open(given.output, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["row", "label", *(f"p({name})" for name in names)])
        for row, (best, each) in enumerate(zip(probs.argmax(1).tolist(), probs.tolist(), strict=True)):
            out.writerow([row, names[best], *(f"{p:.6f}" for p in each)])
    print(f"{len(inputs)} predictions in {given.output}")
    return 0


def read(path: str) -> np.ndarray:
    if path.endswith(".npy"):
        if not Path(path).is_file():
            raise InputError(f"there is no file {path!r}")
        try:
            return np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"{path} cannot be read as a plain array: {error}") from None
    return read_npz(path, ("x", "y"), needed=("x",))["x"]


def plain(name: str) -> str:
    """A class name that a spreadsheet will not take for a formula."""
    return "'" + name if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name
