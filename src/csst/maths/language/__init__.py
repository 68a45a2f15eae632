"""An objective as a sentence: `csst.objective("max mean(recall) s.t. coverage >= 0.95/K")`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from csst.errors import InputError, ObjectiveError, nearest
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
) -> Objective:
    """Read an objective: a sentence, a short name (`ALIASES`), `package.module:Name`, or an `Objective` as it is.

        csst.objective("max mean(recall) s.t. coverage >= 0.95/K")        # paper, Sec. 2.1, Eq. 4 [eq:cov-const-obj]

    Args:
        text: what is read; docs/reference/language.md is the grammar.
        class_names: to which names in the sentence refer, K of them; may also come later, with `.bind`.
        groups: names of groups, and the classes of each by index or name; may also come later.
        metric_prior: the class prior under which the gain is derived, "train" or "evaluation"; None takes the default
            (docs/explanation/choices.md).
        epsilon: how far the rates are smoothed before differentiating.
        floor: the smallest multiplier of a worst case, as a fraction of uniform.

    Returns:
        The objective, bound to the class names if there are any.
    """
    if isinstance(text, Sentence):
        return replace(text, binding=text.binding.extended(None, class_names, groups))
    if isinstance(text, Objective):
        return text.bind(len(class_names), class_names, groups) if class_names is not None else text
    if not isinstance(text, str):
        raise InputError(f"an objective is a sentence or an Objective; found {type(text).__name__}")
    if metric_prior not in (None, *METRIC_PRIORS):
        raise InputError(f"metric_prior must be one of {METRIC_PRIORS}; found {metric_prior!r}")
    if re.fullmatch(r"[\w.]+:\w+", text.strip()):
        loaded = load(text.strip(), "an objective")
        instance = loaded() if isinstance(loaded, type) else loaded
        if not isinstance(instance, Objective):
            raise InputError(f"{text} must be a csst.Objective; found {type(instance).__name__}")
        return objective(instance, class_names=class_names, groups=groups)
    words = ALIASES.get(text.strip(), text)
    if re.fullmatch(r"\s*[\w]+(-[\w]+)+\s*", words):
        raise ObjectiveError(
            f"unknown objective {text.strip()!r}{nearest(text.strip(), ALIASES)}", words, 0, len(words)
        )
    goal, constraints = Parser(words).sentence()
    where = metric_prior or default_metric_prior(goal, constraints)
    binding = Binding().extended(None, class_names, groups)
    return Sentence(goal, constraints, words, binding, epsilon, floor, where)


__all__ = ["ALIASES", "ObjectiveError", "Sentence", "objective"]
