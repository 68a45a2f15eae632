"""Whether expected values hold, on worlds whose truth is known.

    python -m benchmarks.quality.worlds [--cells lowest,noise,met]
    [--worlds exact=200,linear=200,forest=200,default=100,network=40] [--learners exact,linear,...] [--classes 3,10]
    [--labels 5,15,50]

A world has K Gaussian classes with unit covariance in D dimensions. Their means lie on the first K axes, equally far
apart, and each of these coordinates is moved by a normal with deviation .3; further columns are noise:

    K = 3:  D = 8,  means 2.5 apart;      K = 10:  D = 16,  means 3.5 apart.

There are 5, 15 or 50 labels of every class and 2,000 unlabeled rows. Balance "same": all classes are alike among these,
as among the labels; "other": class k has a part ∝ 10^(-k / (K - 1)), a long tail of 10 : 1. The truth of a rule is
measured on 20,000 fresh rows, the same number of every class, counted by exact likelihoods instead of labels.

Cells:
- lowest: `max min(recall)`: expected lowest recall less the true one, and whether the 95 % interval holds;
- noise: features that say nothing (all means 0): how often that is said;
- met: `max mean(recall) s.t. recall[K-1] >= r` and the same with precision, r a level that can be reached: how often a
  bound that is said to be met truly is; exact posteriors and the linear learner.

Learners: exact (posteriors known, `csst.fit_rule`), linear, forest, default, network (`CSSTClassifier`). Every world is
a line of benchmarks/results/worlds.jsonl and is never measured again. Writes results/worlds.md (--report: only that).
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.lines import Line, Log
from benchmarks.quality.promises import MODULES, format_table, read_commit
from benchmarks.results_check import write_results

RESULTS = Path(__file__).parents[1] / "results"
KEYS = ("cell", "learner", "classes", "labels", "balance", "world")
LEARNERS = {"exact": 200, "linear": 200, "forest": 200, "default": 100, "network": 40}
KINDS = ("lowest", "noise", "met")
BALANCES = ("same", "other")
#: the distance of two means, and the number of columns
APART, COLUMNS = {3: 2.5, 10: 3.5}, {3: 8, 10: 16}
JITTER = 0.3
LABELS = (5, 15, 50)
UNLABELED, FRESH = 2000, 20_000
IMBALANCE = 10.0
#: bounds of the cells "met"
LEVELS = {3: 0.85, 10: 0.8}
#: what is asked for
MOST_BIAS, LEAST_COVERAGE, MOST_COVERAGE, NOISE_SAID, MET = 0.03, 0.90, 0.98, 0.90, 0.90
SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class World:
    """Means (K, D) of unit Gaussians, and the class fractions of unlabeled rows (K,)."""

    means: np.ndarray
    unlabeled_prior: np.ndarray

    @property
    def classes(self) -> int:
        return len(self.means)

    def draw(self, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row for every label, (N, D)."""
        return self.means[labels] + rng.normal(size=(len(labels), self.means.shape[1]))

    def likelihoods(self, x: np.ndarray) -> np.ndarray:
        """f_k(x) / sum_l f_l(x), the posterior where all classes are alike, (N, K)."""
        logs = x @ self.means.T - 0.5 * (self.means**2).sum(1)
        raw = np.exp(logs - logs.max(1, keepdims=True))
        return raw / raw.sum(1, keepdims=True)


def make_world(classes: int, balance: str, seed: int, is_noise: bool) -> World:
    rng = np.random.default_rng([seed, classes, BALANCES.index(balance), 1])
    means = np.zeros((classes, COLUMNS[classes]))
    means[:, :classes] = APART[classes] / 2**0.5 * np.eye(classes) + JITTER * rng.normal(size=(classes, classes))
    raw = np.ones(classes) if balance == "same" else IMBALANCE ** (-np.arange(classes) / (classes - 1))
    return World(np.zeros_like(means) if is_noise else means, raw / raw.sum())


@dataclass(frozen=True, eq=False)
class Rows:
    """Labeled, unlabeled and fresh rows of a world."""

    x: np.ndarray
    y: np.ndarray
    unlabeled: np.ndarray
    fresh: np.ndarray


def draw_rows(world: World, labels: int, balance: str, seed: int) -> Rows:
    rng = np.random.default_rng([seed, labels, BALANCES.index(balance), 2])
    y = rng.permutation(np.repeat(np.arange(world.classes), labels))
    hidden = rng.choice(world.classes, UNLABELED, p=world.unlabeled_prior)
    x, unlabeled = world.draw(y, rng), world.draw(hidden, rng)
    return Rows(x, y, unlabeled, world.draw(np.arange(FRESH) % world.classes, rng))


