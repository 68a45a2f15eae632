"""Cost-Sensitive Self-Training: train classifiers for the metric you care about.

Everything public is importable from here; heavy modules are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from csst.data.task import Task
    from csst.errors import InputError, ObjectiveError
    from csst.estimators.classifier import CSSTClassifier
    from csst.estimators.posthoc import PostHocClassifier
    from csst.estimators.scoring import scorer
    from csst.fitting.fit import fit
    from csst.fitting.fitted_model import FittedModel
    from csst.learners.network import Network
    from csst.maths.confusion import Confusion, confusion_counts, head_tail
    from csst.maths.costs import CostTable
    from csst.maths.domains import NonNegative, Product, Simplex
    from csst.maths.gain import ConstantGain, Gain, gain_matrix
    from csst.maths.language import ALIASES, objective
    from csst.maths.losses import cost_sensitive_loss, kl_to_optimal, weighted_consistency
    from csst.maths.multipliers import Multipliers
    from csst.maths.objectives import Objective
    from csst.recipes import recipe
    from csst.rules import DecisionRule, fit_rule
    from csst.runs.execute import execute
    from csst.settings import Settings
    from csst.training.trainer import Trainer

__version__ = "0.2.0"

#: where each public name lives; the imports above say the same to a type checker
_HOMES = {
    "ALIASES": "csst.maths.language",
    "CSSTClassifier": "csst.estimators.classifier",
    "Confusion": "csst.maths.confusion",
    "ConstantGain": "csst.maths.gain",
    "CostTable": "csst.maths.costs",
    "DecisionRule": "csst.rules",
    "FittedModel": "csst.fitting.fitted_model",
    "Gain": "csst.maths.gain",
    "InputError": "csst.errors",
    "Multipliers": "csst.maths.multipliers",
    "Network": "csst.learners.network",
    "NonNegative": "csst.maths.domains",
    "Objective": "csst.maths.objectives",
    "ObjectiveError": "csst.errors",
    "PostHocClassifier": "csst.estimators.posthoc",
    "Product": "csst.maths.domains",
    "Settings": "csst.settings",
    "Simplex": "csst.maths.domains",
    "Task": "csst.data.task",
    "Trainer": "csst.training.trainer",
    "confusion_counts": "csst.maths.confusion",
    "cost_sensitive_loss": "csst.maths.losses",
    "execute": "csst.runs.execute",
    "fit": "csst.fitting.fit",
    "fit_rule": "csst.rules",
    "gain_matrix": "csst.maths.gain",
    "head_tail": "csst.maths.confusion",
    "kl_to_optimal": "csst.maths.losses",
    "objective": "csst.maths.language",
    "recipe": "csst.recipes",
    "scorer": "csst.estimators.scoring",
    "weighted_consistency": "csst.maths.losses",
}
__all__ = [
    "ALIASES",
    "CSSTClassifier",
    "Confusion",
    "ConstantGain",
    "CostTable",
    "DecisionRule",
    "FittedModel",
    "Gain",
    "InputError",
    "Multipliers",
    "Network",
    "NonNegative",
    "Objective",
    "ObjectiveError",
    "PostHocClassifier",
    "Product",
    "Settings",
    "Simplex",
    "Task",
    "Trainer",
    "confusion_counts",
    "cost_sensitive_loss",
    "execute",
    "fit",
    "fit_rule",
    "gain_matrix",
    "head_tail",
    "kl_to_optimal",
    "objective",
    "recipe",
    "scorer",
    "weighted_consistency",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'csst' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
