"""The estimator's settings as scikit-learn's parameters: settings__selftraining__tau and the like."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.utils.validation import check_random_state

from csst.data.task import View
from csst.errors import InputError
from csst.estimators.settings import ROWS, EstimatorSettings
from csst.maths.objectives import Objective
from csst.setting_checks import override
from csst.settings import Settings

#: how the names of single settings begin
SETTINGS = "settings__"
#: groups that only a network heeds
NETWORK_GROUPS = ("training", "selftraining", "dual", "selection", "model", "inputs")
NETWORK_SETTINGS = tuple(f"{SETTINGS}{name}" for name in ("rule", "folds", "warm_start"))
#: this one also says which pseudo-labels rounds of self-training use
TAU = f"{SETTINGS}selftraining__tau"


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
