"""How large must a margin be? python -m benchmarks.quality.margins [--worlds 96] [--margins 1.5,1.25,1.0]

Worlds with a rare class on which the two numbers are chosen that make a bound "met": by how many standard errors the
search is to meet it (MARGIN of csst.rules.candidates), and by how many it is to be expected to be met (SAFE of
csst.rules.judging). Real sets are then measured once with these numbers (benchmarks/quality/promises.py).

World w has 2 classes, every fifth 4; the last class is a part of .02, .05, .1 or .3 of all rows. Classes are Gaussians
or Student's t with 4 degrees of freedom in 8 dimensions, of one or two clusters, 2 to 3.5 apart; 0, a quarter or half
of the rare class is buried in the most frequent one, where no learner finds it: labels of it are few, and the model
that has not seen it is sure of itself. 50, 100, 200 or 500 labels at natural frequency, at least three of every class,
and 2,000 unlabeled rows. The five sentences of promises.py, with levels drawn from .4, .6, .8 (precision) and .5, .7,
.8 (recall). Learners: linear in all worlds; in every sixth exact posteriors, in another sixth these with a temperature
of 3 and biases; in every twelfth the default. Truth: 20,000 fresh rows with exact posteriors.

Every world and learner is a line of benchmarks/results/margins.jsonl. Writes results/margins.md (--report: only that).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from benchmarks.lines import Line, Log
from benchmarks.quality.promises import Plan, Sentence, TestRows, count_share, format_table, list_sentences, read_commit
from benchmarks.results_check import write_results
from csst.rules.candidates import MARGIN
from csst.rules.judging import SAFE

RESULTS = Path(__file__).parents[1] / "results"
KEYS = ("world", "learner")
MODULES = ("learners", "rules", "estimators", "estimation")
PARTS = (0.02, 0.05, 0.1, 0.3)
LABELS = (50, 100, 200, 500)
BURIED = (0.0, 0.25, 0.5)
COLUMNS, FREEDOM, LEAST_LABELS, UNLABELED, FRESH, ORACLE_ROWS = 8, 4, 3, 2000, 20_000, 3000
#: where the buried part of the rare class lies, from the mean of the most frequent class
DEPTH = 0.7
#: the bound that is on the most frequent class
COMMON = "recall['0']"
#: worlds of other seeds than those of worlds.py
FIRST_SEED = 4000
#: a miss that nobody should see, and thresholds that are looked at
FAR = 0.2
THRESHOLDS = (0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True, eq=False)
class World:
    """Clusters of every class, (K, C, D); the class balance (K,); the buried part; whether tails are heavy; levels."""

    means: np.ndarray
    prior: np.ndarray
    buried: float
    has_tails: bool
    labels: int
    plan: Plan

    @property
    def classes(self) -> int:
        return len(self.prior)

    @property
    def grave(self) -> np.ndarray:
        """The middle of the buried part, (D,)."""
        return self.means[0].mean(0) + DEPTH * np.eye(COLUMNS)[-1]

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row for every label, (N, D)."""
        middle = self.means[labels, rng.integers(self.means.shape[1], size=len(labels))]
        middle[(labels == self.classes - 1) & (rng.random(len(labels)) < self.buried)] = self.grave
        noise = rng.normal(size=middle.shape)
        if self.has_tails:
            noise /= np.sqrt(rng.chisquare(FREEDOM, size=(len(labels), 1)) / FREEDOM)
        return middle + noise

    def log_densities(self, x: np.ndarray) -> np.ndarray:
        """log f_k(x) but for a constant, (N, K)."""

        def at(middle: np.ndarray) -> np.ndarray:
            squares = ((x - middle) ** 2).sum(1)
            return -(FREEDOM + COLUMNS) / 2 * np.log1p(squares / FREEDOM) if self.has_tails else -squares / 2

        logs = np.stack([logsumexp([at(m) for m in clusters], axis=0) for clusters in self.means], axis=1)
        logs -= np.log(self.means.shape[1])
        if self.buried:
            logs[:, -1] = np.logaddexp(logs[:, -1] + np.log(1 - self.buried), at(self.grave) + np.log(self.buried))
        return logs


