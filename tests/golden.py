"""Golden numbers: what small runs give to the last digit, to see that a change of the code moves none of them.

    python tests/golden.py --write golden.json       before the change
    python tests/golden.py --compare golden.json     after it: lists every number that differs

Takes about three minutes of one core. Numbers depend on the machine and on the versions of libraries, so a file is only
compared where it was written. Time, checksums and messages are left out.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression

from csst import CSSTClassifier
from csst.cli import main

#: entries of metrics.json that are not results of the fit
LEFT_OUT = ("seconds", "checksum", "checksums", "warnings", "facts", "recipe", "input_shape", "is_embedded")
SHORT = ["--training.steps", "40"]
WINE = ["train", "array", "--data.path", "wine.npz"]
TEXT = ["train", "text", "--data.path", "texts.csv"]
FOLDER = ["train", "folder", "--data.path", "images", "--data.size", "8", "--data.labeled", "12"]
FOLDER += ["--data.unlabeled", "15"]
DIGITS = ["train", "digits", "--data.test", "20", "--data.validation", "12"]
MLP = ["--model.name", "mlp", "--model.hidden", "16"]
GRADIENT = ["--dual.update", "gradient", "--dual.rates", "validation"]
TOY = ["toy", "--data.test", "200", "--data.validation", "60", *SHORT]
SURE = "max mean(recall) s.t. recall[0] >= 0.5 with confidence 0.8"

#: command lines by name
COMMANDS: dict[str, list[str]] = {
    "digits": [*DIGITS, *SHORT],
    "digits rule": [*DIGITS, *SHORT, *MLP, *GRADIENT, "--rule", "fit"],
    "digits folds": [*DIGITS, *SHORT, *MLP, *GRADIENT, "--folds", "2"],
    "digits crest": [*DIGITS, *SHORT, *MLP, *GRADIENT, "--method", "crest", "--seed", "1"],
    "toy": ["train", *TOY, "--rule", "fit"],
    "toy folds": ["train", *TOY, "--folds", "2", "--rule", "fit", "--deployment_prior", "unlabeled"],
    "toy promise": ["train", *TOY, "--objective", SURE],
    "toy linear": ["train", *TOY[:3], "--learner", "linear"],
    "array": [*WINE, "--seed", "1"],
    "array validation": ["train", "array", "--data.path", "wine_parts.npz", "--learner", "linear"],
    "array csv": ["train", "array", "--data.path", "wine.csv", "--learner", "kernel", "--deployment_prior", "uniform"],
    "array promise": [*WINE, "--objective", SURE, "--learner", "linear"],
    "array network": [*WINE, "--learner", "network", *SHORT],
    "array network folds": [*WINE, "--learner", "network", "--folds", "2", "--rule", "fit", *SHORT],
    "array network promise": [*WINE, "--learner", "network", "--objective", SURE, *SHORT],
    "text": [*TEXT, "--data.test_path", "more.csv", "--learner", "linear"],
    "text network": [*TEXT, "--learner", "network", "--rule", "fit", *SHORT],
    "folder": [*FOLDER, "--model.name", "wrn-10-1", *SHORT],
    "folder linear": [*FOLDER, "--learner", "linear"],
}
COMPARISON = ["compare", *TOY, "--methods", "erm,csst,logistic-regression,weighted-forest,auto,linear,forest"]
COMPARISON += ["--seeds", "2", "--jobs", "1", "--rules", "fit", "--out", "compared"]


def write_files() -> None:
    """Write the data of the command lines into the present folder: wine, sentences about two things, and digits."""
    rng = np.random.default_rng(0)
    x, y = load_wine(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = x[order].astype(np.float32), y[order]
    labels = np.where(np.arange(len(y)) < 60, y, -1)[:140]
    np.savez("wine.npz", x=x[:140], y=labels, x_test=x[140:], y_test=y[140:])
    held = {"x_validation": x[100:140], "y_validation": y[100:140], "x_test": x[140:], "y_test": y[140:]}
    np.savez("wine_parts.npz", x=x[:100], y=labels[:100], **held)
    frame = pd.DataFrame(x[:140], columns=[f"column {place}" for place in range(x.shape[1])])
    frame.assign(label=["" if label < 0 else f"wine {label}" for label in labels]).to_csv("wine.csv", index=False)
    words = {"good": ["fine", "warm", "kind", "bright"], "bad": ["cold", "rude", "dark", "slow"]}
    shared = ["the", "a", "room", "staff", "food", "was", "very", "and"]
    for name, count in (("texts.csv", 120), ("more.csv", 40)):
        with open(name, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for row in range(count):
                label = "good" if rng.random() < 0.7 else "bad"
                text = " ".join([*rng.choice(shared, 6), *rng.choice(words[label], 2), rng.choice(words["bad"])])
                writer.writerow([text, label if name == "more.csv" or row < 60 else ""])
    pictures, digits = load_digits(return_X_y=True)
    for place in np.flatnonzero(digits < 3)[:120]:
        folder = Path("images", str(digits[place]))
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.round(pictures[place].reshape(8, 8) * 255 / 16).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")


def run_command(words: list[str], folder: str) -> dict[str, Any]:
    """Return the results in metrics.json of `csst train`."""
    run_quietly([*words, "--out", folder])
    return read_results(Path(folder))


def run_quietly(words: list[str]) -> None:
    """Run a command line; show what it prints only if it fails."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = main(words)
    if code:
        raise SystemExit(f"csst {' '.join(words)}:\n{printed.getvalue()}")


