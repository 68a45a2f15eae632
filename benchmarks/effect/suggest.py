"""50 suggested labels against 50 random ones: python -m benchmarks.effect.suggest --data-dir DIR [--seeds 10]

A fit on the small budget of `versus.py`; then 50 rows of the unlabeled ones get their label, once as
`CSSTClassifier.suggest` says and three times at random, and each is fitted anew. The lowest class recall on test rows,
of random labels the mean of the three. Every measured line is kept in benchmarks/results/suggest.jsonl and never
computed again. Writes results/suggest.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.effect.few_label_sets import CACHE, load
from benchmarks.effect.versus import BUDGETS, PLANS, compute_error, format_mean, format_table
from benchmarks.lines import Log
from benchmarks.results_check import write_results
from csst import CSSTClassifier

#: modules of csst that are measured
MEASURED = ("learners", "rules", "estimation")

SETS, BOUGHT, DRAWS = ("digits", "cifar10_features"), 50, 3
#: the quickest of the default
LEARNER = "linear"
RESULTS = Path(__file__).parents[1] / "results"


def measure(name: str, seed: int, data_dir: Path | None) -> dict[str, Any]:
    split = load(name, seed, data_dir, BUDGETS["small"][name], PLANS[name], CACHE)

    def fit(bought: np.ndarray) -> Any:
        rest = np.setdiff1d(np.arange(len(split.x_unlabeled)), bought)
        rows = np.vstack([split.x_labeled, split.x_unlabeled[bought]])
        labels = np.concatenate([split.y_labeled, split.y_unlabeled[bought]])
        model = CSSTClassifier(learner=LEARNER, random_state=seed)
        return model.fit(rows, labels, X_unlabeled=split.x_unlabeled[rest])

    def find_lowest(model: Any) -> float:
        predicted = model.predict(split.x_test)
        return min(float((predicted[split.y_test == c] == c).mean()) for c in range(split.classes))

    first = fit(np.zeros(0, dtype=int))
    suggested = first.suggest(split.x_unlabeled, BOUGHT)
    # The split itself is drawn by default_rng(seed): draws of their own, or they have to do with its order.
    drawn = [np.random.default_rng([seed, k]).permutation(len(split.x_unlabeled))[:BOUGHT] for k in range(DRAWS)]
    return {
        "before": find_lowest(first),
        "random": float(np.mean([find_lowest(fit(rows)) for rows in drawn])),
        "suggested": find_lowest(fit(suggested)),
    }


def write_report(lines: list[dict[str, Any]]) -> str:
    rows = []
    for name in SETS:
        own = [line for line in lines if line["set"] == name]
        if own:
            apart = [line["suggested"] - line["random"] for line in own]
            values = [format_mean(line[key] for line in own) for key in ("before", "random", "suggested")]
            rows.append([name, *values, f"{np.mean(apart):+.3f} ± {compute_error(apart):.3f}", str(len(own))])
    head = ("set", "before", f"{BOUGHT} random labels", f"{BOUGHT} suggested labels", "suggested − random", "seeds")
    about = (
        "Lowest class recall on test rows, mean over seeds ± its standard error, of the small budget of labels "
        f"(versus.md) and of {BOUGHT} more; learner {LEARNER!r}; random labels: the mean of {DRAWS} draws. Written by "
        "`benchmarks/effect/suggest.py`."
    )
    return f"# Which labels to buy next\n\n{about}\n\n{format_table(head, rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.seeds)
    cells = [{"set": name, "seed": seed} for seed in seeds for name in SETS]
    log = Log(RESULTS / "suggest.jsonl", ("set", "seed"))
    lines = log.measure(cells, lambda cell: measure(cell["set"], cell["seed"], options.data_dir))
    write_results(RESULTS / "suggest.md", write_report(lines), MEASURED)


if __name__ == "__main__":
    main()
