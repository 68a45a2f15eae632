"""A decision rule in use: what new rows without labels say about it, and the rule that their class balance asks for.

seen = watch(deployed, probs, shift=measure_shift(reference, rows)); print(seen)
adapted = adapt_rule(deployed, probs, seen.balance)

Where classes look as they did, only the balance can differ. Rates of a class stay, and so does a worst-class recall;
precision, coverage, F1 and accuracy follow the balance. Whether classes look as they did is what the test says
(`csst.estimation.shift_test`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.estimation.class_rates import RateEstimate, combine_rates, decide_rates
from csst.estimation.expectation import estimate_intervals, expected_value
from csst.estimation.held_out_scores import MOST_UNLABELED, HeldOutScores, check_probs, take_gain_out, take_out
from csst.estimation.new_balance import NewBalance, estimate_new_balance
from csst.estimation.shift import estimate_prior
from csst.estimation.shift_test import FEWEST_ROWS, ShiftTest
from csst.maths.objectives import Objective
from csst.rules.feasibility import Bound, describe_bounds, measure_bounds
from csst.rules.fit import FittedRule, fit_evidence
from csst.rules.rule import DecisionRule
from csst.rules.soft_objective import SoftObjective

#: rows are of one class if all others have less than this share together
ONE_CLASS = 0.02
#: and fewer rows than this
FEWEST_OTHERS = 5.0
#: the share of new rows that counts as most unlike the rows of the fit
STRANGEST = 0.05
#: classes that a text lists one by one
FEW_CLASSES = 12
NO_TEST = "whether the labeled classes explain the rows was not tested: that takes unlabeled rows of the fit"


@dataclass(frozen=True, eq=False)
class Deployed:
    """A rule in use, and what it was fitted on.

    Args:
        rule: what decides.
        objective: bound to the classes.
        evidence: scores of labeled and unlabeled rows of the fit.
        counts: decisions on labeled rows, by rules that were not fitted on them, (K, K).
        prior: the class balance it was made for, (K,).
        value: value of the objective, as expected after the fit.
        class_names: K names.
    """

    rule: DecisionRule
    objective: Objective
    evidence: HeldOutScores
    counts: np.ndarray
    prior: np.ndarray
    value: float
    class_names: tuple[str, ...]

    def score(self, probs: Any) -> np.ndarray:
        """Return z = log p - log pi_train of the model's probabilities (N, K)."""
        evidence = self.evidence
        posterior = take_gain_out(check_probs(probs, evidence.classes), evidence.undo)
        return take_out(posterior, evidence.train_prior)

    def estimate_prior(self, probs: Any) -> np.ndarray:
        """Return the class balance of new rows by EM, (K,), from probabilities (N, K)."""
        return estimate_prior(self.evidence.calibration.apply(self.score(probs)), self.evidence.labeled_prior)


@dataclass(frozen=True, eq=False)
class Monitoring:
    """What new rows without labels say about a rule in use.

    Args:
        balance: the class balance of the new rows.
        prior: the class balance that the rule was made for, (K,).
        estimate: the rates to expect on the new rows.
        objective: bound to the classes.
        former_value: value of the objective, as expected after the fit.
        shift: whether the labeled classes explain the rows; None if that was not tested.
        region: the class that new rows unlike the rows of the fit are mostly predicted as; None if there is none.
        class_names: K names.
    """

    balance: NewBalance
    prior: np.ndarray
    estimate: RateEstimate
    objective: Objective
    former_value: float
    shift: ShiftTest | None
    region: str | None
    class_names: tuple[str, ...]

    @property
    def is_explained(self) -> bool | None:
        """Whether the labeled classes in some balance explain the rows; None if that was not tested."""
        return None if self.shift is None else self.shift.is_explained

    @cached_property
    def value(self) -> float:
        """The value of the objective to expect on the new rows."""
        return expected_value(self.objective, self.estimate)

    @cached_property
    def intervals(self) -> dict[str, Any]:
        """95 % intervals as after a fit, with the doubt about the balance."""
        return estimate_intervals(self.objective, self.estimate)

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """Every constraint as it is expected to hold on the new rows."""
        goal = SoftObjective(self.objective, self.balance.prior, 1.0, self.balance.covariance)
        return measure_bounds(goal, self.estimate)

    @property
    def sentences(self) -> list[str]:
        """All of it in plain words."""
        low, high = self.balance.interval()
        rows = sorted(range(len(low)), key=lambda k: -abs(self.balance.prior[k] - self.prior[k]))[:FEW_CLASSES]
        classes = [
            f"{self.class_names[k]!r} {self.balance.prior[k]:.3f} ({low[k]:.3f}–{high[k]:.3f}, was {self.prior[k]:.3f})"
            for k in sorted(rows)
        ]
        rest_count = len(low) - len(rows)
        class_list = ", ".join(classes) + (f", and {rest_count} more" if rest_count else "")
        interval = self.intervals["value"]
        ends = sorted(self.objective.as_stated(interval[end]) for end in ("low", "high"))
        value, former_value = map(self.objective.describe_value, (self.value, self.former_value))
        sentences = [
            f"class balance of {self.balance.rows:,} new rows (95 % intervals): {class_list}",
            f"{self.objective}: expected {value} ({ends[0]:.3f}–{ends[1]:.3f}) on the new rows; "
            f"{former_value} was expected before.{describe_bounds(self.bounds)}",
        ]
        if self.shift is None:
            return [*sentences, NO_TEST]
        where = f"; they are mostly predicted as {self.region!r}" if self.region is not None else ""
        sentences.append(self.shift.sentence + where)
        if not self.shift.is_explained:
            sentences.append(
                "the balance and the expected values above hold only where classes look as they did: label some of "
                "the new rows, fit again with them, and do not adapt"
            )
        return sentences

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "rows": self.balance.rows,
            "class_names": list(self.class_names),
            "balance": self.balance.as_dict(),
            "made_for": self.prior.tolist(),
            "value": self.value,
            "former_value": self.former_value,
            "intervals": self.intervals,
            "bounds": [bound.as_dict() for bound in self.bounds],
            "shift": None if self.shift is None else self.shift.as_dict(),
            "region": self.region,
            "sentences": self.sentences,
        }


