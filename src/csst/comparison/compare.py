"""Carry out many runs on the same splits, in parallel; each has its own folder and can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import torch

from csst.comparison.rows import Row, execute_fit
from csst.comparison.summary import Outcome
from csst.errors import InputError
from csst.maths.language import objective as read_objective
from csst.recipes.recipe import Recipe
from csst.runs.execute import execute, find_resumable_run
from csst.runs.folder import Run
from csst.selftraining import method as read_method
from csst.training.interruption import is_main_process


class RunsFailed(InputError):
    """An error for failed runs of a comparison; `outcomes` has the rows with runs that did not fail."""

    def __init__(self, sentence: str, outcomes: list[Outcome]) -> None:
        super().__init__(sentence)
        self.outcomes = outcomes


class PlannedRun(NamedTuple):
    """One run of a comparison."""

    row: Row
    recipe: Recipe
    folder: Path


def compare(
    base: Recipe,
    rows: Sequence[Row],
    seeds: Sequence[int],
    out: str | Path,
    jobs: int | None = 0,
    rule: str = "fit",
    on_run: Callable[[str, int, int], None] = lambda name, finished, of: None,
) -> list[Outcome]:
    """Run every row with every seed, except runs that are complete in `out`.

    A failed run does not stop the others; at the end one error counts the failures and holds the other outcomes.

    Args:
        base: the recipe that the rows change.
        rows: the rows.
        seeds: seeds of the runs of each row; runs of one seed share their splits.
        out: the folder of the runs' folders.
        jobs: number of parallel runs; 0 takes as many as the cores allow, None what `joblib.parallel_config` says,
            also on other machines that see the folder `out`.
        rule: "fit" also fits the decision rule of every network, "none" does not.
        on_run: called after every run with its name, the number of finished runs, and their total number.

    Returns:
        The rows with the metrics of their runs; an empty list in all but the first process of torchrun.
    """
    if not rows or not seeds:
        raise InputError("a comparison needs at least one row and one seed")
    for row in rows:
        read_objective(row.objective)
        if row.is_network:
            read_method(row.method)
    runs = [PlannedRun(row, row.recipe(base, seed, rule), run_folder(out, row, seed)) for seed in seeds for row in rows]
    for run in runs:  # a folder that holds a run of other settings is refused before any work
        find_resumable_run(run.recipe, run.folder, resume=True)
    failures: dict[str, str] = {}
    for count, (name, error) in enumerate(_carry_out(runs, count_parallel_runs(base) if jobs == 0 else jobs), 1):
        on_run(name, count, len(runs))
        if error is not None:
            failures[name] = error
    if not is_main_process():
        return []
    outcomes = _read_outcomes(rows, seeds, out, failures)
    if failures:
        name, error = next(iter(failures.items()))
        sentence = f"{len(failures)} of {len(runs)} runs failed, such as {name}: {error}; repeat to continue"
        raise RunsFailed(sentence, outcomes)
    return outcomes


class Clock:
    """Prints each finished run and the estimated time left."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __call__(self, name: str, finished: int, of: int) -> None:
        seconds = (time.perf_counter() - self.start) / finished * (of - finished)
        print(f"{finished}/{of} {name}  about {seconds:.0f} s left", file=sys.stderr, flush=True)


def run_folder(out: str | Path, row: Row, seed: int) -> Path:
    """Return the folder of a run of a comparison."""
    return Path(out) / f"{row.folder}-{seed}"


def count_parallel_runs(base: Recipe) -> int:
    """Return how many runs fit on the cores; one if a run uses all of them, a GPU, or several processes."""
    if torch.cuda.is_available() or not base.hardware.threads or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return 1
    return max(1, (os.cpu_count() or 1) // base.hardware.threads)


def _read_outcomes(
    rows: Sequence[Row], seeds: Sequence[int], out: str | Path, failures: dict[str, str]
) -> list[Outcome]:
    """Read the metrics of all runs but the failed ones; rows of the same data must have seen the same splits."""
    outcomes = []
    hashes: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        folders = [folder for seed in seeds if (folder := run_folder(out, row, seed)).name not in failures]
        outcome = Outcome(row, [Run.open(folder).metrics() for folder in folders], folders)
        if folders:
            outcomes.append(outcome)
        data = json.dumps(row.changes.get("data"), sort_keys=True)
        for metrics in outcome.metrics:
            hashes.setdefault((data, metrics["seed"]), set()).add(metrics["split_hash"])
    conflicts = {key: sorted(values) for key, values in hashes.items() if len(values) > 1}
    if conflicts:
        raise RuntimeError(f"the rows saw different splits: {conflicts}")
    return outcomes


def _carry_out(runs: list[PlannedRun], jobs: int | None) -> Iterator[tuple[str, str | None]]:
    """Carry out the runs; yield the name of each finished run and its error, if any."""
    if jobs is None:
        from sklearn.utils.parallel import Parallel, delayed

        # joblib kills its processes when it is interrupted; the processes of the pool below save their runs before.
        errors = Parallel(return_as="generator")(delayed(_run)(run) for run in runs)
        yield from zip((run.folder.name for run in runs), errors, strict=True)
        return
    if jobs == 1:
        for run in runs:
            yield run.folder.name, _run(run)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        names: dict[Future[str | None], str] = {pool.submit(_run, run): run.folder.name for run in runs}
        try:
            for future in as_completed(names):
                try:
                    yield names[future], future.result()
                except BrokenProcessPool:  # all waiting runs fail with it
                    yield names[future], "a process was killed, perhaps for lack of memory: use fewer --jobs"
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(run: PlannedRun) -> str | None:
    """Carry out one run and return its error, if any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notes are in metrics.json; here they would hide the progress
        try:
            if run.row.fit is None:
                execute(run.recipe, run.folder, resume=True)
            elif is_main_process() and not Run(run.folder).is_complete:
                execute_fit(run.row.fit, run.recipe, run.folder)
        except (InputError, OSError) as error:
            return str(error)
        except Exception as error:  # a plugin may raise anything; the other runs go on
            return f"{type(error).__name__}: {error}"
    return None
