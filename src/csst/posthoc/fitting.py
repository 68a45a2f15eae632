"""The decision rule that is best for an objective on validation examples, given a model's probabilities.

    argmax_j (G^T p)_j,    G_ij = (1/pi_i) d/dR_ij [u + lambda . phi]

is the best response to multipliers lambda. So the same game as in training is played here, with the probabilities
fixed: dual steps and linear programmes move lambda, the best rules met on the way are improved by a local search on
the objective itself, and the best one is kept, constraints first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.confusion import Confusion
from csst.errors import InputError
from csst.objectives import Objective, payoff_of
from csst.posthoc.mixture import Mixture, best_mixture
from csst.posthoc.prices import priced
from csst.posthoc.problem import Problem
from csst.posthoc.rule import DecisionRule, Randomised
from csst.posthoc.sweep import Candidate, Search, candidate, candidates
from csst.selection import Standing, standing

#: a constraint missed by no more than this counts as met: the rounding of a linear programme
TOLERANCE = 1e-6
#: a randomised rule is worth a word if it is better by more than this
WORTH_SAYING = 0.005
#: the local search ends after so many new starts that led to nothing better
PATIENCE = 4


@dataclass(frozen=True, eq=False)
class Fitted:
    """A rule and what it does on the examples it was fitted on: optimistic, see `cross_fit` for a better number."""

    rule: DecisionRule
    randomised: Randomised
    objective: Objective
    confusion: Confusion
    deterministic: Standing
    lottery: Standing
    unadjusted: Standing
    #: what takes the probabilities to the class prior of these examples
    odds: Tensor

    def shrunk(self, strength: float) -> DecisionRule:
        """The rule at a part of its strength: 0 is no adjustment, 1 all of it."""
        return self.rule.shrunk(strength, self.odds)

    @property
    def deterministic_value(self) -> float:
        return self.deterministic.value

    @property
    def randomised_value(self) -> float:
        return self.lottery.value

    @property
    def randomising_helps(self) -> bool:
        """Whether the randomised rule is better by more than the grain of a few examples."""
        if abs(self.deterministic.violation - self.lottery.violation) > WORTH_SAYING:
            return self.lottery.violation < self.deterministic.violation
        return self.lottery.value > self.deterministic.value + WORTH_SAYING

    @property
    def sentence(self) -> str:
        """What was reached, in words."""
        told = (
            f"{self.objective}: {described(self.deterministic)} with the rule, {described(self.unadjusted)} without, "
            "on the examples it was fitted on"
        )
        if not self.randomising_helps:
            return f"{told}; a randomised rule would gain no more than {WORTH_SAYING}."
        return (
            f"{told}; no deterministic rule was found that reaches the {described(self.lottery)} of a randomised one, "
            f"a lottery between {len(self.randomised.rules)} rules."
        )


def described(now: Standing) -> str:
    return f"{now.value:.3f}" + (f" (a constraint missed by {now.violation:.3f})" if now.violation > 0 else "")


def fit(
    probs: Any,
    labels: Any,
    objective: Objective | str,
    train_prior: Any = None,
    *,
    tolerance: float = TOLERANCE,
    sweeps: int | None = None,
    seed: int = 0,
) -> Fitted:
    """The rule that is best for the objective on these probabilities (N, K) and labels (N,).

    train_prior: the class shares of the training data, None for the shares of these labels. They only say which classes
    are head and tail; the prior behind the probabilities is estimated, and the objective is measured on these examples.
    sweeps: how many coefficients the local search may sweep; None for 90 + 9 K, half as many again where the objective
    looks at wrong predictions too (precision, coverage); where coverage is bounded a second walk may take half as
    many more (`csst.posthoc.prices`). The same seed gives the same rule.
    """
    return fitted(Problem.of(probs, labels, objective, train_prior, tolerance), sweeps, seed)


def fitted(problem: Problem, sweeps: int | None = None, seed: int = 0) -> Fitted:
    """`fit` of a checked problem."""
    # The rules that always name the same class are of use to a lottery where the probabilities know little.
    always = [torch.diag(row) + 1e-9 * row for row in torch.eye(problem.classes, dtype=torch.float64)]
    first, second = walks(problem, sweeps, seed)
    met, mixture = generated(problem, distinct([*first, *candidates(problem, always)]))
    if second:
        # What was met before stays in front, so that the weights of the first lottery still point at its rules.
        met, again = generated(problem, distinct([*met, *second]))
        mixture = max(mixture, again, key=lambda m: m.key)
    best = max(met, key=lambda c: c.key)
    used = mixture.weights.nonzero().flatten().tolist()
    lottery = Randomised(tuple(DecisionRule(met[i].matrix) for i in used), mixture.weights[used])

    def stands(counts: Tensor) -> Standing:
        return standing(problem.objective, problem.confusion(counts), problem.tolerance)

    plain = problem.counts(torch.eye(problem.classes, dtype=torch.float64))
    return Fitted(
        DecisionRule(best.matrix),
        lottery,
        problem.objective,
        problem.confusion(best.counts),
        stands(best.counts),
        stands(mixture.counts),
        stands(plain),
        problem.odds,
    )


def searched(problem: Problem, sweeps: int | None = None, seed: int = 0, lottery: bool = True) -> list[Candidate]:
    """The rules met in the search for the best one; without `lottery`, only those that one rule needs."""
    first, second = walks(problem, sweeps, seed, lottery)
    return distinct([*first, *second])


def walks(
    problem: Problem, sweeps: int | None, seed: int, lottery: bool = True
) -> tuple[list[Candidate], list[Candidate]]:
    """The rules met from the usual starts, and from those by prices where coverage is bounded.

    Single coefficients stall under such constraints. Each walk has a budget of its own, so that the second can
    add to what the first finds and take nothing away.
    """
    if sweeps is not None and (isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1):
        raise InputError(f"sweeps is a whole number >= 1, or None for the default; found {sweeps!r}")
    plain = torch.ones(problem.classes, dtype=torch.float64)
    # As it is, as if all classes were equally frequent, and as frequent as they are here.
    starts = candidates(problem, [torch.diag(w) for w in (plain, 1 / problem.behind, problem.odds)])
    usual = (90 + 9 * problem.classes) * (3 if problem.has_offsets else 2) // 2
    allowed = usual if sweeps is None else sweeps
    search, later = (Search(problem, torch.Generator().manual_seed(seed), n) for n in (allowed, (allowed + 1) // 2))
    if problem.classes == 2 and not problem.has_offsets and not lottery:
        return [*starts, search.refined(starts[0])], []  # a single sweep has seen every rule
    met = distinct([*starts, *dual(problem, starts[1])])
    met, mixture = generated(problem, met)
    ranked = sorted(met, key=lambda c: c.key, reverse=True)
    refined = climbed(search, distinct([*ranked[:2], *starts[:2]]))
    more = priced(problem, mixture)
    return distinct([*met, *refined]), [*more, *climbed(later, more)] if more else []


def climbed(search: Search, starts: list[Candidate]) -> list[Candidate]:
    """The starts refined, then the best of them disturbed and refined until that leads to nothing better."""
    refined = [search.refined(start) for start in starts]
    best, failures = max(refined, key=lambda c: c.key), 0
    while search.sweeps > 0 and failures < PATIENCE and (search.problem.classes > 2 or search.problem.has_offsets):
        again = search.refined(search.disturbed(best))
        refined.append(again)
        best, failures = (again, 0) if again.key > best.key else (best, failures + 1)
    return refined


def dual(problem: Problem, start: Candidate, steps: int = 40) -> list[Candidate]:
    """The rules of a game in which the multipliers move against the confusion and the rule is the best response.

    Constraints move by steps of a size that adapts to the size of their payoffs, worst cases by exponentiated
    gradient with a falling step; what is not linear is linearised at a running mean of the confusions (Frank-Wolfe).
    """
    objective, domain = problem.objective, problem.objective.domain
    mean = last = start.counts
    payoff = payoff_of(objective, problem.confusion(mean))
    multipliers = domain.start(len(payoff), problem.classes)
    shared = domain.worst_cases(len(payoff))
    squares = torch.zeros_like(payoff)
    matrices: list[Tensor] = []
    for step in range(steps):
        matrices.append(problem.derivative(multipliers, problem.confusion(mean)))
        counts = problem.counts(matrices[-1])
        if not len(payoff) and torch.equal(counts, last):
            break
        last, pace = counts, max(2 / (step + 2), 0.1)
        mean = (1 - pace) * mean + pace * counts
        payoff = payoff_of(objective, problem.confusion(counts)).detach()
        squares = squares + payoff.square()
        scaled = torch.where(shared, payoff, payoff / squares.sqrt().clamp(min=1e-12))
        size = torch.where(shared, 4 / (step + 1) ** 0.5, 1.0)
        multipliers = domain.step(multipliers, size * scaled, 1.0)
    return candidates(problem, matrices)


def generated(problem: Problem, met: list[Candidate], rounds: int = 12) -> tuple[list[Candidate], Mixture]:
    """The best lottery between the rules met; the best responses to its multipliers join them until none is new."""
    for _ in range(rounds):
        start = max(range(len(met)), key=lambda i: met[i].key)
        mixture = best_mixture(problem, torch.stack([c.counts for c in met]), start)
        if mixture.multipliers is None:
            break
        response = problem.derivative(mixture.multipliers, problem.confusion(mixture.counts))
        more = distinct([*met, candidate(problem, response)])
        if len(more) == len(met):
            break
        met = more
    else:
        start = max(range(len(met)), key=lambda i: met[i].key)
        mixture = best_mixture(problem, torch.stack([c.counts for c in met]), start)
    return met, mixture


def distinct(candidates: list[Candidate]) -> list[Candidate]:
    """Without the rules whose confusion another one has too; the first is kept."""
    seen: dict[bytes, Candidate] = {}
    for one in candidates:
        seen.setdefault(one.counts.numpy().tobytes(), one)
    return list(seen.values())