def measure_truth(world: World, fresh: np.ndarray, decisions: np.ndarray) -> np.ndarray:
    """R_kj of decisions on fresh rows, (K, K)."""
    weights = world.likelihoods(fresh)
    return (weights / weights.sum(0)).T @ np.eye(world.classes)[decisions]


# Fits: each gives, for a list of sentences, the fitted rule and its decisions on fresh rows.


def fit_exact(world: World, rows: Rows, sentences: list[str], seed: int) -> Iterator[tuple[Any, np.ndarray]]:
    from csst import fit_rule

    parts = [world.likelihoods(x) for x in (rows.x, rows.unlabeled, rows.fresh)]
    for sentence in sentences:
        fitted = fit_rule(parts[0], rows.y, sentence, parts[1], train_prior="uniform", seed=seed)
        yield fitted, np.asarray(fitted.rule.predict(parts[2]))


def fit_learner(learner: str, rows: Rows, sentences: list[str], seed: int) -> Iterator[tuple[Any, np.ndarray]]:
    """One fit; the rules of further sentences are fitted on its scores."""
    from csst import CSSTClassifier
    from csst.rules.fit import bind, fit_evidence

    settings = {"rule": "fit"} if learner == "network" else None
    name = "auto" if learner == "default" else learner
    # Fresh rows have the balance of the labels, whatever that of the unlabeled rows.
    model = CSSTClassifier(sentences[0], learner=name, deployment_prior="labels", settings=settings, random_state=seed)
    model.fit(rows.x, rows.y, X_unlabeled=rows.unlabeled)
    adjusted = model.fit_.full_details.adjusted
    assert adjusted is not None
    yield adjusted, model.predict(rows.fresh)
    if len(sentences) > 1:
        probs = model.fit_.probs(rows.fresh)
        prior = adjusted.estimate.confusion.prior.numpy()
        for sentence in sentences[1:]:
            fitted = fit_evidence(adjusted.evidence, bind(sentence, adjusted.evidence), prior, seed)
            yield fitted, np.asarray(fitted.rule.predict(probs))


def fit_sentences(cell: Line, world: World, rows: Rows, sentences: list[str]) -> Iterator[tuple[Any, np.ndarray]]:
    if cell["learner"] == "exact":
        return fit_exact(world, rows, sentences, cell["world"])
    return fit_learner(cell["learner"], rows, sentences, cell["world"])


def says_noise(fitted: Any) -> bool:
    """Whether a fitted rule says that its scores tell nothing about the classes, of which its evidence is the cause."""
    from csst.rules.fit import find_doubts

    doubts = set(find_doubts(fitted.evidence))
    assert doubts <= set(fitted.notes)
    return bool(doubts - {fitted.evidence.doubt})


def measure_cell(cell: Line, commit: str) -> Line:
    """What is expected in one world, and what is true."""
    world = make_world(cell["classes"], cell["balance"], cell["world"], cell["cell"] == "noise")
    rows = draw_rows(world, cell["labels"], cell["balance"], cell["world"])
    rare = cell["classes"] - 1
    level = LEVELS[cell["classes"]]
    bounds = [f"recall[{rare}] >= {level}", f"precision[{rare}] >= {level}"]
    sentences = ["max min(recall)"]
    if cell["cell"] == "met":
        sentences = [f"max mean(recall) s.t. {bound}" for bound in bounds]
    begin = time.process_time()
    outcomes = list(fit_sentences(cell, world, rows, sentences))
    about: Line = {"commit": commit, "seconds": round(time.process_time() - begin, 3)}
    if cell["cell"] == "noise":
        return about | {"said": says_noise(outcomes[0][0]), "expected": round(outcomes[0][0].value, 4)}
    truths = [measure_truth(world, rows.fresh, decisions) for _, decisions in outcomes]
    if cell["cell"] == "lowest":
        interval = outcomes[0][0].intervals["min_recall"]
        lowest = float(np.diag(truths[0]).min())
        return about | {
            "expected": round(interval["estimate"], 4),
            "low": round(interval["low"], 4),
            "high": round(interval["high"], 4),
            "truth": round(lowest, 4),
            "mean_bias": round(float(outcomes[0][0].estimate.confusion.recall.mean() - np.diag(truths[0]).mean()), 4),
            "noise": says_noise(outcomes[0][0]),
        }
    slacks = [float(truths[0][rare, rare]) - level, float(truths[1][rare, rare] / truths[1][:, rare].sum()) - level]
    return about | {
        "met": [bool(fitted.is_met) for fitted, _ in outcomes],
        "slack": [round(slack, 4) for slack in slacks],
    }


