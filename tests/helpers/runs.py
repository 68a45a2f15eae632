"""A run of a second on the toy, and how two finished runs are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from csst.recipes import recipe
from csst.runs.folder import Run
from csst.training.records import TIMINGS

QUICK = replace(
    recipe("toy"),
    data=replace(recipe("toy").data, labeled=60, unlabeled=120, validation=40, test=60),
    training=replace(recipe("toy").training, steps=60, labeled_batch=16, unlabeled_batch=32),
    dual=replace(recipe("toy").dual, steps_per_update=10),
)
#: the same for the command line, on digits
FAST = ["--training.steps", "12", "--data.validation", "20", "--data.test", "30", "--data.labeled", "40"]
FAST += ["--model.name", "mlp", "--dual.update", "gradient", "--dual.rates", "validation"]


def compared(folder: Path) -> tuple[list, dict, dict]:
    """All of a finished run that must not depend on when it was interrupted."""
    journal = [{k: v for k, v in r.items() if k not in TIMINGS} for r in Run(folder).journal()]
    metrics = {k: v for k, v in Run(folder).metrics().items() if k != "seconds"}
    trainer = torch.load(folder / "checkpoint.pt", weights_only=True)["trainer"]
    return journal, metrics, trainer


def same(one, two) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


class Stop(Exception):
    """Raised by a test in the middle of a run."""
