"""Many runs on the same splits, side by side: carried out in parallel, resumable, and put into one table."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from csst.errors import InputError
from csst.maths.confusion import Confusion, head_tail
from csst.maths.language import objective as read_objective
from csst.recipes.recipe import Recipe
from csst.runs.execute import execute, find_resumable_run
from csst.runs.folder import Run
from csst.runs.rows import Row
from csst.selftraining import method as read_method
from csst.training.evaluation import constraints_met

MEASURES = ("mean_recall", "min_recall", "min_coverage")


@dataclass(frozen=True)
class Outcome:
    """The runs of one row, one metrics.json per seed."""

    row: Row
    metrics: list[dict[str, Any]]
    folders: list[Path]


class RunsFailed(InputError):
    """Runs of a comparison failed; `outcomes` has the rows of which some did not."""

    def __init__(self, said: str, outcomes: list[Outcome]) -> None:
        super().__init__(said)
        self.outcomes = outcomes


@dataclass(frozen=True)
class ComparisonRow:
    """A line of the table: the numbers of one row over its seeds, finished after training or not.

    part: what was measured, test wherever there is one. missed: by how much the constraints are. used: the share of
    the pseudo-labels that were used between the last two multiplier updates, where the method has any.
    """

    label: str
    objective: str
    is_adjusted: bool
    values: dict[str, list[float]]
    met: list[bool | None]
    seconds: list[float]
    grouped: bool
    missed: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    part: str = "test"

    @property
    def name(self) -> str:
        return f"{self.label} + rule" if self.is_adjusted else self.label

    @property
    def n(self) -> int:
        return len(self.seconds)

    def mean(self, measure: str) -> float:
        return statistics.mean(self.values[measure])

    def std(self, measure: str) -> float:
        return statistics.stdev(self.values[measure]) if self.n > 1 else 0.0


def compare(
    base: Recipe,
    chosen: Sequence[Row],
    seeds: Sequence[int],
    out: str | Path,
    jobs: int = 0,
    rule: str = "fit",
    done: Callable[[str, int, int], None] = lambda name, finished, of: None,
) -> list[Outcome]:
    """Run every row with every seed; what `out` already holds is not run again. `jobs` 0 takes what the cores allow.

    A run that fails does not stop the others; afterwards one error names them all and holds what did not fail.
    """
    for row in chosen:
        read_method(row.method)
        read_objective(row.objective)
    runs = [(row.recipe(base, seed, rule), run_folder(out, row, seed)) for row, seed in _pairs(chosen, seeds)]
    for recipe, folder in runs:
        find_resumable_run(
            recipe, folder, resume=True
        )  # refuses a folder that holds a run of other settings, before any work
    failed = {}
    for at, (name, error) in enumerate(_carried_out(runs, jobs or parallel(base)), 1):
        done(name, at, len(runs))
        if error is not None:
            failed[name] = error
    found: list[Outcome] = []
    hashes: set[tuple[int, str]] = set()
    for row in chosen:
        folders = [folder for seed in seeds if (folder := run_folder(out, row, seed)).name not in failed]
        made = Outcome(row, [Run.open(folder).metrics() for folder in folders], folders)
        found += [made] if folders else []
        if "data" not in row.changes:
            hashes |= {(m["seed"], m["split_hash"]) for m in made.metrics}
    if len(hashes) > len({seed for seed, _ in hashes}):
        raise RuntimeError(f"the rows saw different splits: {sorted(hashes)}")
    if failed:
        first, error = next(iter(failed.items()))
        said = f"{len(failed)} of {len(runs)} runs failed, such as {first}: {error}; repeat to continue"
        raise RunsFailed(said, found)
    return found


def run_folder(out: str | Path, row: Row, seed: int) -> Path:
    return Path(out) / f"{row.folder}-{seed}"


def parallel(base: Recipe) -> int:
    """How many runs the cores allow at once: one where a run uses all of them, or a GPU."""
    if torch.cuda.is_available() or not base.hardware.threads:
        return 1
    return max(1, (os.cpu_count() or 1) // base.hardware.threads)


def lines(outcomes: Sequence[Outcome]) -> list[ComparisonRow]:
    """The table: each row as trained and, where it was finished after training, once more."""
    found = []
    for outcome in outcomes:
        for finished in (False, True):
            parts = [m["adjusted"] if finished else m for m in outcome.metrics if not finished or "adjusted" in m]
            if parts:
                found.append(_line(outcome, parts, finished))
    return found


def _line(outcome: Outcome, parts: list[dict[str, Any]], is_adjusted: bool) -> ComparisonRow:
    grouped = any(word in outcome.metrics[0]["objective"] for word in ("[head]", "[tail]"))
    name = "test" if all("test" in part for part in parts) else "validation"
    measured = [part[name] for part in parts]
    if grouped:
        measured = [
            {**numbers, **_by_group(numbers, metrics["labeled_counts"])}
            for numbers, metrics in zip(measured, outcome.metrics, strict=True)
        ]
    slacks = [numbers["constraint_slack"] for numbers in measured]
    return ComparisonRow(
        outcome.row.label,
        outcome.row.objective,
        is_adjusted,
        {measure: [numbers[measure] for numbers in measured] for measure in (*MEASURES, "objective_value")},
        [constraints_met(slack) for slack in slacks],
        [metrics["seconds"] for metrics in outcome.metrics],
        grouped,
        [0.0 if constraints_met(slack) is not False else -min(slack) for slack in slacks],
        [] if is_adjusted else [used for folder in outcome.folders if (used := _last_used(folder)) is not None],
        name,
    )


def _last_used(folder: Path) -> float | None:
    last: dict[str, Any] = {}
    for record, _ in Run(folder).records() if Run.exists(folder) else ():
        last = record
    return last.get("used")


def _by_group(numbers: dict[str, Any], labeled_counts: list[int]) -> dict[str, float]:
    """The worse of head and tail, as the paper's tables for many classes show."""
    groups = head_tail(torch.tensor(labeled_counts).double() / sum(labeled_counts))
    c = Confusion.from_counts(torch.tensor(numbers["confusion"]))
    return {
        "min_recall": min(float(c.recall[members].mean()) for members in groups.values()),
        "min_coverage": min(float(c.coverage[members].mean()) for members in groups.values()),
    }


def _pairs(chosen: Sequence[Row], seeds: Sequence[int]) -> list[tuple[Row, int]]:
    if not chosen or not seeds:
        raise InputError("a comparison needs at least one row and one seed")
    return [(row, seed) for seed in seeds for row in chosen]


def _carried_out(runs: list[tuple[Recipe, Path]], jobs: int) -> Iterator[tuple[str, str | None]]:
    if jobs == 1:
        for recipe, folder in runs:
            yield folder.name, _run(recipe, folder)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        waiting: dict[Future[str | None], str] = {pool.submit(_run, *run): run[1].name for run in runs}
        try:
            for future in as_completed(waiting):
                try:
                    yield waiting[future], future.result()
                except BrokenProcessPool:  # and with it all that wait
                    yield waiting[future], "a process was killed, perhaps for lack of memory: use fewer --jobs"
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(recipe: Recipe, folder: Path) -> str | None:
    """Carry out one run; what went wrong, if anything did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notes are in metrics.json; here they would hide the progress
        try:
            execute(recipe, folder, resume=True)
        except (InputError, OSError) as error:
            return str(error)
        except Exception as error:  # whatever a plugin may do, the other runs go on
            return f"{type(error).__name__}: {error}"
    return None
