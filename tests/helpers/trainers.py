"""A trainer of fifteen steps on few digits."""

from __future__ import annotations

import torch

from csst.data import Digits
from csst.models import Model, build
from csst.settings import Dual, Settings, Training
from csst.training.records import TIMINGS
from csst.training.trainer import Trainer

SMALL = Settings(
    training=Training(steps=15, labeled_batch=16, unlabeled_batch=32, lr=0.1, ema=0.6),
    dual=Dual(steps_per_update=5, step_size=0.5),
)
DIGITS = Digits(labeled=20, unlabeled=40, imbalance=4, validation=10, test=10)


def trainer(how="csst", goal="min-recall", settings=SMALL, seed=0, data=DIGITS) -> Trainer:
    task = data.load(seed)
    model = build(Model(hidden=16, depth=1), task.input_shape, task.classes, seed)
    if task.kind == "image":
        model[0].std.fill_(255.0)  # pixels in 0...1
    return Trainer(task, model, goal, how, settings, seed)


def lines(records) -> list[dict]:
    return [{k: v for k, v in record.as_dict().items() if k not in TIMINGS} for record in records]


def weights(made) -> list[torch.Tensor]:
    return [p.detach() for p in made.model.parameters()]
