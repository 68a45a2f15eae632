"""Which training is kept: the method asked for, watched by a guard; or, with "auto", the best of several."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from csst.confusion import Confusion
from csst.data.task import Task
from csst.errors import InputError
from csst.estimator.fitting import Fit, trained
from csst.estimator.summary import TOLERANCE, hurts
from csst.records import Record
from csst.selection import standing
from csst.selftraining import method as read_method
from csst.settings import Settings
from csst.training import Trainer


def chosen(
    given: Any,
    task: Task,
    make: Callable[[], nn.Module],
    settings: Settings,
    seed: int,
    folds: int,
    last: Fit | None,
) -> tuple[Fit, list[str]]:
    """The fit that is kept, and notes for the summary. `given` is the estimator with its parameters."""
    if last is not None:
        done = int(last.states[-1]["step"])
        settings = replace(settings, training=replace(settings.training, steps=settings.training.steps + done))

    def fit(method: str, finishing: bool, last: Fit | None = None) -> Fit:
        watch = _watch(settings.training.steps, method) if given.verbose else None
        return trained(task, make, given.objective, method, settings, seed, folds, finishing, watch, last)

    if given.method == "auto":
        if last is not None:
            raise InputError("method 'auto' trains several models afresh: name one of them to go on by warm_start")
        return _best(fit, len(task.unlabeled) > 0)
    name, notes = str(given.method), []
    uses_unlabeled = read_method(name, task.kind).select is not None
    if uses_unlabeled and not len(task.unlabeled):
        notes.append(f"there are no unlabeled rows, so {name} learned from labels alone (csl)")
        warnings.warn(notes[-1], stacklevel=3)
        name, uses_unlabeled = "csl", False
    if last is not None and last.method != name:
        raise InputError(f"warm_start goes on with the same method; the last fit was {last.method}, this one is {name}")
    found = fit(name, given.finish == "posthoc", last)
    if given.guard and uses_unlabeled:
        said = hurts(found.objective, found.counts, fit("csl", False).counts)
        notes += [said] if said else []
    return found, notes


def _best(fit: Callable[[str, bool], Fit], unlabeled: bool) -> tuple[Fit, list[str]]:
    """csl, csst, and both finished: the best on validation (finished ones by cross-fitting); of equals the simplest."""
    fits = [fit(method, True) for method in (("csl", "csst") if unlabeled else ("csl",))]
    options = [replace(one, finished=None) for one in fits] + fits
    standings = [standing(one.objective, Confusion.from_counts(one.judged), TOLERANCE) for one in options]
    best = max(range(len(options)), key=lambda at: (-standings[at].violation, standings[at].value, -at))
    said = ", ".join(f"{_called(one)} {now.score:.3f}" for one, now in zip(options, standings, strict=True))
    return options[best], [f"auto kept {_called(options[best])}; on validation: {said}"]


def _called(fit: Fit) -> str:
    return f"{fit.method} + post-hoc" if fit.finished is not None else fit.method


def _watch(steps: int, method: str) -> Callable[[Trainer, Record], None]:
    def show(trainer: Trainer, record: Record) -> None:
        said = f"worst recall {min(record.recall):.3f}  objective {record.value:.3f}"
        if record.step % max(1, steps // 10) < trainer.settings.dual.steps_per_update:
            print(f"{method} step {record.step:>6}/{steps}  {said}", file=sys.stderr, flush=True)

    return show
