"""csst beside others for two more sentences: python -m benchmarks.effect.sentences --data-dir DIR [--seeds 3]

`max mean(recall) s.t. coverage >= 0.95/K` and `max mean(f1)` on four sets of `versus.py` with the small budget. Test
rows are balanced, and csst is told so (`deployment_prior="uniform"`); the others have no objective. Every measured line
is kept in benchmarks/results/sentences.jsonl. Writes results/sentences.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import csst
from benchmarks.effect.few_label_sets import Split
from benchmarks.effect.unseen import OTHERS
from benchmarks.effect.versus import NAMES, OURS, RESULTS, fit_method, format_mean, format_table, load_split
from benchmarks.lines import Line, Log
from benchmarks.results_check import write_results
from csst import CSSTClassifier

#: modules of csst that are measured
MEASURED = ("learners", "maths/language", "rules", "estimation")

SETS = ("digits", "breast_cancer", "satimage", "segment")
SENTENCES = ("max mean(recall) s.t. coverage >= 0.95/K", "max mean(f1)")


def measure(cell: Line, split: Split) -> Line:
    """Value and largest miss of a constraint on test rows, for every sentence."""
    fitted: dict[str, Any] = {}
    for sentence in SENTENCES:
        if cell["method"] == OURS:
            model = CSSTClassifier(sentence, deployment_prior="uniform", random_state=cell["seed"])
            fitted[sentence] = model.fit(split.x_labeled, split.y_labeled, X_unlabeled=split.x_unlabeled)
        else:
            fitted[sentence] = next(iter(fitted.values()), None) or fit_method(cell["method"], split, cell["seed"])
    measured = {}
    for sentence, model in fitted.items():
        truth, predicted = (torch.from_numpy(np.asarray(y)).long() for y in (split.y_test, model.predict(split.x_test)))
        counts = torch.bincount(truth * split.classes + predicted, minlength=split.classes**2)
        confusion = csst.Confusion.from_counts(counts.reshape(split.classes, split.classes))
        bound = csst.objective(sentence).bind_prior(confusion.prior)
        missed = max([0.0, *(-bound.slack(confusion)).tolist()])
        measured[sentence] = {"value": float(bound.value(confusion)), "missed": missed}
    return {"sentences": measured}


def write_report(lines: list[Line]) -> str:
    parts = [
        "# Two more sentences",
        "Value of the objective on balanced test rows, mean over seeds ± its standard error; in brackets the largest "
        "miss of a constraint, averaged. Small budget of labels (versus.md). csst is fitted for the sentence, under "
        'the balance of the test rows (`deployment_prior="uniform"`); the others know no objective. '
        f"Seeds: {len({line['seed'] for line in lines})}. Written by `benchmarks/effect/sentences.py`.",
    ]
    for sentence in SENTENCES:
        rows = []
        for method in (OURS, *OTHERS):
            row = [f"**{method}**" if method == OURS else method]
            for name in SETS:
                measured = [
                    line["sentences"][sentence] for line in lines if (line["set"], line["method"]) == (name, method)
                ]
                shown = format_mean(each["value"] for each in measured)
                missed = f" ({np.mean([each['missed'] for each in measured]):.3f})" if "s.t." in sentence else ""
                row.append(shown + missed if measured else "–")
            rows.append(row)
        parts += [f"## `{sentence}`", format_table(("method", *(NAMES.get(n, n) for n in SETS)), rows)]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    cells = [
        {"set": name, "seed": seed, "method": method}
        for seed in range(options.seeds)
        for name in SETS
        for method in (OURS, *OTHERS)
    ]

    def measure_cell(cell: Line) -> Line:
        return measure(cell, load_split(cell["set"], "small", cell["seed"], options.data_dir))

    lines = Log(RESULTS / "sentences.jsonl", ("set", "seed", "method")).measure(cells, measure_cell)
    write_results(RESULTS / "sentences.md", write_report(lines), MEASURED)


if __name__ == "__main__":
    main()