def read_results(folder: Path) -> dict[str, Any]:
    """Return the results in a run's metrics.json."""
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {name: value for name, value in metrics.items() if name not in LEFT_OUT}


def run_comparison() -> dict[str, Any]:
    """Return the test numbers of every run of a comparison, and its table."""
    run_quietly(COMPARISON)
    rows = json.loads(Path("compared", "compare.json").read_text(encoding="utf-8"))["rows"]
    table = {f"{row['method']} {row['rule']}": {k: v for k, v in row.items() if "second" not in k} for row in rows}
    runs = {path.parent.name: read_results(path.parent) for path in sorted(Path("compared").glob("*/metrics.json"))}
    tests = {name: {key: run[key] for key in ("test", "split_hash", "labeled_counts")} for name, run in runs.items()}
    return {"table": table, "runs": tests}


def describe(model: CSSTClassifier, rows: Any) -> dict[str, Any]:
    """Return what a fitted estimator expects and predicts."""
    probs = model.predict_proba(rows)
    return {
        "intervals": model.intervals_,
        "estimate": model.fit_.expected.as_dict(),
        "probs": probs[:10].tolist(),
        "mean": probs.mean(0).tolist(),
        "predictions": [str(label) for label in model.predict(rows)],
        "scores": np.asarray(model.decision_function(rows))[:5].tolist(),
        "data": model.data_hash_,
    }


