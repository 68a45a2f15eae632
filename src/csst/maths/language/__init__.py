"""An objective as a sentence: `csst.objective("max mean(recall) s.t. coverage >= 0.95/K")`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from csst.errors import InputError, ObjectiveError, nearest
from csst.maths.costs import read_cost_table
from csst.maths.domains import Simplex
from csst.maths.language.binding import Binding
from csst.maths.language.parser import Parser
from csst.maths.language.sentence import Sentence, default_metric_prior
from csst.maths.objectives import METRIC_PRIORS, MetricPrior, Objective
from csst.plugins import load

#: the short names of the paper's objectives
ALIASES = {
    "accuracy": "max accuracy",
    "mean-recall": "max mean(recall)",
    "min-recall": "max min(recall)",
    "min-ht-recall": "max min(recall[head], recall[tail])",
    "mean-recall-coverage": "max mean(recall) s.t. coverage >= 0.95/K",
    "mean-recall-ht-coverage": "max mean(recall) s.t. coverage[head] >= 0.95/K, coverage[tail] >= 0.95/K",
}


def objective(
    text: str | Objective,
    *,
    class_names: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    metric_prior: MetricPrior | None = None,
    epsilon: float = 1e-3,
    floor: float = Simplex.floor,
    confidence: float | None = None,
    costs: Any = None,
) -> Objective:
    """Read an objective: a sentence, a short name (`ALIASES`), `package.module:Name`, or an `Objective` unchanged.

        csst.objective("max mean(recall) s.t. coverage >= 0.95/K")        # paper, Sec. 2.1, Eq. 4 [eq:cov-const-obj]

    Args:
        text: the sentence; docs/reference/language.md is the grammar.
        class_names: class names that the sentence may use, K of them; may also come later, with `.bind`.
        groups: the classes of each group, by index or name; may also come later.
        metric_prior: the class prior under which the gain is derived, "train" or "evaluation"; None takes the default
            (docs/explanation/choices.md).
        epsilon: how far the rates are smoothed before differentiating.
        floor: the smallest multiplier of a worst case, as a fraction of uniform.
        confidence: the confidence that all bounds hold, as in "with confidence 0.95" at the end of a sentence; None
            leaves it to the sentence.
        costs: what `cost` refers to: a matrix with one row per true class and one column per prediction, a data frame
            with class names, or a `csst.CostTable`.

    Returns:
        The objective, bound to the class names if there are any.
    """
    table = read_cost_table(costs)
    if not isinstance(text, str | Objective):
        raise InputError(f"an objective is a sentence or an Objective; found {type(text).__name__}")
    if metric_prior not in (None, *METRIC_PRIORS):
        raise InputError(f"metric_prior must be one of {METRIC_PRIORS}; found {metric_prior!r}")
    goal = text if isinstance(text, Objective) else read_text(text, metric_prior, epsilon, floor)
    if isinstance(goal, Sentence):
        goal = replace(goal, binding=goal.binding.extended(None, class_names, groups, table))
    elif class_names is not None:
        goal = goal.bind(len(class_names), class_names, groups)
    return goal if confidence is None else with_confidence(goal, confidence)


def read_text(text: str, metric_prior: MetricPrior | None, epsilon: float, floor: float) -> Objective:
    """Return the objective of a sentence, a short name or `package.module:Name`, bound to nothing."""
    if re.fullmatch(r"[\w.]+:\w+", text.strip()):
        plugin = load(text.strip(), "an objective")
        instance = plugin() if isinstance(plugin, type) else plugin
        if not isinstance(instance, Objective):
            raise InputError(f"{text} must be a csst.Objective; found {type(instance).__name__}")
        return instance
    words = ALIASES.get(text.strip(), text)
    if re.fullmatch(r"\s*[\w]+(-[\w]+)+\s*", words):
        hint = nearest(text.strip(), ALIASES) or f"; write a sentence, or one of {', '.join(ALIASES)}"
        raise ObjectiveError(f"unknown objective {text.strip()!r}{hint}", words, 0, len(words))
    parser = Parser(words)
    goal, constraints = parser.sentence()
    where = metric_prior or default_metric_prior(goal, constraints)
    binding = Binding(text=words)
    return Sentence(goal, constraints, binding, epsilon, floor, where, parser.confidence, parser.minimizes)


def with_confidence(sentence: Objective, confidence: float) -> Sentence:
    """Return the sentence with a confidence for all its bounds; raise an error if it states a different one."""
    if not isinstance(sentence, Sentence):
        raise InputError(f"a confidence is for the bounds of a sentence; found the objective {type(sentence).__name__}")
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise InputError(f"a confidence is a number between 0 and 1, such as 0.95; found {confidence!r}")
    if sentence.confidence not in (None, float(confidence)):
        raise InputError(
            f"the sentence says confidence {sentence.confidence!r} and the argument {float(confidence)!r}: "
            "state one of them"
        )
    return replace(sentence, confidence=float(confidence))


__all__ = ["ALIASES", "ObjectiveError", "Sentence", "objective"]
