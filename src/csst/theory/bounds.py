"""The bounds of the theory: gamma, the lemma, Theorem 1 and the generalization bound.

Errors and regularizers are in units of err_w, between 0 and |w|_1; the lemma is about probabilities. Every bound needs
gamma > 1, as its proof does; Theorem 1 can beat the pseudo-labeler only if gamma > 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.theory.expansion import Expansion, largest_error
from csst.theory.weighted_errors import least_error, total_weight

#: the value that gamma must exceed for Theorem 1 to promise an improvement
GAMMA = 3.0


def error_fraction(err_pl: float, err_star: float, weights: Any) -> float:
    """Return the fraction of mistakes p_w = (err_w(F_pl) + err_w(F*)) / |w|_1.

    Paper, Sec. 3.4, Assumption 3 [pseudo-labeler].

    Args:
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of the best consistent classifier F*.
        weights: w, (K, K), non-negative.

    Returns:
        p_w in [0, 1].

    Raises:
        InputError: an error is negative or infinite, or their sum exceeds |w|_1.
    """
    for name, error in (("err_pl", err_pl), ("err_star", err_star)):
        if not 0 <= error < math.inf:
            raise InputError(f"{name} must be a number >= 0; found {error!r}")
    fraction = (err_pl + err_star) / total_weight(weights)
    if fraction > 1 + 1e-9:
        raise InputError(
            f"the theory needs err_w(F_pl) + err_w(F*) <= |w|_1; found {err_pl + err_star:.4g} "
            f"and |w|_1 = {total_weight(weights):.4g}"
        )
    return min(fraction, 1.0)


def gamma(c: Expansion, err_pl: float, err_star: float, weights: Any) -> float:
    """Return gamma = c(p_w), the expansion of sets as large as the mistakes.

    Paper, Sec. 3.4, Assumption 3 [pseudo-labeler].

    Args:
        c: the expansion of P_w.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        weights: w, (K, K), non-negative.

    Returns:
        gamma, at most 1 / p_w; infinite without mistakes.
    """
    return expand(c, error_fraction(err_pl, err_star, weights))


def expand(c: Expansion, fraction: float) -> float:
    """Return c(fraction); infinity for an empty set, for which c is not defined."""
    return c(fraction) if fraction > 0 else math.inf


def factors(gamma: float) -> tuple[float, float, float]:
    """Return (gamma+1)/(gamma-1), 2 gamma/(gamma-1) and 2/(gamma-1); 1, 2 and 0 for an infinite gamma."""
    if not gamma > 1:
        raise InputError(f"the bounds divide by gamma - 1 and need gamma > 1; found gamma = {gamma:.4g}")
    if gamma == math.inf:
        return 1.0, 2.0, 0.0
    return (gamma + 1) / (gamma - 1), 2 * gamma / (gamma - 1), 2 / (gamma - 1)


def theoretical_objective(gamma: float, disagreement: float, consistency: float) -> float:
    """Return the objective that the theory minimizes. Paper, Sec. 3.4, Eq. 7 [ssl-non-decomp-obj-theoretical].

        L_w(F) = (gamma+1)/(gamma-1) L_w(F, F_pl) + 2 gamma/(gamma-1) R_{B,w}(F)

    Args:
        gamma: c(p_w), above 1.
        disagreement: L_w(F, F_pl) = sum_ij w_ij P_i(F != F_pl).
        consistency: R_{B,w}(F).

    Returns:
        L_w(F).
    """
    agreement_factor, consistency_factor, _ = factors(gamma)
    return agreement_factor * disagreement + consistency_factor * consistency


def lemma_bound(
    gamma: float, disagreement: float, inconsistency: float, reference_inconsistency: float, mistakes: float
) -> float:
    """Return an upper bound of Q(F != H) for any classifiers F and H. Paper, appendix "Proofs", Lemma 1 [err-bd].

        (gamma+1)/(gamma-1) Q(F != F_pl) + 2 gamma/(gamma-1) [Q(S_B^c(F)) + Q(S_B^c(H))] - Q(F_pl != H)

    Args:
        gamma: c(Q(F_pl != H)), above 1.
        disagreement: Q(F != F_pl).
        inconsistency: Q(S_B^c(F)), the mass of points x such that F is not constant on B(x).
        reference_inconsistency: Q(S_B^c(H)).
        mistakes: Q(F_pl != H).

    Returns:
        The bound, which may exceed 1.
    """
    agreement_factor, consistency_factor, _ = factors(gamma)
    inconsistencies = inconsistency + reference_inconsistency
    return agreement_factor * disagreement + consistency_factor * inconsistencies - mistakes


def theorem_bound(gamma: float, err_pl: float, err_star: float, consistency_star: float) -> float:
    """Return an upper bound of err_w of the minimizer of L_w. Paper, Sec. 3.4, Theorem 1 [main-err-bd].

        2/(gamma-1) err_w(F_pl) + (gamma+1)/(gamma-1) err_w(F*) + 4 gamma/(gamma-1) R_{B,w}(F*)

    Args:
        gamma: c(p_w), above 1; only above 3 can the bound be smaller than err_pl.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).

    Returns:
        The bound, in units of err_w.
    """
    agreement_factor, consistency_factor, labeler_factor = factors(gamma)
    return labeler_factor * err_pl + agreement_factor * err_star + 2 * consistency_factor * consistency_star


def classifier_bound(
    gamma: float, disagreement: float, consistency: float, consistency_star: float, err_pl: float, err_star: float
) -> float:
    """Return an upper bound of err_w of any classifier F, trained to the optimum or not.

        L_w(F) + 2 gamma/(gamma-1) R_{B,w}(F*) - err_w(F_pl) + 2 err_w(F*)

    Paper, appendix "All-Layer Margin", proof of Theorem 2.

    Args:
        gamma: c(p_w), above 1.
        disagreement: L_w(F, F_pl).
        consistency: R_{B,w}(F).
        consistency_star: R_{B,w}(F*).
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.

    Returns:
        The bound, in units of err_w.
    """
    objective = theoretical_objective(gamma, disagreement, consistency)
    return objective + factors(gamma)[1] * consistency_star - err_pl + 2 * err_star


@dataclass(frozen=True)
class MarginSample:
    """Margins of a network on a sample from P_w.

    Args:
        margin_fraction: (1/n) sum 1(m(Phi, x, F_pl(x)) <= t1).
        view_margin_fraction: (1/n) sum 1(m_B(Phi, x) <= t2).
        thresholds: t1 and t2.
        examples: n.
        complexities: C(F_i) of every layer, supplied by the user.
    """

    margin_fraction: float
    view_margin_fraction: float
    thresholds: tuple[float, float]
    examples: int
    complexities: tuple[float, ...]

    def terms(self, delta: float) -> tuple[float, float]:
        """Return upper bounds of the two fractions under P_w, from their values in the sample.

        Paper, appendix "All-Layer Margin", Propositions 3 and 4.

        Args:
            delta: the probability that a bound fails, between 0 and 1.

        Returns:
            The bounds for the margins and for the margins over views.
        """
        margin_threshold, view_threshold = self.thresholds
        complexity = float(np.sum(self.complexities))
        if not (min(self.thresholds) > 0 and self.examples > 0 and 0 < delta < 1 and complexity >= 0):
            raise InputError(
                f"the bound needs thresholds > 0, examples > 0, 0 < delta < 1 and complexities >= 0; "
                f"found {self.thresholds}, {self.examples}, {delta}, {complexity}"
            )
        sampling_error = math.sqrt((math.log(1 / delta) + math.log(self.examples)) / self.examples)
        slope = complexity / math.sqrt(self.examples)
        return (
            self.margin_fraction + slope / margin_threshold + sampling_error,
            self.view_margin_fraction + slope / view_threshold + sampling_error,
        )


def generalization_bound(
    gamma: float,
    sample: MarginSample,
    errors: tuple[float, float],
    consistency_star: float,
    weights: Any,
    delta: float = 0.05,
) -> float:
    """Return `classifier_bound` estimated from a sample of P_w. Paper, appendix "All-Layer Margin", Theorem 2.

    The sample's fractions are probabilities under P_w, so they are multiplied by |w|_1. The paper hides constants and
    logarithms in O~; they are 1 here, so read the result as an order of magnitude. The paper prints "=" for "<=".

    Args:
        gamma: c(p_w), above 1.
        sample: the margins on the sample.
        errors: err_w of F_pl and of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.
        delta: the probability that the bound fails.

    Returns:
        The bound, in units of err_w; it holds with probability 1 - delta.
    """
    total = total_weight(weights)
    disagreement, consistency = (total * term for term in sample.terms(delta))
    return classifier_bound(gamma, disagreement, consistency, consistency_star, *errors)


def useful_errors(c: Expansion, err_star: float, consistency_star: float, weights: Any) -> tuple[float, float] | None:
    """Return the range of err_w(F_pl) in which Theorem 1 promises an improvement. Paper, Sec. 3.4.

    A small error leaves nothing to gain over F*; a large one makes gamma, which depends on it, too small. The range is
    searched on a grid of 2,000 errors.

    Args:
        c: the expansion of P_w.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.

    Returns:
        The smallest and the largest such error; None if no error qualifies.
    """
    limit = largest_error(c, GAMMA) * total_weight(weights) - err_star
    if limit <= 0:
        return None

    def promises_improvement(error: float) -> bool:
        factor = gamma(c, error, err_star, weights)
        return factor > GAMMA and theorem_bound(factor, error, err_star, consistency_star) < error

    errors = [error for error in np.linspace(0, limit, 2002)[1:-1].tolist() if promises_improvement(error)]
    return (errors[0], errors[-1]) if errors else None


@dataclass(frozen=True)
class Assumptions:
    """Whether Theorem 1 applies, with its numbers.

    Args:
        fraction: p_w, at most 1.
        gamma: c(p_w).
        promise: the bound of Theorem 1; None unless gamma > 1.
        against: the violated assumptions as sentences; empty if the theorem applies.
    """

    fraction: float
    gamma: float
    promise: float | None
    against: tuple[str, ...]

    @property
    def hold(self) -> bool:
        """Whether no assumption is violated."""
        return not self.against


def check_assumptions(
    c: Expansion, err_pl: float, err_star: float, consistency_star: float, weights: Any
) -> Assumptions:
    """Check whether Theorem 1 applies and promises an improvement.

    Paper, Sec. 3.2 to 3.4, Assumptions 1 [mu-small], 2 [c-exp] and 3 [pseudo-labeler].

    Args:
        c: the expansion of P_w.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.

    Returns:
        The numbers of the theorem and the violated assumptions.
    """
    total = total_weight(weights)
    floor = least_error(weights)
    against = []
    if err_pl + err_star > total:
        against.append(
            f"err_w(F_pl) + err_w(F*) = {err_pl + err_star:.3f} exceeds |w|_1 = {total:.3f}: the labeler is too wrong"
        )
    fraction = min((err_pl + err_star) / total, 1.0)
    factor = expand(c, fraction)
    if 2 * floor >= total / GAMMA:
        against.append(
            f"no classifier has err_w below {floor:.3f} with these weights, so p_w is at least {2 * floor / total:.2f} "
            "whatever the data: the theorem cannot apply (it suits weights that are nearly diagonal)"
        )
    elif fraction >= 1 / GAMMA:
        against.append(
            f"p_w = {fraction:.3f} is at least 1/3, so gamma <= 1/p_w cannot exceed 3: the labeler is too wrong"
        )
    elif not factor > GAMMA:
        against.append(f"gamma = {factor:.2f} is not above 3: sets as large as the mistakes do not expand enough")
    promise = theorem_bound(factor, err_pl, err_star, consistency_star) if factor > 1 else None
    if not against and promise is not None and promise >= err_pl:
        against.append(
            f"err_w(F*) = {err_star:.3f} and R_B,w(F*) = {consistency_star:.3f} are not negligible beside "
            f"err_w(F_pl) = {err_pl:.3f}: the bound {promise:.3f} is no improvement"
        )
    return Assumptions(fraction, factor, promise, tuple(against))
