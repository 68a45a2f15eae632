"""csst predict RUN INPUT -o out.csv: labels and probabilities for new examples."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence

import torch

from csst.errors import InputError
from csst.recipes import from_dict
from csst.report.tables import plain
from csst.runs import restored
from csst.runs.folder import Run


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("csst predict", description="Label new examples with a finished run's model.")
    parser.add_argument("run", help="the run's folder")
    parser.add_argument(
        "input",
        help="an .npz file with x or an .npy file, one row per example; for texts a .csv, .tsv, .jsonl or .parquet "
        "file; for images also a folder",
    )
    parser.add_argument("-o", "--output", required=True, help="the CSV file to write")
    parser.add_argument("--column", default="", help="the column of the texts; default the one of the training data")
    given = parser.parse_args(words)
    classifier = restored(given.run, from_dict(Run.open(given.run).recipe()))
    inputs, called = classifier.read(given.input, given.column)
    probs = torch.softmax(classifier.logits(inputs).double(), 1)
    labels, shown = classifier.predict(probs).tolist(), classifier.posterior(probs).tolist()
    names = [plain(name) for name in classifier.class_names]
    try:
        with open(given.output, "w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["row", "label", *(f"p({name})" for name in names)])
            for name, best, each in zip(called, labels, shown, strict=True):
                out.writerow([plain(name), names[best], *(f"{p:.6f}" for p in each)])
    except OSError as error:
        raise InputError(f"{given.output} cannot be written: {error}") from None
    print(f"{len(called)} predictions in {given.output}")
    return 0
