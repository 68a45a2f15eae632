"""What each part of the default gives: python -m benchmarks.effect.ablation --data-dir DIR [--seeds 3] [--start 0]

`CSSTClassifier()` without the unlabeled rows, without the decision rule (the most probable class under a uniform
balance), with the best variant of every learner instead of their mean, and without each learner, on four sets of
`versus.py` with the small budget. Learners are fitted once per split and put together in every way. Every measured line
is kept in benchmarks/results/ablation.jsonl. Writes results/ablation.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax

from benchmarks.effect.few_label_sets import Split
from benchmarks.effect.versus import compute_error, format_mean, format_table, load_split
from benchmarks.lines import Line, Log
from benchmarks.results_check import write_results
from csst.data.tabular.tables import statistics
from csst.estimation.calibration import Calibration
from csst.estimation.folds import deal_folds
from csst.estimation.held_out_scores import HeldOutScores
from csst.learners.catalog import Problem, default_members, make_variants
from csst.learners.portfolio import FOLDS, SPREAD_ROWS, LabeledRows, _average, _score, drop_worse
from csst.learners.protocol import Rows
from csst.rules import fit_evidence
from csst.rules.fit import bind

#: modules of csst that are measured
MEASURED = ("learners", "rules", "estimation", "estimators/classifier.py")

SETS, OBJECTIVE = ("digits", "satimage", "segment", "cifar10_features"), "max min(recall)"
RESULTS = Path(__file__).parents[1] / "results"


def measure(split: Split, seed: int) -> dict[str, float]:
    """The lowest recall on test rows of every way to leave something out."""
    rows = [part.astype(np.float32) for part in (split.x_labeled, split.x_unlabeled, split.x_test)]
    labels, mean_std = split.y_labeled, statistics(rows[1])
    table = Rows(mean_std[0], np.where(mean_std[1] > 1e-12, mean_std[1], 1.0), (0,) * rows[0].shape[1])
    problem = Problem(table, rows[1], len(rows[1]), len(labels), split.classes)
    labeled, deal, prior = LabeledRows(rows[0], labels), deal_folds(labels, FOLDS, seed), split.prior
    sample = rows[1][:SPREAD_ROWS]
    scored = {
        name: [_score(variant, labeled, None, deal, sample, seed) for variant in make_variants(name, problem)]
        for name in default_members(problem)
    }
    new: dict[int, list[np.ndarray]] = {}
    for variants in scored.values():
        for each in variants:
            member = each.as_member(each.learner.fit(rows[0], labels, seed), 1.0, sample)
            calibration = Calibration(member.temperature, member.bias.numpy())
            new[id(each)] = [calibration.apply(member.model.log_probs(part) - np.log(prior)) for part in rows[1:]]

    def put_together(names: list[str], averages: bool = True, unlabeled: bool = True, rule: bool = True) -> float:
        best = {name: [min(scored[name], key=lambda each: each.losses.mean())] for name in names}
        groups, _ = drop_worse([_average(scored[name] if averages else best[name], labels) for name in names])
        known = np.mean([group.calibrated for group in groups], axis=0)
        parts = [
            np.mean([np.mean([new[id(each)][at] for each in group.variants], axis=0) for group in groups], axis=0)
            for at in (0, 1)
        ]
        probs = [np.exp(log_softmax(scores + np.log(prior), axis=1)) for scores in (known, *parts)]
        predicted = parts[1].argmax(1)
        if rule:
            evidence = HeldOutScores.from_probs(probs[0], labels, probs[1] if unlabeled else None, train_prior=prior)
            bound = bind(OBJECTIVE, evidence, [str(k) for k in range(split.classes)])
            fitted = fit_evidence(evidence, bound, evidence.fractions, None, seed)
            predicted = fitted.rule.predict(torch.from_numpy(probs[2])).numpy()
        return min(float((predicted[split.y_test == k] == k).mean()) for k in range(split.classes))

    everyone = list(scored)
    without = {f"without {name}": put_together([each for each in everyone if each != name]) for name in everyone}
    return {
        "the default": put_together(everyone),
        **without,
        "best variants instead of means": put_together(everyone, averages=False),
        "rule without unlabeled rows": put_together(
            [each for each in everyone if each != "propagation"], unlabeled=False
        ),
        "without the rule": put_together(everyone, rule=False),
    }


def write_report(lines: list[dict[str, Any]]) -> str:
    ways = list(dict.fromkeys(way for line in lines for way in line["lowest"]))
    rows = []
    for way in ways:
        row = [way]
        for name in SETS:
            own = [line["lowest"][way] for line in lines if line["set"] == name and way in line["lowest"]]
            row.append(format_mean(own))
        apart = [line["lowest"][way] - line["lowest"]["the default"] for line in lines if way in line["lowest"]]
        rows.append([*row, f"{np.mean(apart):+.3f} ± {compute_error(apart):.3f}"])
    seeds = sorted({line["seed"] for line in lines})
    about = (
        "Lowest class recall on test rows with the small budget of labels (versus.md), mean over seeds "
        f"{', '.join(map(str, seeds))} ± its standard error; the last column is the paired difference over sets and "
        "seeds. Without unlabeled rows there is no propagation either. Written by `benchmarks/effect/ablation.py`."
    )
    table = format_table(("", *SETS, "less the default"), rows)
    return f"# What each part gives\n\n{about}\n\n{table}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.seeds)
    cells = [{"set": name, "seed": seed} for seed in seeds for name in SETS]

    def measure_cell(cell: Line) -> Line:
        return {"lowest": measure(load_split(cell["set"], "small", cell["seed"], options.data_dir), cell["seed"])}

    lines = Log(RESULTS / "ablation.jsonl", ("set", "seed")).measure(cells, measure_cell)
    write_results(RESULTS / "ablation.md", write_report(lines), MEASURED)


if __name__ == "__main__":
    main()
