"""Recipes that take seconds on a CPU."""

from __future__ import annotations

from csst.data import Arrays, Digits, Toy
from csst.models import Model
from csst.recipes.recipe import Custom, Recipe
from csst.settings import TABULAR, Dual, Hardware, Training

# Chosen by measurement among step sizes 0.1 to 1, constant and decaying, from uniform and from the prior
# (docs/explanation/choices.md has the figures).
_ONE_THREAD = Hardware(threads=1)
_DUAL = Dual(steps_per_update=20, step_size=0.5, schedule="linear", initial="uniform")


def digits() -> Recipe:
    """scikit-learn's handwritten digits made long-tailed, WRN-10-1 on 8 x 8 pixels: csst train digits"""
    return Recipe(
        "digits",
        Digits(),
        model=Model("wrn-10-1", batchnorm_momentum=0.05),
        training=Training(steps=600, labeled_batch=32, unlabeled_batch=96, lr=0.03),
        dual=Dual(update="solve", step_size=0.5, schedule="linear", rates="pooled"),
        hardware=_ONE_THREAD,
    )


def toy() -> Recipe:
    """Three Gaussians, the rarest between the others; the best possible min recall is known: csst train toy"""
    return _toy("toy")


def toy_overlap() -> Recipe:
    """The same, so close that pseudo-labels are often wrong: csst train toy-overlap"""
    return _toy("toy-overlap")


def _toy(name: str) -> Recipe:
    training = Training(steps=800, labeled_batch=64, unlabeled_batch=128, lr=0.03, ema=0.98)
    return Recipe(name, Toy(name), model=Model(hidden=32, depth=1), training=training, dual=_DUAL, hardware=_ONE_THREAD)


def array() -> Recipe:
    """Your own arrays from an .npz file (y = -1 is unlabeled): csst train array --data.path FILE.npz"""
    # The network's settings are those of CSSTClassifier(learner="network").
    settings = {name: getattr(TABULAR, name) for name in ("model", "training", "dual", "selection", "hardware")}
    return Recipe("array", Arrays(), learner="auto", **settings)


def custom() -> Recipe:
    """A dataset of your own from Python: csst train custom --data.source package.module:name"""
    training = Training(steps=2000, labeled_batch=64, unlabeled_batch=256, lr=0.03, ema=0.99)
    return Recipe("custom", Custom(), training=training, dual=_DUAL, hardware=_ONE_THREAD)
