"""About how good a fitted rule is, and how much of it to use: cross-fitting on validation.

A rule fitted and measured on the same examples flatters itself, the more so the fewer they are. Here each example is
judged by a rule that was fitted without it; the counts add up over the folds and are divided once.

That is less flattering and still too high for a worst case: the counts are those of an average of the folds' rules, and
the min(recall) of an average is at least the average of the minima. With 60 examples of 3 classes (simulated, 75 draws)
the chosen option showed .64 where the rule was worth .59 on fresh examples, the full rule alone .64 for .61, and the
examples it was fitted on .70; with 250 of 10 classes (18 draws) .59 for .57, standard errors .01. The choice between
options adds to it, and so does whatever of the model has seen these examples before: the multipliers of a run move on
them, and they choose the step of a model that was selected, or stopped early, on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.confusion import Confusion, refuse_empty_classes
from csst.errors import InputError
from csst.objectives import Objective
from csst.posthoc.fitting import TOLERANCE, Fitted, described, fitted, searched
from csst.posthoc.problem import Problem
from csst.posthoc.rule import DecisionRule, Randomised
from csst.selection import Standing, standing

#: how much of the fitted rule may be used (`Fitted.shrunk`), simplest first; 0 is no adjustment
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class Option:
    """One way to finish a model and its cross-fitted standing: a strength, or a lottery (strength None)."""

    strength: float | None
    counts: Tensor
    standing: Standing


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The rule to use, and the options it was chosen from.

    `fitted` is the rule on all examples at full strength; `chosen` is the option that stood best when each example
    was judged by a rule fitted without it. Its value is still a little high, by .02 to .05 in simulations (see the
    module); methods are compared on test examples only.
    """

    rule: DecisionRule | Randomised
    fitted: Fitted
    options: tuple[Option, ...]
    chosen: Option

    @property
    def value(self) -> float:
        """The cross-fitted value of the objective."""
        return self.chosen.standing.value

    @property
    def confusion(self) -> Confusion:
        """The cross-fitted confusion of the chosen option."""
        return Confusion.from_counts(self.chosen.counts)

    @property
    def unadjusted(self) -> Standing:
        return self.options[0].standing

    @property
    def sentence(self) -> str:
        """What was chosen and what it is expected to give, in words."""
        strength = self.chosen.strength
        if isinstance(self.rule, Randomised):
            what = f"a randomised rule, a lottery between {len(self.rule.rules)} rules"
        elif strength in (0, 1):
            what = "the fitted rule" if strength else "no adjustment"
        else:
            what = f"the fitted rule at {strength} of its strength"
        return (
            f"{self.fitted.objective}: {described(self.chosen.standing)} cross-fitted with {what}, "
            f"{described(self.unadjusted)} without; on the examples it was fitted on the rule shows "
            f"{described(self.fitted.deterministic)} and a randomised one {described(self.fitted.lottery)}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the rule, and the numbers behind the choice."""
        return {
            "rule": self.rule.as_dict(),
            "strength": self.chosen.strength,
            "value": self.value,
            "violation": self.chosen.standing.violation,
            "options": [
                {"strength": o.strength, "value": o.standing.value, "violation": o.standing.violation}
                for o in self.options
            ],
            "plug_in": {
                "deterministic_value": self.fitted.deterministic_value,
                "randomised_value": self.fitted.randomised_value,
                "unadjusted_value": self.fitted.unadjusted.value,
            },
            "sentence": self.sentence,
        }


def cross_fit(
    probs: Any,
    labels: Any,
    objective: Objective | str,
    train_prior: Any = None,
    *,
    folds: int = 5,
    randomised: bool = False,
    tolerance: float = 1e-3,
    sweeps: int | None = None,
    seed: int = 0,
) -> CrossFit:
    """The rule for an objective, no stronger than held-out examples support (see `fit` for the common arguments).

    On each fold the rule of the other folds is measured at every strength; the strength that stands best over all
    folds, the smaller one of equals, is used with the rule fitted on all examples. randomised: a lottery between
    rules is an option too. tolerance: a constraint missed by no more than this counts as met when options are
    compared.
    """
    problem = Problem.of(probs, labels, objective, train_prior, TOLERANCE)
    if not 0 <= tolerance < float("inf"):
        raise InputError(f"tolerance is the miss of a constraint that is forgiven, >= 0; found {tolerance!r}")
    held = fold_numbers(problem.labels, problem.classes, folds, seed)
    strengths: list[float | None] = [*STRENGTHS, *([None] if randomised else [])]
    counts = torch.zeros(len(strengths), problem.classes, problem.classes, dtype=torch.float64)
    lottery: tuple[Randomised, ...]
    for fold in range(folds):
        inside, outside = (held != fold).nonzero().flatten(), (held == fold).nonzero().flatten()
        if not len(outside):
            continue
        part, apart = problem.part(inside), (problem.probs[outside], problem.labels[outside])
        if randomised:
            made = fitted(part, sweeps, seed)
            full, lottery = made.rule, (made.randomised,)
        else:
            best = max(searched(part, sweeps, seed, lottery=False), key=lambda c: c.key)
            full, lottery = DecisionRule(best.matrix), ()
        used: list[DecisionRule | Randomised] = [full.shrunk(s, part.odds) for s in STRENGTHS]
        used += lottery
        counts += torch.stack([one.counts(*apart).double() for one in used])
    options = tuple(
        Option(strength, one, standing(problem.objective, problem.confusion(one), tolerance))
        for strength, one in zip(strengths, counts, strict=True)
    )
    # max keeps the first of equals, and the simplest comes first.
    chosen = max(options, key=lambda o: (-round(o.standing.violation, 9), round(o.standing.value, 9)))
    whole = fitted(problem, sweeps, seed)
    rule = whole.randomised if chosen.strength is None else whole.shrunk(chosen.strength)
    return CrossFit(rule, whole, options, chosen)


def fold_numbers(labels: Tensor, classes: int, folds: int, seed: int) -> Tensor:
    """The fold of each example: the examples of each class are shuffled and dealt round the folds."""
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= len(labels):
        raise InputError(f"folds is a whole number from 2 to the number of examples; found {folds!r}")
    totals = torch.bincount(labels, minlength=classes)
    refuse_empty_classes(totals, None, "cross-fitting", "the validation examples")
    few = (totals < 2).nonzero().flatten().tolist()
    if few:
        raise InputError(
            f"cross-fitting needs at least 2 validation examples of every class, one to fit on and one to judge; "
            f"classes {few} have 1: add examples, or use fit"
        )
    generator, dealt = torch.Generator().manual_seed(seed), 0
    found = torch.empty_like(labels)
    for k in range(classes):
        members = (labels == k).nonzero().flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        found[members] = (dealt + torch.arange(len(members))) % folds
        dealt += len(members)
    return found
