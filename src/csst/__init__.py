"""Cost-Sensitive Self-Training: train classifiers for the metric you care about.

Everything public is importable from here; heavy modules are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Confusion": "csst.maths.confusion",
    "confusion_counts": "csst.maths.confusion",
    "head_tail": "csst.maths.confusion",
    "NonNegative": "csst.maths.domains",
    "Product": "csst.maths.domains",
    "Simplex": "csst.maths.domains",
    "InputError": "csst.errors",
    "ObjectiveError": "csst.errors",
    "CSSTClassifier": "csst.sklearn",
    "ConstantGain": "csst.maths.gain",
    "Gain": "csst.maths.gain",
    "gain_matrix": "csst.maths.gain",
    "ALIASES": "csst.maths.language",
    "objective": "csst.maths.language",
    "cost_sensitive_loss": "csst.maths.losses",
    "kl_to_optimal": "csst.maths.losses",
    "weighted_consistency": "csst.maths.losses",
    "Multipliers": "csst.maths.multipliers",
    "Objective": "csst.maths.objectives",
    "PostHocClassifier": "csst.sklearn.posthoc",
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
