"""Many runs on the same splits: carried out in parallel, resumable, each in a folder of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import torch

from csst.errors import InputError
from csst.maths.language import objective as read_objective
from csst.recipes.recipe import Recipe
from csst.runs.direct import execute_fit
from csst.runs.execute import execute, find_resumable_run
from csst.runs.folder import Run
from csst.runs.outcomes import Outcome
from csst.runs.rows import Row
from csst.selftraining import method as read_method
from csst.training.interruption import is_main_process


class RunsFailed(InputError):
    """Runs of a comparison failed; `outcomes` has the rows of which some did not."""

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
    chosen: Sequence[Row],
    seeds: Sequence[int],
    out: str | Path,
    jobs: int = 0,
    rule: str = "fit",
    on_run: Callable[[str, int, int], None] = lambda name, finished, of: None,
) -> list[Outcome]:
    """Run every row with every seed; what `out` already holds is not run again.

    A run that fails does not stop the others; afterwards one error names them all and holds what did not fail.

    Args:
        base: the recipe that the rows change.
        chosen: the rows.
        seeds: each row is run with all of them, on the same splits.
        out: the folder of the runs' folders.
        jobs: runs at once; 0 takes what the cores allow.
        rule: "fit" also fits the decision rule of every network, "none" does not.
        on_run: is called after every run with its name, how many are done, and of how many.

    Returns:
        The rows with what their runs say; nothing in a process that torchrun started beside the first.
    """
    if not chosen or not seeds:
        raise InputError("a comparison needs at least one row and one seed")
    for row in chosen:
        read_objective(row.objective)
        if row.fit is None:
            read_method(row.method)
    planned = [
        PlannedRun(row, row.recipe(base, seed, "none" if row.fit else rule), run_folder(out, row, seed))
        for seed in seeds
        for row in chosen
    ]
    for run in planned:  # a folder that holds a run of other settings is refused before any work
        find_resumable_run(run.recipe, run.folder, resume=True)
    failed: dict[str, str] = {}
    for finished, (name, error) in enumerate(_carry_out(planned, jobs or count_parallel_runs(base)), 1):
        on_run(name, finished, len(planned))
        if error is not None:
            failed[name] = error
    if not is_main_process():
        return []
    outcomes = _read_outcomes(chosen, seeds, out, failed)
    if failed:
        first, error = next(iter(failed.items()))
        sentence = f"{len(failed)} of {len(planned)} runs failed, such as {first}: {error}; repeat to continue"
        raise RunsFailed(sentence, outcomes)
    return outcomes


def run_folder(out: str | Path, row: Row, seed: int) -> Path:
    """Where a run of a comparison lives."""
    return Path(out) / f"{row.folder}-{seed}"


def count_parallel_runs(base: Recipe) -> int:
    """How many runs the cores allow at once: one where a run uses all of them, a GPU, or several processes."""
    if torch.cuda.is_available() or not base.hardware.threads or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return 1
    return max(1, (os.cpu_count() or 1) // base.hardware.threads)


def _read_outcomes(
    chosen: Sequence[Row], seeds: Sequence[int], out: str | Path, failed: dict[str, str]
) -> list[Outcome]:
    """What the runs that did not fail say; rows of the same data must have seen the same splits."""
    outcomes = []
    hashes: dict[tuple[str, int], set[str]] = {}
    for row in chosen:
        folders = [folder for seed in seeds if (folder := run_folder(out, row, seed)).name not in failed]
        outcome = Outcome(row, [Run.open(folder).metrics() for folder in folders], folders)
        if folders:
            outcomes.append(outcome)
        data = json.dumps(row.changes.get("data"), sort_keys=True)
        for metrics in outcome.metrics:
            hashes.setdefault((data, metrics["seed"]), set()).add(metrics["split_hash"])
    different = {key: sorted(values) for key, values in hashes.items() if len(values) > 1}
    if different:
        raise RuntimeError(f"the rows saw different splits: {different}")
    return outcomes


def _carry_out(planned: list[PlannedRun], jobs: int) -> Iterator[tuple[str, str | None]]:
    """Each run's name when it is done, and what went wrong, if anything did."""
    if jobs == 1:
        for run in planned:
            yield run.folder.name, _run(run)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        waiting: dict[Future[str | None], str] = {pool.submit(_run, run): run.folder.name for run in planned}
        try:
            for future in as_completed(waiting):
                try:
                    yield waiting[future], future.result()
                except BrokenProcessPool:  # and with it all that wait
                    yield waiting[future], "a process was killed, perhaps for lack of memory: use fewer --jobs"
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(run: PlannedRun) -> str | None:
    """Carry out one run; what went wrong, if anything did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the notes are in metrics.json; here they would hide the progress
        try:
            if run.row.fit is None:
                execute(run.recipe, run.folder, resume=True)
            elif is_main_process() and not Run(run.folder).is_complete:
                execute_fit(run.row.fit, run.recipe, run.folder)
        except (InputError, OSError) as error:
            return str(error)
        except Exception as error:  # whatever a plugin may do, the other runs go on
            return f"{type(error).__name__}: {error}"
    return None