def fit_estimators() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the name of an estimator and a function that fits it."""
    x, truth = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(truth)) < 0.4, truth, -1)
    flowers, species = load_iris(return_X_y=True)
    frame = pd.DataFrame(flowers, columns=[*"abcd"])
    frame["size"] = np.where(flowers[:, 0] > 6, "large", "small")
    frame.loc[::17, "b"] = np.nan
    kinds = np.where(rng.random(len(species)) < 0.4, species, -1)
    counts = csr_matrix(np.floor(x))
    pictures, digits = load_digits(n_class=3, return_X_y=True)
    pictures = (pictures[:150] / 16).reshape(-1, 8, 8)
    marks = np.where(rng.random(150) < 0.5, digits[:150], -1)
    short = {"training": {"steps": 40}}
    texts = [f"{'warm bright' if label else 'cold dark'} room {number % 7}" for number, label in enumerate(truth == 0)]

    def fit(rows: Any, labels: Any, *words: Any, seed: int = 0, **options: Any) -> Callable[[], dict[str, Any]]:
        model = CSSTClassifier(*words, random_state=seed, **options)
        return lambda: describe(model.fit(rows, labels), rows)

    network: dict[str, Any] = {"learner": "network", "settings": short}
    ruled: dict[str, Any] = {"learner": "network", "settings": {**short, "rule": "fit"}}
    yield "auto", fit(x, y)
    yield "auto of another seed", fit(x, y, seed=1)
    yield "validation", fit(x, y, learner="linear", validation=0.3)
    yield "pair", fit(x, y, learner="linear", validation=(x[::4], truth[::4]))
    yield "several", fit(x, y, learner=["linear", "lda", LogisticRegression(max_iter=500)])
    yield "rounds", fit(x, y, learner="linear", settings={"rounds": 2})
    yield "unlabeled prior", fit(x, y, learner="forest", deployment_prior="unlabeled")
    yield "frame", fit(frame, kinds, "max mean(recall) s.t. precision['2'] >= 0.8", learner="linear")
    yield "sparse", fit(counts, y, learner=["linear", "kernel"])
    yield "sure", fit(x, y, SURE, learner="linear")
    yield "sure coverage", fit(x, y, "max mean(recall) s.t. coverage['1'] <= 0.6", confidence=0.8, learner="linear")
    yield "texts", fit(texts, np.where(y < 0, -1, truth == 0), learner="linear", encoder="words")
    yield "network", fit(x, y, **network)
    yield "network sparse", fit(counts, y, validation=0.3, **network)
    yield "network rule", fit(frame, kinds, validation=0.3, **ruled)
    yield "network sure", fit(x, y, SURE, **network)
    yield "images", fit(pictures, marks, validation=0.3, **ruled)


def note_time(name: str) -> None:
    """Print the CPU seconds so far."""
    print(f"{time.process_time():5.0f} s  {name}", file=sys.stderr, flush=True)


def collect() -> dict[str, Any]:
    """Run everything in an empty folder."""
    results: dict[str, Any] = {}
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        os.environ["CSST_CACHE"] = place
        try:
            write_files()
            for name, words in COMMANDS.items():
                results[name] = run_command(words, name.replace(" ", "-"))
                note_time(name)
            results["compare"] = run_comparison()
            note_time("compare")
            for name, fit in fit_estimators():
                results[f"CSSTClassifier {name}"] = fit()
                note_time(name)
        finally:
            os.chdir(home)
    return results


def flatten(value: Any, place: str = "") -> dict[str, Any]:
    """Return every number and word by its place, such as 'digits 0/test/recall/3'."""
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)  # type: ignore[assignment]
    else:
        return {place: value}
    leaves: dict[str, Any] = {}
    for key, entry in entries:
        leaves |= flatten(entry, f"{place}/{key}" if place else str(key))
    return leaves


def list_differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for every entry that changed or is missing; entries that are new are not listed."""
    lines = []
    for place, value in before.items():
        if place not in after:
            lines.append(f"{place}: {value!r} is missing")
        elif value != after[place] and not (value != value and after[place] != after[place]):
            lines.append(f"{place}: {value!r} → {after[place]!r}")
    return lines


def run(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", metavar="FILE")
    action.add_argument("--compare", metavar="FILE")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    results = json.loads(json.dumps(collect()))
    if args.write:
        Path(args.write).write_text(json.dumps(results), encoding="utf-8")
        print(f"{len(flatten(results)):,} entries in {args.write}")
        return 0
    before = flatten(json.loads(Path(args.compare).read_text(encoding="utf-8")))
    lines = list_differences(before, flatten(results))
    print("\n".join([*lines[:60], f"{len(lines)} of {len(before):,} entries differ"]))
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(run())