def watch(deployed: Deployed, probs: Any, shift: ShiftTest | None = None) -> Monitoring:
    """Return what new rows say about a rule in use.

    Args:
        deployed: the rule.
        probs: probabilities of the new rows by its model, (N, K).
        shift: whether the labeled classes explain the rows; None if that was not tested.
    """
    values = check_probs(probs, deployed.evidence.classes)
    refuse_few(len(values))
    balance = estimate_new_balance(deployed.evidence, deployed.score(values))
    decisions = deployed.rule.predict(values).numpy()
    sample = sample_rows(len(values))
    evidence = renew_evidence(deployed, values, balance)
    soft_counts = decide_rates(evidence.posterior, decisions[sample], evidence.classes)
    return Monitoring(
        balance,
        deployed.prior,
        combine_rates(evidence, deployed.counts, soft_counts, balance.prior),
        deployed.objective,
        deployed.value,
        shift,
        None if shift is None or shift.is_explained else find_region(shift, decisions, deployed.class_names),
        deployed.class_names,
    )


def sample_rows(rows: int) -> np.ndarray:
    """Return indices of the new rows that a rule is fitted on."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_UNLABELED])


def renew_evidence(deployed: Deployed, probs: np.ndarray, balance: NewBalance) -> HeldOutScores:
    """Return the evidence of the fit with some of the new rows, and their balance, in place of its unlabeled rows."""
    evidence = deployed.evidence
    new_scores = deployed.score(probs[sample_rows(len(probs))])
    return replace(
        evidence,
        unlabeled_scores=new_scores,
        start=evidence.calibration,
        doubt="",
        prior_covariance=balance.covariance,
    )


def adapt_rule(deployed: Deployed, monitoring: Monitoring, probs: Any, seed: int = 0) -> FittedRule:
    """Return the rule solved again for the class balance of new rows.

    Args:
        deployed: the rule in use.
        monitoring: what the new rows say; a shift that the classes do not explain is refused.
        probs: probabilities of the new rows, (N, K).
        seed: seed of the folds on which rules are judged.
    """
    refuse_unexplained(monitoring)
    objective = deployed.objective.unpromised  # no fresh labels certify a rule that is new
    evidence = renew_evidence(deployed, check_probs(probs, deployed.evidence.classes), monitoring.balance)
    return fit_evidence(evidence, objective, monitoring.balance.prior, seed)


def refuse_few(rows: int) -> None:
    """Raise for fewer new rows than say anything about a balance."""
    if rows < FEWEST_ROWS:
        count = "1 row" if rows == 1 else f"{rows} rows"
        raise InputError(
            f"the class balance of new rows needs at least {FEWEST_ROWS} of them; found {count}: collect more"
        )


def refuse_unexplained(monitoring: Monitoring) -> None:
    """Raise where a rule cannot be solved again: rows that the classes do not explain, or rows of one class."""
    if monitoring.shift is not None and not monitoring.shift.is_explained:
        raise InputError(
            f"the rule is not adapted: {monitoring.shift.sentence}, so that another class balance alone would not make "
            "it right: label some of the new rows and fit again"
        )
    prior = monitoring.balance.prior
    if 1 - prior.max() < min(ONE_CLASS, FEWEST_OTHERS / monitoring.balance.rows):
        name = monitoring.class_names[int(prior.argmax())]
        raise InputError(
            f"the rule is not adapted: the new rows look like the single class {name!r}, and a rule for them would "
            "have nothing to tell apart: collect rows of more classes"
        )


def find_region(shift: ShiftTest, decisions: np.ndarray, class_names: Sequence[str]) -> str | None:
    """Return the class that rows unlike the fit are predicted as more often than other rows are; None if none is."""
    is_compared = np.isfinite(shift.strangeness)
    edge = np.quantile(shift.strangeness[is_compared], 1 - STRANGEST)
    is_strange = is_compared & (shift.strangeness >= edge)
    shares = [
        np.bincount(decisions[rows], minlength=len(class_names)) / rows.sum() for rows in (is_strange, is_compared)
    ]
    excess = shares[0] - shares[1]
    k = int(excess.argmax())
    return class_names[k] if excess[k] > shares[1][k] else None
