"""Which method serves the worst class best, and which under coverage constraints?

    python -m benchmarks.effect.effectiveness --data-dir DIR [--write]

DIR holds fashion_mnist.npz and cifar10_pool.npz; without it only digits is run. Every method is reported as trained and
with a decision rule; only test numbers are compared. Core methods run with --seeds seeds, the further
baselines with --further-seeds. The budget is printed first; finished runs in --out are not repeated, so it can be
stopped and continued. Image runs take 1,200 steps of 32 + 2 × 64 images at half size on one thread each, about 100 s.
Writes benchmarks/results/effectiveness.md and docs/explanation/effectiveness.md.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from math import sqrt
from pathlib import Path

from benchmarks.results_check import write_results
from csst.comparison.compare import Clock, compare, count_parallel_runs, run_folder
from csst.comparison.rows import Row, make_rows
from csst.comparison.summary import ComparisonRow, Outcome, tabulate
from csst.recipes import Recipe, recipe
from csst.report.comparison_tables import markdown

#: modules of csst that are measured
MEASURED = ("maths", "selftraining", "training", "rules", "estimation")

CORE = ("erm", "la", "csl", "fixmatch", "uda", "csst-no-kl", "csst-fixmatch", "csst-uda")
FURTHER = ("flexmatch", "darp", "crest", "crest+", "csst-flexmatch", "csst-darp")
OBJECTIVES = ("min-recall", "mean-recall-coverage")
FILES = {"digits": "", "fashion-lt-small": "fashion_mnist.npz", "cifar10-lt-small": "cifar10_pool.npz"}
NOTES = "\n## Said plainly\n"  # what people wrote below the tables, from here on, is kept
SECONDS = {"digits": 8, "fashion-lt-small": 45, "cifar10-lt-small": 45}


def base_of(name: str, data_dir: Path | None) -> Recipe:
    base = recipe(name)
    base = replace(base, selftraining=replace(base.selftraining, unlabeled_weight=0.3))
    if not FILES[name]:  # what validation chose for models with a rule, benchmarks/effect/tuning.py
        return replace(base, dual=replace(base.dual, step_size=0.1))
    data = replace(base.data, path=str((data_dir or Path()) / FILES[name]))  # type: ignore[type-var]
    # Many small steps on small images, and a slow game that starts at G = I: the fitted rule goes the rest of the way.
    training = replace(base.training, steps=1200, labeled_batch=32, unlabeled_batch=64)
    dual = replace(base.dual, steps_per_update=20, initial="prior", step_size=0.1)
    model, hardware = replace(base.model, reduce=2), replace(base.hardware, threads=1)
    return replace(base, data=data, model=model, training=training, dual=dual, hardware=hardware)


def verdict(table: list[ComparisonRow], measure: str) -> str:
    """Is CSST, with a rule, ahead of the best baseline with a rule by more than one standard error?

    Only rows with all seeds take part: a single lucky seed is no best baseline.
    """
    adjusted = [line for line in table if line.rule]
    full = [line for line in adjusted if line.n == max(other.n for other in adjusted)]
    ours = next((line for line in full if line.row.label == "csst-fixmatch"), None)
    baselines = [line for line in full if not line.row.label.startswith("csst")]
    if ours is None or not baselines:
        return "Not enough runs for a verdict."
    other = max(baselines, key=lambda x: x.mean(measure))
    ahead = ours.mean(measure) - other.mean(measure)
    said = f"With a rule, CSST has {ours.mean(measure):.3f} and the best baseline, "
    said += f"{other.row.label}, {other.mean(measure):.3f}"
    if ours.missed:
        said += f" (bounds missed by {ours.missed:.3f} and {other.missed:.3f} on average)"
    if ours.n < 2:
        return f"{said}: {ahead:+.3f}, from one seed, so without a standard error."
    error = sqrt(ours.std(measure) ** 2 / ours.n + other.std(measure) ** 2 / other.n)
    far = "within" if abs(ahead) <= error else f"{'ahead' if ahead > 0 else 'behind'} by more than"
    return f"{said}: {ahead:+.3f}, {far} one standard error ({error:.3f})."


def there(base: Recipe, chosen: list[Row], seeds: range, out: Path) -> list[Outcome]:
    """What has been run already."""
    found = []
    for row in chosen:
        done = [seed for seed in seeds if (run_folder(out, row, seed) / "metrics.json").is_file()]
        found += compare(base, [row], done, out, jobs=1) if done else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/effectiveness"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--further-seeds", type=int, default=1)
    parser.add_argument("--sets", default="", help="names with commas; default all whose data is there")
    parser.add_argument("--objectives", default=",".join(OBJECTIVES))
    parser.add_argument("--methods", default=",".join(CORE))
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--only-finished", action="store_true", help="run nothing: tabulate what there is")
    parser.add_argument("--write", action="store_true", help="write the tables; without it they are only printed")
    given = parser.parse_args()
    sets = given.sets.split(",") if given.sets else [n for n, f in FILES.items() if not f or given.data_dir]
    methods, objectives = given.methods.split(","), given.objectives.split(",")
    each = len(objectives) * (len(methods) * given.seeds + len(FURTHER) * given.further_seeds)
    total = 0 if given.only_finished else sum(SECONDS[name] * each for name in sets)
    print(f"budget: {each * len(sets)} runs, about {total / 60:.0f} minutes on two idle cores", file=sys.stderr)
    parts = []
    for name in sets:
        base = base_of(name, given.data_dir)
        for objective in objectives:
            found, out = [], given.out / name
            for words, seeds in ((methods, given.seeds), (FURTHER, given.further_seeds)):
                chosen = make_rows(words, [objective])
                if given.only_finished:
                    found += there(base, chosen, range(seeds), out)
                elif seeds:
                    jobs = given.jobs or count_parallel_runs(base)
                    found += compare(base, chosen, range(seeds), out, jobs, "fit", Clock())
            if not found:
                continue
            table = tabulate(found)
            missing = each // len(objectives) - sum(len(outcome.metrics) for outcome in found)
            measure = "min_recall" if objective == "min-recall" else "mean_recall"
            title = f"## {name}, {objective}\n\n{base.training.steps} steps of {base.training.labeled_batch} + 2 × "
            title += f"{base.training.unlabeled_batch} examples. {verdict(table, measure)}"
            title += f" {missing} runs are missing.\n\n" if missing else "\n\n"
            parts.append(title + markdown(table))
            print(parts[-1], flush=True)
    text = '# Effectiveness\n\nTest set, mean ± std over seeds. Rows with "+ rule" use the decision rule that was '
    text += "fitted on validation after training.\n\n" + "\n".join(parts)
    if given.write:
        here = Path(__file__).parents[1]
        for file in (here / "results" / "effectiveness.md", here.parent / "docs" / "explanation" / "effectiveness.md"):
            known = file.read_text() if file.is_file() else ""
            notes = NOTES + known.split(NOTES, 1)[1] if NOTES in known else ""
            write_results(file, text + notes, MEASURED)


if __name__ == "__main__":
    main()
