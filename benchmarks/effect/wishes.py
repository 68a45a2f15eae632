"""What people wish for beyond a metric: "ask a human" and costs.

    python -m benchmarks.effect.wishes --data-dir DIR [--draws 10] [--sets a;b]

Sets and draws are those of benchmarks/effect/natural.py (300 labels, or 100 where a set has fewer than 1,000 rows), one
fit of `CSSTClassifier("max min(recall)")` for all wishes of a draw.

Ask a human: `max min(recall) s.t. abstain <= 0.1`, and at most 20 % of every class (`abstain['a'] <= 0.2, ...`), beside
the same model with no answer where its largest probability is low: below what a tenth of the unlabeled rows have.
Recalls are of what is answered; a class of which nothing is answered has recall 0. What could be gained: rules of the
same two kinds on the same probabilities, fitted on the labels of the test rows ("oracle").

Costs: a mistake on class i costs (largest class fraction / its own) ** 0.5, times a number between 0.5 and 1.5 of every
pair of classes, drawn anew for every draw; `min cost` beside the argmax of expected cost on the same model's calibrated
probabilities, and on those of a random forest with scikit-learn's calibration (sigmoid, 3 folds).

Every measured cell is a line of benchmarks/results/wishes.jsonl with the commit and a hash of its rows, and is never
computed again. Writes results/wishes.md (--report: only this); --figures FOLDER adds human.svg and costs.svg.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effect.natural import (
    BUDGETS,
    CACHE,
    LARGE_SET,
    TABLES,
    Split,
    deal_rows,
    make_model,
    prepare,
    read_set,
    state,
)
from benchmarks.lines import Line, Log
from benchmarks.quality.promises import format_table, read_commit
from benchmarks.results_check import write_results

RESULTS = Path(__file__).parents[1] / "results"
MODULES = ("learners", "rules", "estimators", "estimation")
KEYS = ("set", "draw")
SETS = (*TABLES, "r8")
#: of all rows and of every class, left to a human
SHARE, CLASS_SHARE = 0.1, 0.2
SENTENCE = "max min(recall)"
#: targets: gain over always answering, lead over a cut on the largest probability, share of a class, error of the rate
LEAST_GAIN, LEAST_LEAD, MOST_OF_A_CLASS, RATE_ERROR = 0.08, 0.03, 0.3, 0.02


def ask(classes: int) -> str:
    """Return the sentence with a tenth of all rows and a fifth of every class left to a human."""
    limits = [f"abstain[{k}] <= {CLASS_SHARE}" for k in range(classes)]
    return f"{SENTENCE} s.t. {', '.join([f'abstain <= {SHARE}', *limits])}"


def draw_costs(split: Split, draw: int) -> np.ndarray:
    """Return what every prediction costs, (K, K): rows are true classes."""
    rng = np.random.default_rng(9000 + draw)
    fractions = np.bincount(split.y_test, minlength=split.classes) / len(split.y_test)
    worth = (fractions.max() / fractions) ** 0.5
    costs = worth[:, None] * rng.uniform(0.5, 1.5, (split.classes, split.classes))
    np.fill_diagonal(costs, 0.0)
    return costs.round(2)


def measure_answers(answers: np.ndarray, split: Split) -> Line:
    """Return the lowest recall of what is answered and the shares without an answer; -1 is no answer."""
    lowest = 1.0
    shares = []
    for k in range(split.classes):
        given = answers[split.y_test == k]
        is_answered = given >= 0
        shares.append(1 - is_answered.mean())
        lowest = min(lowest, (given[is_answered] == k).mean() if is_answered.any() else 0.0)
    return {
        "lowest": round(float(lowest), 4),
        "rate": round(float((answers < 0).mean()), 4),
        "largest": round(float(max(shares)), 4),
    }


def measure_cost(answers: np.ndarray, costs: np.ndarray, split: Split) -> float:
    """Return the mean cost of answers on the test rows."""
    return round(float(costs[split.y_test, answers].mean()), 5)


def find_oracle(probs: np.ndarray, split: Split, sentence: str) -> float:
    """Return the lowest recall of what is answered by a rule that was fitted on the labels of the test rows."""
    from csst.rules import fit_rule

    prior = np.bincount(split.y_test, minlength=split.classes) / len(split.y_test)
    rule = fit_rule(probs, split.y_test, sentence, train_prior=split.prior, deployment_prior=prior).rule
    answers = np.asarray(rule.predict(probs))
    return measure_answers(np.where(answers == split.classes, -1, answers), split)["lowest"]


def calibrate_forest(split: Split, seed: int) -> np.ndarray:
    """Return a random forest's calibrated probabilities of the test rows, (N, K)."""
    from sklearn.calibration import CalibratedClassifierCV

    labeled, _, test = prepare(split, scales=False)
    model = CalibratedClassifierCV(make_model("forest", seed), cv=3)
    return model.fit(labeled, split.y_labeled).predict_proba(test)