def list_cells(options: argparse.Namespace) -> Iterator[Line]:
    """Worlds of all cells, a tenth of them at a time, so that a run that was stopped says something about each."""
    classes = [int(word) for word in options.classes.split(",")]
    labels = [int(word) for word in options.labels.split(",")]
    numbers = dict(LEARNERS)
    for word in filter(None, options.worlds.split(",")):
        name, number = word.split("=")
        numbers[name] = int(number)
    for part in range(10):
        for kind, learner in itertools.product(options.cells.split(","), options.learners.split(",")):
            if (kind == "met" and learner not in ("exact", "linear")) or (kind == "noise" and learner == "exact"):
                continue
            balances = BALANCES[:1] if kind == "noise" else BALANCES
            for k, n, balance in itertools.product(classes, labels, balances):
                for world in range(part * numbers[learner] // 10, (part + 1) * numbers[learner] // 10):
                    yield {
                        "cell": kind,
                        "learner": learner,
                        "classes": k,
                        "labels": n,
                        "balance": balance,
                        "world": world,
                    }


# The report.


def test_outside(hits: int, total: int, low: float, high: float) -> float:
    """The p-value of a share that is thought to lie within low .. high: exact binomial, against the nearer end."""
    below = float(binom.cdf(hits, total, low))
    above = float(binom.sf(hits - 1, total, high)) if high < 1 else 1.0
    return min(1.0, 2 * min(below, above)) if high < 1 else below


def reject_by_holm(p_values: list[float], level: float = SIGNIFICANT) -> list[bool]:
    """Which of several tests are significant together (Holm, 1979)."""
    order = np.argsort(p_values)
    rejected = [False] * len(p_values)
    for rank, place in enumerate(order):
        if p_values[place] > level / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


def group_lines(lines: Iterable[Line], kind: str) -> dict[tuple, list[Line]]:
    groups: dict[tuple, list[Line]] = {}
    for line in lines:
        if line["cell"] == kind:
            groups.setdefault(tuple(line[key] for key in KEYS[1:-1]), []).append(line)
    return dict(sorted(groups.items(), key=lambda item: (list(LEARNERS).index(item[0][0]), item[0][1:])))


def format_mean(values: Iterable[float]) -> str:
    values = list(values)
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):+.3f} ± {error:.3f}"


def tabulate_lowest(lines: list[Line]) -> list[str]:
    groups = group_lines(lines, "lowest")
    if not groups:
        return []
    counts = [(sum(x["low"] <= x["truth"] <= x["high"] for x in found), len(found)) for found in groups.values()]
    p_values = [test_outside(hits, total, LEAST_COVERAGE, MOST_COVERAGE) for hits, total in counts]
    rejected = reject_by_holm(p_values)
    rows, broken = [], 0
    for (key, found), (hits, total), p_value, is_outside in zip(
        groups.items(), counts, p_values, rejected, strict=True
    ):
        biases = [x["expected"] - x["truth"] for x in found]
        is_biased = abs(np.mean(biases)) > MOST_BIAS
        broken += is_outside or is_biased
        shown = f"**{format_mean(biases)}**" if is_biased else format_mean(biases)
        coverage = f"{hits / total:.1%}"
        width = np.mean([x["high"] - x["low"] for x in found])
        seconds = np.median([x["seconds"] for x in found])
        truth = np.mean([x["truth"] for x in found])
        row = [*map(str, key), str(total), f"{truth:.3f}", shown, f"**{coverage}**" if is_outside else coverage]
        rows.append([*row, f"{p_value:.3f}", f"{width:.2f}", f"{seconds:.2f}"])
    hits = sum(hits for hits, _ in counts)
    total = sum(total for _, total in counts)
    shares = []
    for learner in LEARNERS:
        parts = [count for key, count in zip(groups, counts, strict=True) if key[0] == learner]
        if parts:
            learner_total = sum(part[1] for part in parts)
            shares.append(f"{learner} {sum(part[0] for part in parts) / learner_total:.1%} of {learner_total}")
    head = ("learner", "K", "labels", "balance", "worlds", "true lowest recall", "expected − true", "interval holds")
    return [
        "## The lowest recall",
        f"Intervals hold in {hits / total:.1%} of {total:,} worlds of {len(groups)} cells (to be 93 to 97 %): "
        f"{', '.join(shares)}. "
        f"{broken} cells have a bias beyond {MOST_BIAS} or a coverage significantly outside {LEAST_COVERAGE:.0%} to "
        f"{MOST_COVERAGE:.0%} (exact binomial, Holm over cells at {SIGNIFICANT}; p as it is before Holm): in bold.",
        format_table((*head, "p", "width", "CPU seconds"), rows),
    ]


