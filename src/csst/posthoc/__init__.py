"""Post-hoc adjustment: the rule argmax_j (G^T p)_j that is best for an objective, on any model's probabilities.

    fit        the best rule on validation examples, deterministic and randomised
    cross_fit  an estimate of it on held-out examples, and how much of it to use
    frontier   what rules on one model's probabilities can attain at all

`csst.posthoc.classifier` has the scikit-learn estimator.
"""

from __future__ import annotations

from csst.posthoc.crossfit import CrossFit, Option, cross_fit
from csst.posthoc.fitting import Fitted, fit
from csst.posthoc.rule import DecisionRule, Randomised, rule_from_dict, rule_from_tensors
from csst.posthoc.tradeoff import Frontier, Point, frontier

__all__ = [
    "CrossFit",
    "DecisionRule",
    "Fitted",
    "Frontier",
    "Option",
    "Point",
    "Randomised",
    "cross_fit",
    "fit",
    "frontier",
    "rule_from_dict",
    "rule_from_tensors",
]