def measure_cell(split: Split, draw: int) -> Line:
    """Return what both wishes give in one draw."""
    from csst import CSSTClassifier

    costs = draw_costs(split, draw)
    begin = time.process_time()
    model: Any = CSSTClassifier(SENTENCE, costs=costs, random_state=draw)
    model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)
    asking = model.decide(ask(split.classes)).predict(split.x_test)
    cheap = model.decide("min cost").predict(split.x_test)
    seconds = time.process_time() - begin
    plain = model.predict(split.x_test)
    probs = model.predict_proba(split.x_test)
    raw = model.fit_.probs(model._rows(split.x_test, reset=False)).numpy()
    cut = np.quantile(model.predict_proba(split.x_unlabeled).max(1), SHARE)
    return {
        "abstention": {
            "always": measure_answers(plain, split),
            "csst": measure_answers(asking, split),
            "cut": measure_answers(np.where(probs.max(1) < cut, -1, plain), split),
            "oracle": {
                "always": find_oracle(raw, split, SENTENCE),
                "csst": find_oracle(raw, split, ask(split.classes)),
            },
        },
        "cost": {
            "csst": measure_cost(cheap, costs, split),
            "expected": measure_cost((probs @ costs).argmin(1), costs, split),
            "forest": measure_cost((calibrate_forest(split, draw) @ costs).argmin(1), costs, split),
        },
        "labels": len(split.y_labeled),
        "seconds": round(seconds, 2),
        "rows": split.digest,
        "commit": read_commit(),
    }


# The page.


def format_difference(differences: Iterable[float]) -> str:
    """Return a mean and its standard error."""
    values = np.array(list(differences))
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():+.3f} ± {error:.3f}"


def gather(lines: list[Line], *path: str) -> np.ndarray:
    """Return a measured number of every line."""
    values = []
    for line in lines:
        value: Any = line
        for key in path:
            value = value[key]
        values.append(value)
    return np.array(values)


def report_abstention(by_set: dict[str, list[Line]]) -> str:
    """Return the table of abstention and its targets."""
    rows = []
    gains = []
    leads = []
    oracle_gains = []
    for name, lines in by_set.items():
        always = gather(lines, "abstention", "always", "lowest")
        ours = gather(lines, "abstention", "csst", "lowest")
        cut = gather(lines, "abstention", "cut", "lowest")
        gains.append((ours - always).mean())
        leads.append((ours - cut).mean())
        oracle = [gather(lines, "abstention", "oracle", key) for key in ("csst", "always")]
        oracle_gains.append((oracle[0] - oracle[1]).mean())
        rows.append(
            [
                name,
                str(len(lines)),
                f"{always.mean():.3f}",
                f"{cut.mean():.3f}",
                f"**{ours.mean():.3f}**",
                format_difference(ours - always),
                format_difference(ours - cut),
                format_difference(oracle[0] - oracle[1]),
                f"{gather(lines, 'abstention', 'csst', 'rate').mean():.3f}",
                f"{gather(lines, 'abstention', 'csst', 'largest').mean():.2f}",
                f"{gather(lines, 'abstention', 'cut', 'largest').mean():.2f}",
            ]
        )
    everything = [line for lines in by_set.values() for line in lines]
    rates = gather(everything, "abstention", "csst", "rate")
    largest = gather(everything, "abstention", "csst", "largest")
    near = float((np.abs(rates - SHARE) <= RATE_ERROR).mean())
    few = float((largest <= MOST_OF_A_CLASS).mean())
    rate_errors = [abs(gather(lines, "abstention", "csst", "rate").mean() - SHARE) for lines in by_set.values()]
    near_sets = sum(error <= RATE_ERROR for error in rate_errors)
    head = (
        "set",
        "draws",
        "always answers",
        "cut",
        "csst",
        "csst − always",
        "csst − cut",
        "oracle's gain",
        "rate",
        "of a class",
        "cut's",
    )
    targets = [
        [
            f"gain over always answering ≥ {LEAST_GAIN}",
            f"{np.mean(gains):+.3f} (oracle {np.mean(oracle_gains):+.3f})",
            state(np.mean(gains) >= LEAST_GAIN),
        ],
        [f"lead over the cut ≥ {LEAST_LEAD}", f"{np.mean(leads):+.3f}", state(np.mean(leads) >= LEAST_LEAD)],
        [f"at most {MOST_OF_A_CLASS:.0%} of any class without an answer", f"{few:.0%} of draws", state(few == 1)],
        [
            f"rate on new rows within ± {RATE_ERROR}",
            f"{near:.0%} of draws, in the mean of {near_sets} of {len(by_set)} sets",
            state(near_sets == len(by_set)),
        ],
    ]
    return "\n\n".join([format_table(head, rows), format_table(("target", "measured", ""), targets)])


