"""The settings of `CSSTClassifier`, and each of them as a parameter of scikit-learn: settings__selftraining__tau."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_random_state

from csst.data.task import View
from csst.errors import InputError
from csst.maths.objectives import Objective
from csst.setting_checks import check_choices, check_within, override
from csst.settings import TABULAR, Dual, Hardware, Model, Settings, Training

#: how the names of single settings begin
SETTINGS = "settings__"
#: groups that only a network heeds
NETWORK_GROUPS = ("training", "selftraining", "dual", "selection", "model", "inputs")
NETWORK_SETTINGS = tuple(f"{SETTINGS}{name}" for name in ("rule", "folds", "warm_start"))
#: this one also says which pseudo-labels rounds of self-training use
TAU = f"{SETTINGS}selftraining__tau"


@dataclass(frozen=True)
class Inputs:
    """How an estimator's network sees rows or images; what is left open follows from them.

    Args:
        views: for rows: table, embedding, or auto (embedding if there is an encoder or one common scale);
            for images: symbols (auto: shifts, RandAugment and Cutout, for digits, letters and signs) or photos (also
            mirrored); or a weak and a strong view, functions (batch, generator) -> batch, of images uint8 (B, C, H, W).
        scale: how columns of numbers are standardized: each by its own deviation (column), all by a common one
            (common: for embeddings and pixels, whose small columns are noise), or as suits the labels better (auto).
        padding: how far, in pixels, views shift an image; None for an eighth of the shorter side.
        cutout: side of the gray square in strong views of images, as a fraction of the shorter side; None for a half,
            and a quarter of images below 16 pixels, of which a half would leave nothing to recognize.
    """

    views: Any = "auto"
    scale: Literal["auto", "column", "common"] = "auto"
    padding: int | None = None
    cutout: float | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        check_within(self, 0, float("inf"), "padding")
        check_within(self, 0, 1, "cutout")

    def padding_of(self, side: int) -> int:
        """Return how far views shift images with this shorter side, in pixels."""
        return max(1, side // 8) if self.padding is None else self.padding

    def cutout_of(self, side: int) -> float:
        """Return the side of the gray square, as a fraction of the shorter side of the images."""
        if self.cutout is not None:
            return self.cutout
        return 0.5 if side >= 16 else 0.25


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(Settings):
    """The settings of `CSSTClassifier`; a recipe has its data instead of `inputs`, and `--resume`.

    Args:
        inputs: how a network sees rows or images.
        warm_start: fitting a network again goes on from where the last fit ended, for `training.steps` more steps.
    """

    inputs: Inputs = field(default_factory=Inputs)
    warm_start: bool = False

    @classmethod
    def of(cls, settings: Settings) -> EstimatorSettings:
        """Return settings as settings of an estimator."""
        if isinstance(settings, EstimatorSettings):
            return settings
        return cls(**{setting.name: getattr(settings, setting.name) for setting in fields(settings)})


#: of a network on few rows, as `csst train array` has it
ROWS = EstimatorSettings.of(TABULAR)
#: of a network on small images, as `CSSTClassifier` has it
IMAGES = EstimatorSettings(
    folds=3,
    model=Model("wrn-10-1", batchnorm_momentum=0.05, reduce=None),
    training=Training(600, 32, 96),
    dual=Dual(update="solve", step_size=0.5, schedule="linear", rates="pooled"),
    hardware=Hardware(threads=1),
)


def read_settings(settings: Any, default: EstimatorSettings = ROWS) -> EstimatorSettings:
    """Return the settings of an estimator, given as a whole or as a dictionary of differences from the default."""
    if settings is None:
        return default
    if isinstance(settings, Settings):
        return EstimatorSettings.of(settings)
    if not isinstance(settings, dict):
        raise InputError(
            'settings are csst.Settings or a dictionary such as {"training": {"steps": 500}}; found '
            f"{type(settings).__name__}"
        )
    estimator_settings: EstimatorSettings = override(default, settings)
    return estimator_settings


def list_settings(settings: Any, start: str = SETTINGS) -> dict[str, Any]:
    """Return every single setting by its name as a parameter."""
    names: dict[str, Any] = {}
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        names |= (
            list_settings(value, f"{start}{setting.name}__") if is_dataclass(value) else {start + setting.name: value}
        )
    return names


def list_parameters(settings: Any) -> dict[str, Any]:
    """Return every single setting of an estimator; nothing for wrong settings, for which `fit` raises the error."""
    try:
        return list_settings(read_settings(settings))
    except InputError:
        return {}


def change_settings(settings: EstimatorSettings, params: dict[str, Any]) -> EstimatorSettings:
    """Return settings with single ones changed, each by its name as a parameter."""
    groups: dict[str, Any] = {}
    for name, value in params.items():
        group, _, setting = name[len(SETTINGS) :].partition("__")
        if setting:
            groups.setdefault(group, {})[setting] = value
        else:
            groups[group] = value
    new_settings: EstimatorSettings = override(settings, groups)
    return new_settings


def refuse_network_settings(settings: EstimatorSettings, learner: Any) -> None:
    """Raise an error if a network's settings differ from the default and no network is trained."""
    defaults = [list_settings(default) for default in (ROWS, EstimatorSettings())]
    prefixes = tuple(f"{SETTINGS}{group}__" for group in NETWORK_GROUPS) + NETWORK_SETTINGS
    paths = []
    for name, value in list_settings(settings).items():
        is_changed = name.startswith(prefixes) and all(value != default[name] for default in defaults)
        if is_changed and not (settings.rounds and name == TAU):
            paths.append(name[len(SETTINGS) :].replace("__", "."))
    if paths:
        raise InputError(
            f"learner {learner!r} trains no network, which these settings are for ({', '.join(paths[:5])}): set "
            'learner="network", or leave them out'
        )


def read_views(views: Any, is_embedded: bool) -> Literal["table", "embedding"] | tuple[View, View]:
    """Return the weak and the strong view of a network's rows, or the name of a pair."""
    if not isinstance(views, str):
        weak, strong = views
        return weak, strong
    if views not in ("auto", "table", "embedding"):
        raise InputError(f"views are auto, table, embedding or a pair of functions; found {views!r}")
    return "embedding" if views == "embedding" or (views == "auto" and is_embedded) else "table"


def read_seed(random_state: Any) -> int:
    """Return the seed of a random state: an integer, a generator of random numbers, or None."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def read_validation(validation: Any, objective: Objective, settings: EstimatorSettings) -> tuple[Any, float]:
    """Return which rows judge, and the part of the labels that certifies: a stated fraction does if bounds are."""
    is_fraction = isinstance(validation, Real) and not isinstance(validation, bool)
    if objective.confidence is not None and is_fraction:
        return None, float(validation)
    return validation, settings.certifying
