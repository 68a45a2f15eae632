"""The decision rule: what a classifier's probabilities should be turned into for an objective.

fit_rule         the rule, from few labels and many unlabeled rows
trace_frontier   what rules on one model's probabilities can trade off
"""

from __future__ import annotations

from csst.rules.fit import FittedRule, fit_evidence, fit_rule
from csst.rules.frontier import Frontier, Point, fit_point, trace_frontier
from csst.rules.rule import DecisionRule, GroupedRule, Rule, rule_from_dict

__all__ = [
    "DecisionRule",
    "FittedRule",
    "Frontier",
    "GroupedRule",
    "Point",
    "Rule",
    "fit_evidence",
    "fit_point",
    "fit_rule",
    "rule_from_dict",
    "trace_frontier",
]