def report_costs(by_set: dict[str, list[Line]]) -> str:
    """Return the table of costs and its target."""
    rows = []
    differences = []
    for name, lines in by_set.items():
        ours = gather(lines, "cost", "csst")
        expected = gather(lines, "cost", "expected")
        forest = gather(lines, "cost", "forest")
        differences.append(ours - expected)
        means = [f"{values.mean():.3f}" for values in (ours, expected, forest)]
        rows.append([name, *means, format_difference(ours - expected), format_difference(ours - forest)])
    head = ("set", "`min cost`", "expected cost", "forest", "csst − expected cost", "csst − forest")
    means = np.array([values.mean() for values in differences])
    error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else float("nan")
    target = "not above the argmax of expected cost by more than two standard errors (over sets)"
    row = [target, f"{means.mean():+.4f} ± {error:.4f}", state(means.mean() <= 2 * error)]
    return "\n\n".join([format_table(head, rows), format_table(("target", "measured", ""), [row])])


def write_report(lines: Iterable[Line]) -> str:
    """Return the page."""
    measured = list(lines)
    by_set = {name: [line for line in measured if line["set"] == name] for name in SETS}
    by_set = {name: group for name, group in by_set.items() if group}
    hours = sum(line["seconds"] for line in measured) / 3600
    return "\n\n".join(
        [
            "# Wishes: a human to ask, and costs",
            f"{len(by_set)} sets with natural tails, {len(measured)} draws, {hours:.1f} CPU hours of fits; sets, draws "
            "and methods are described in `benchmarks/effect/wishes.py`.",
            "## Ask a human: `max min(recall) s.t. abstain <= 0.1`, and at most 20 % of every class",
            "Lowest recall of what is answered on test rows. *Cut*: the same model, no answer where its largest "
            "probability is low. *Oracle's gain*: what asking can gain at most on the same probabilities, by rules "
            "fitted on the test rows. *Of a class*: the largest share of a class without an answer, mean over draws.",
            report_abstention(by_set),
            "## Costs: `min cost`",
            "Mean cost of a test row; costs are drawn anew for every draw, mistakes on rare classes cost more. "
            "*Expected cost*: its argmin on the same model's calibrated probabilities; *forest*: on those of a "
            "calibrated random forest.",
            report_costs(by_set),
            "",
        ]
    )


def draw_rows(path: Path, by_set: dict[str, list[Line]], keys: dict[str, tuple[str, ...]], axis: str) -> None:
    """Draw one row per set with a point for every method: the mean over draws."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.3 * len(by_set)))
    heights = range(len(by_set), 0, -1)
    colors = dict(zip(keys, ("#1b4b82", "#9a9a9a", "#c98a2b"), strict=True))
    for label, path_of_key in keys.items():
        means = [gather(lines, *path_of_key).mean() for lines in by_set.values()]
        axes.plot(means, list(heights), "o", color=colors[label], label=label, ms=7)
    axes.set_yticks(list(heights), list(by_set))
    axes.set_xlabel(axis)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=3)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def draw_figures(folder: Path, lines: Iterable[Line]) -> None:
    """Draw what a human and costs are worth, set by set."""
    measured = list(lines)
    by_set = {name: [line for line in measured if line["set"] == name] for name in SETS}
    by_set = {name: group for name, group in by_set.items() if group}
    human = {
        "a tenth left to a human": ("abstention", "csst", "lowest"),
        "always answers": ("abstention", "always", "lowest"),
        "a tenth by largest probability": ("abstention", "cut", "lowest"),
    }
    draw_rows(folder / "human.svg", by_set, human, "lowest recall of what is answered")
    costs = {
        "min cost": ("cost", "csst"),
        "argmin of expected cost": ("cost", "expected"),
        "calibrated forest": ("cost", "forest"),
    }
    draw_rows(folder / "costs.svg", by_set, costs, "mean cost of a row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first-draw", type=int, default=0)
    parser.add_argument("--sets", default=";".join(SETS), help="names with ; between them")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figures", type=Path, help="folder of the pictures")
    parser.add_argument("--report", action="store_true", help="write the page from what is measured")
    options = parser.parse_args()
    log = Log(options.results / "wishes.jsonl", KEYS)
    if not options.report:
        if options.data_dir is None:
            raise SystemExit("the sets are read from a folder: give --data-dir")

        def measure(cell: Line) -> Line:
            source = read_set(cell["set"], options.data_dir, options.cache)
            budget = BUDGETS[len(source.labels) >= LARGE_SET]
            return measure_cell(deal_rows(source, budget, cell["draw"]), cell["draw"])

        draws = range(options.first_draw, options.first_draw + options.draws)
        log.measure(({"set": name, "draw": draw} for draw in draws for name in options.sets.split(";")), measure)
    page = write_report(log.lines.values())
    write_results(options.results / "wishes.md", page, MODULES, not options.report)
    if options.figures is not None:
        draw_figures(options.figures, log.lines.values())


if __name__ == "__main__":
    main()