def make_world(number: int) -> World:
    rng = np.random.default_rng([FIRST_SEED + number, 1])
    rare = PARTS[number % 4]
    rest = [0.6, 0.3, 0.1] if number % 5 == 4 else [1.0]
    classes = len(rest) + 1
    clusters = int(rng.integers(1, 3))
    means = rng.uniform(2, 3.5) / 2**0.5 * np.eye(classes, COLUMNS)[:, None, :]
    means = means + rng.normal(size=(classes, clusters, COLUMNS)) * (0.3 if clusters == 1 else 0.8)
    return World(
        means,
        np.append(np.array(rest) * (1 - rare), rare),
        float(rng.choice(BURIED)),
        bool(rng.integers(2)),
        LABELS[number // 4 % 4],
        Plan(str(classes - 1), "0", float(rng.choice([0.4, 0.6, 0.8])), float(rng.choice([0.5, 0.7, 0.8]))),
    )


def fit_scores(learner: str, world: World, rows: list[np.ndarray], labels: np.ndarray, seed: int) -> tuple[Any, Any]:
    """The evidence of a model on labeled and unlabeled rows, and its probabilities (N, K) of fresh rows."""
    import torch

    from csst import CSSTClassifier
    from csst.estimation.held_out_scores import HeldOutScores

    if learner in ("exact", "distorted"):
        bias = np.random.default_rng(seed).normal(size=world.classes) if learner == "distorted" else 0.0
        steepness = 3.0 if learner == "distorted" else 1.0
        scores = [steepness * world.log_densities(x) + bias + np.log(world.prior) for x in rows]
        probs = [softmax(score, axis=1) for score in scores]
        evidence = HeldOutScores.from_probs(probs[0], labels, probs[1], train_prior=world.prior, seed=seed)
        return evidence, torch.from_numpy(probs[2])
    name = "auto" if learner == "default" else learner
    prior = world.prior.tolist()
    model = CSSTClassifier("max min(recall)", learner=name, deployment_prior=prior, random_state=seed)
    model.fit(rows[0], labels, X_unlabeled=rows[1])
    adjusted = model.fit_.full_details.adjusted
    assert adjusted is not None
    return adjusted.evidence, model.fit_.probs(rows[2])


def measure_world(cell: Line, margins: list[float], commit: str) -> Line:
    """For every sentence and margin: what is expected, its standard error, and what is true."""
    from csst.rules.fit import bind, fit_evidence

    begin = time.process_time()
    number = cell["world"]
    world = make_world(number)
    rng = np.random.default_rng([FIRST_SEED + number, 2])
    labels = rng.choice(world.classes, world.labels, p=world.prior)
    missing = LEAST_LABELS - np.bincount(labels, minlength=world.classes)
    labels = rng.permutation(np.append(labels, np.repeat(np.arange(world.classes), missing.clip(0))))
    hidden = [rng.choice(world.classes, size, p=world.prior) for size in (UNLABELED, FRESH)]
    rows = [world.draw(classes, rng) for classes in (labels, *hidden)]
    truth = softmax(world.log_densities(rows[2]) + np.log(world.prior), axis=1)
    names = [str(k) for k in range(world.classes)]
    test = TestRows(truth, names)
    few = TestRows(truth[:ORACLE_ROWS], names)
    evidence, probs = fit_scores(cell["learner"], world, rows, labels, number)
    measured = []
    for sentence in list_sentences(world.plan):
        oracle = few.find_best(sentence, probs.numpy()[:ORACLE_ROWS])
        for margin in margins:
            fitted = fit_evidence(evidence, bind(sentence.text, evidence, names), world.prior, None, number, margin)
            measured.append(measure_rule(sentence, fitted, test, probs) | oracle | {"margin": margin})
    about = {"commit": commit, "labels": len(labels), "rare": int((labels == world.classes - 1).sum())}
    return about | {"rules": measured, "seconds": round(time.process_time() - begin, 2)}


def measure_rule(sentence: Sentence, fitted: Any, test: TestRows, probs: Any) -> Line:
    found = test.measure(sentence, np.asarray(fitted.rule.predict(probs)))
    return {
        "bound": sentence.bounded.text,
        "expected": round(fitted.bounds[0].slack, 4),
        "error": round(fitted.bounds[0].error, 4),
        "slack": round(found["slack"], 4),
        "value": round(found["value"], 4),
    }


def list_cells(worlds: int) -> Iterator[Line]:
    for number in range(worlds):
        yield {"world": number, "learner": "linear"}
        others = {0: "exact", 1: "distorted"}
        if number % 6 in others:
            yield {"world": number, "learner": others[number % 6]}
        if number % 12 == 7:
            yield {"world": number, "learner": "default"}


# The report.


def summarize(rules: list[Line], threshold: float) -> list[str]:
    """What comes of calling bounds met that are expected to be so by this many standard errors."""
    said = [rule for rule in rules if rule["expected"] >= threshold * rule["error"]]
    reachable = [rule for rule in rules if rule["reachable"]]
    told = [rule for rule in reachable if rule["expected"] >= threshold * rule["error"]]
    good = [rule for rule in told if rule["oracle"] and rule["value"] >= 0.9 * rule["oracle"]]
    return [
        count_share(sum(rule["slack"] >= 0 for rule in said), len(said)),
        count_share(sum(rule["slack"] < -FAR for rule in said), len(said)),
        count_share(len(told), len(reachable)),
        count_share(len(good), len(told)),
    ]


def write_report(lines: list[Line]) -> str:
    head = (
        "truly met, of those said",
        f"missed by more than {FAR}",
        "said, of those reachable",
        "at ≥ .9 of the oracle",
    )
    margins = sorted({rule["margin"] for line in lines for rule in line["rules"]}, reverse=True)
    parts = [
        "# The margin of bounds",
        "Worlds with a rare class, defined in `benchmarks/quality/margins.py`, which writes this page: "
        f"{len(lines)} fits, "
        "five sentences each. *Margin*: by how many standard errors the search is to meet a bound; *met from*: by how "
        f"many it is to be expected to be met. Chosen are {MARGIN:g} and {SAFE:g}: the smallest margin at which every "
        "kind of bound that is said to be met is so in nine cases of ten. Reachable: the best rule on the same "
        "probabilities meets the bound by .05.",
    ]
    rules = [rule for line in lines for rule in line["rules"]]
    kinds = {
        "All bounds": rules,
        "On the precision of the rare class": [rule for rule in rules if rule["bound"].startswith("precision")],
        "On its recall": [rule for rule in rules if rule["bound"].startswith("recall") and rule["bound"] != COMMON],
        "On the recall of the most frequent class": [rule for rule in rules if rule["bound"] == COMMON],
    }
    for name, members in kinds.items():
        rows = []
        for margin, threshold in itertools.product(margins, THRESHOLDS):
            at_margin = [rule for rule in members if rule["margin"] == margin]
            rows.append([f"{margin:g}", f"{threshold:g}", *summarize(at_margin, threshold)])
        parts += [f"## {name}", format_table(("margin", "met from", *head), rows)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=96)
    parser.add_argument("--margins", default="1.5,1.25,1.0")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    log = Log(options.results / "margins.jsonl", KEYS)
    lines = list(log.lines.values())
    if not options.report:
        commit = read_commit()
        margins = [float(word) for word in options.margins.split(",")]
        lines = log.measure(list_cells(options.worlds), lambda cell: measure_world(cell, margins, commit))
    write_results(options.results / "margins.md", write_report(lines), MODULES, not options.report)


if __name__ == "__main__":
    main()