def tabulate_noise(lines: list[Line]) -> list[str]:
    groups = group_lines(lines, "noise")
    if not groups:
        return []
    rows = []
    p_values = [test_outside(sum(x["said"] for x in v), len(v), NOISE_SAID, 1.0) for v in groups.values()]
    for (key, found), is_low in zip(groups.items(), reject_by_holm(p_values), strict=True):
        share = f"{np.mean([x['said'] for x in found]):.1%}"
        excess = format_mean(x["expected"] - 1 / key[1] for x in found)
        rows.append([*map(str, key), str(len(found)), f"**{share}**" if is_low else share, excess])
    said = sum(x["said"] for found in groups.values() for x in found)
    total = sum(map(len, groups.values()))
    head = ("learner", "K", "labels", "balance", "worlds", "called noise", "expected lowest recall − 1/K")
    text = f"Features without information are called that in {said / total:.1%} of {total:,} worlds (≥ 90 % wanted)."
    return ["## Noise", text, format_table(head, rows)]


def tabulate_met(lines: list[Line]) -> list[str]:
    groups = group_lines(lines, "met")
    if not groups:
        return []
    rows, p_values, shares = [], [], []
    for key, found in groups.items():
        for place, metric in enumerate(("recall", "precision")):
            said = [x["slack"][place] for x in found if x["met"][place]]
            true = sum(slack >= 0 for slack in said)
            p_values.append(test_outside(true, len(said), MET, 1.0) if said else 1.0)
            shares.append(f"{true} of {len(said)} ({true / len(said):.0%})" if said else "–")
            rows.append([*map(str, key), metric, str(len(found)), f"{np.mean([x['met'][place] for x in found]):.0%}"])
    marks = reject_by_holm(p_values)
    shown = [f"**{share}**" if is_low else share for share, is_low in zip(shares, marks, strict=True)]
    head = ("learner", "K", "labels", "balance", "bound on", "worlds", "said to be met", "truly met, of these")
    levels = ", ".join(f"{level} at K = {k}" for k, level in LEVELS.items())
    return [
        "## Bounds said to be met",
        f"`max mean(recall) s.t. recall[K-1] >= r` and the same with precision, r = {levels}. Significantly below "
        f"{MET:.0%} (exact binomial, Holm): in bold.",
        format_table(head, [[*row, share] for row, share in zip(rows, shown, strict=True)]),
    ]


def describe_missing(lines: list[Line]) -> str:
    """Which learners and numbers of labels have not been run, which cells have few worlds, and on what code."""
    parts = []
    for key, planned in (("cell", KINDS), ("learner", tuple(LEARNERS)), ("labels", LABELS)):
        missing = [str(value) for value in planned if value not in {line[key] for line in lines}]
        parts += [f"{key} {', '.join(missing)}"] if missing else []
    sizes = [len(found) for kind in KINDS for found in group_lines(lines, kind).values()]
    plan = ", ".join(f"{number} for {learner}" for learner, number in LEARNERS.items())
    fewest = f"Cells have {min(sizes)} to {max(sizes)} worlds (planned: {plan})." if sizes else "Nothing has been run."
    commits = Counter((line["commit"], f"{line['learner']} {line['cell']}") for line in lines)
    sources = ", ".join(f"{name} {number} on `{commit}`" for (commit, name), number in sorted(commits.items()))
    return f"{fewest} Not run: {'; '.join(parts) or 'nothing'}. Worlds measured: {sources}."


def write_report(lines: list[Line]) -> str:
    parts = [
        "# Worlds with a known truth",
        "Gaussian worlds, defined in `benchmarks/quality/worlds.py`, which writes this page. Truth is measured on "
        f"{FRESH:,} fresh rows. {describe_missing(lines)}",
        *tabulate_lowest(lines),
        *tabulate_noise(lines),
        *tabulate_met(lines),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=",".join(KINDS))
    parser.add_argument("--learners", default=",".join(LEARNERS))
    parser.add_argument("--worlds", default="", help="worlds of a cell, such as exact=200,network=40")
    parser.add_argument("--classes", default="3,10")
    parser.add_argument("--labels", default=",".join(map(str, LABELS)))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    log = Log(options.results / "worlds.jsonl", KEYS)
    lines = list(log.lines.values())
    if not options.report:
        commit = read_commit()
        lines = log.measure(list_cells(options), lambda cell: measure_cell(cell, commit))
    write_results(options.results / "worlds.md", write_report(lines), MODULES, not options.report)


if __name__ == "__main__":
    main()
