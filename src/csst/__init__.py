"""Cost-Sensitive Self-Training: train classifiers for the metric you care about.

Everything public is importable from here; heavy modules are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Confusion": "csst.confusion",
    "confusion_counts": "csst.confusion",
    "head_tail": "csst.confusion",
    "NonNegative": "csst.domains",
    "Product": "csst.domains",
    "Simplex": "csst.domains",
    "InputError": "csst.errors",
    "ObjectiveError": "csst.errors",
    "CSSTClassifier": "csst.estimator",
    "ConstantGain": "csst.gain",
    "Gain": "csst.gain",
    "gain_matrix": "csst.gain",
    "ALIASES": "csst.language",
    "objective": "csst.language",
    "cost_sensitive_loss": "csst.losses",
    "kl_to_optimal": "csst.losses",
    "weighted_consistency": "csst.losses",
    "Multipliers": "csst.multipliers",
    "Objective": "csst.objectives",
    "PostHocClassifier": "csst.estimator.posthoc",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'csst' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
