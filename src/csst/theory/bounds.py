"""What the theory promises: gamma, the lemma, Theorem 1 and the generalization bound.

Errors and regularizers are in units of err_w, between 0 and |w|_1; the lemma is about probabilities. Every bound is
written for gamma > 1, where the proofs hold; Theorem 1 beats the pseudo-labeler only where gamma > 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from csst.errors import InputError
from csst.theory.errors import least_error, total_weight
from csst.theory.expansion import Expansion, largest_error

#: the theorem promises an improvement only above this
GAMMA = 3.0


def error_fraction(err_pl: float, err_star: float, weights: Any) -> float:
    """The fraction of mistakes p_w = (err_w(F_pl) + err_w(F*)) / |w|_1. Paper, Sec. 3.4, Assumption 3 [pseudo-labeler].

    Args:
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of the best consistent classifier F*.
        weights: w, (K, K), non-negative.

    Returns:
        p_w in [0, 1]; a sum of errors above |w|_1 is refused.
    """
    _at_least_0(err_pl=err_pl, err_star=err_star)
    fraction = (err_pl + err_star) / total_weight(weights)
    if fraction > 1 + 1e-9:
        raise InputError(
            f"the theory needs err_w(F_pl) + err_w(F*) <= |w|_1; found {err_pl + err_star:.4g} "
            f"and |w|_1 = {total_weight(weights):.4g}"
        )
    return min(fraction, 1.0)


def gamma(c: Expansion, err_pl: float, err_star: float, weights: Any) -> float:
    """How much sets as large as the mistakes expand: gamma = c(p_w). Paper, Sec. 3.4, Assumption 3 [pseudo-labeler].

    Args:
        c: the expansion of P_w.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        weights: w, (K, K), non-negative.

    Returns:
        gamma, at most 1 / p_w; infinite where there are no mistakes.
    """
    fraction = error_fraction(err_pl, err_star, weights)
    return c(fraction) if fraction > 0 else math.inf


def factors(gamma: float) -> tuple[float, float, float]:
    """(gamma+1)/(gamma-1), 2 gamma/(gamma-1) and 2/(gamma-1); 1, 2 and 0 for an infinite gamma."""
    if not gamma > 1:
        raise InputError(f"the bounds divide by gamma - 1 and need gamma > 1; found gamma = {gamma:.4g}")
    if gamma == math.inf:
        return 1.0, 2.0, 0.0
    return (gamma + 1) / (gamma - 1), 2 * gamma / (gamma - 1), 2 / (gamma - 1)


def theoretical_objective(gamma: float, disagreement: float, consistency: float) -> float:
    """What the theory minimizes. Paper, Sec. 3.4, Eq. 7 [ssl-non-decomp-obj-theoretical].

        L_w(F) = (gamma+1)/(gamma-1) L_w(F, F_pl) + 2 gamma/(gamma-1) R_{B,w}(F)

    Args:
        gamma: c(p_w), above 1.
        disagreement: L_w(F, F_pl) = sum_ij w_ij P_i(F != F_pl).
        consistency: R_{B,w}(F).

    Returns:
        L_w(F).
    """
    agree, steady, _ = factors(gamma)
    return agree * disagreement + steady * consistency


def lemma_bound(
    gamma: float, disagreement: float, inconsistent: float, inconsistent_reference: float, mistakes: float
) -> float:
    """An upper bound of Q(F != H) for any classifiers F and H. Paper, appendix "Proofs", Lemma 1 [err-bd].

        (gamma+1)/(gamma-1) Q(F != F_pl) + 2 gamma/(gamma-1) [Q(S_B^c(F)) + Q(S_B^c(H))] - Q(F_pl != H)

    Args:
        gamma: c(Q(F_pl != H)), above 1.
        disagreement: Q(F != F_pl).
        inconsistent: Q(S_B^c(F)), where F is not constant on B(x).
        inconsistent_reference: Q(S_B^c(H)).
        mistakes: Q(F_pl != H).

    Returns:
        The bound, a probability or more.
    """
    agree, steady, _ = factors(gamma)
    return agree * disagreement + steady * (inconsistent + inconsistent_reference) - mistakes


def theorem_bound(gamma: float, err_pl: float, err_star: float, consistency_star: float) -> float:
    """An upper bound of err_w of the minimizer of L_w. Paper, Sec. 3.4, Theorem 1 [main-err-bd].

        2/(gamma-1) err_w(F_pl) + (gamma+1)/(gamma-1) err_w(F*) + 4 gamma/(gamma-1) R_{B,w}(F*)

    Args:
        gamma: c(p_w), above 1; only above 3 can the bound be smaller than err_pl.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).

    Returns:
        The bound, in units of err_w.
    """
    agree, steady, kept = factors(gamma)
    return kept * err_pl + agree * err_star + 2 * steady * consistency_star


def classifier_bound(
    gamma: float, disagreement: float, consistency: float, consistency_star: float, err_pl: float, err_star: float
) -> float:
    """An upper bound of err_w of any classifier F at hand, trained to the optimum or not.

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
    steady = factors(gamma)[1]
    return theoretical_objective(gamma, disagreement, consistency) + steady * consistency_star - err_pl + 2 * err_star


@dataclass(frozen=True)
class MarginSample:
    """What a sample from P_w says of a network's margins.

    Args:
        margin_fraction: (1/n) sum 1(m(Phi, x, F_pl(x)) <= t1).
        view_margin_fraction: (1/n) sum 1(m_B(Phi, x) <= t2).
        thresholds: t1 and t2.
        examples: n.
        complexities: C(F_i) of every layer, the user's.
    """

    margin_fraction: float
    view_margin_fraction: float
    thresholds: tuple[float, float]
    examples: int
    complexities: tuple[float, ...]

    def terms(self, delta: float) -> tuple[float, float]:
        """The fractions of P_w plus what a sample of n leaves open.

        Paper, appendix "All-Layer Margin", Propositions 3 and 4.

        Args:
            delta: the probability with which the terms may be too small, between 0 and 1.

        Returns:
            The terms of the margins and of the margins over views.
        """
        (first, second), layers = self.thresholds, float(np.sum(self.complexities))
        if not (first > 0 and second > 0 and self.examples > 0 and 0 < delta < 1 and layers >= 0):
            raise InputError(
                f"the bound needs thresholds > 0, examples > 0, 0 < delta < 1 and complexities >= 0; "
                f"found {self.thresholds}, {self.examples}, {delta}, {layers}"
            )
        rest = math.sqrt((math.log(1 / delta) + math.log(self.examples)) / self.examples)
        slope = layers / math.sqrt(self.examples)
        return self.margin_fraction + slope / first + rest, self.view_margin_fraction + slope / second + rest


def generalization_bound(
    gamma: float,
    sample: MarginSample,
    errors: tuple[float, float],
    consistency_star: float,
    weights: Any,
    delta: float = 0.05,
) -> float:
    """`classifier_bound` from a sample drawn from P_w. Paper, appendix "All-Layer Margin", Theorem 2.

    Fractions are of P_w, so they are multiplied by |w|_1. The paper hides constants and logarithms in O~; they are 1
    here, so read the result as an order of magnitude. "<=" where the paper prints "=".

    Args:
        gamma: c(p_w), above 1.
        sample: the margins' terms.
        errors: err_w of F_pl and of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.
        delta: the probability with which it may fail.

    Returns:
        The bound, in units of err_w, which holds with probability 1 - delta.
    """
    total = total_weight(weights)
    disagreement, consistency = (total * term for term in sample.terms(delta))
    return classifier_bound(gamma, disagreement, consistency, consistency_star, *errors)


def useful_errors(c: Expansion, err_star: float, consistency_star: float, weights: Any) -> tuple[float, float] | None:
    """The range of err_w(F_pl) in which Theorem 1 promises an improvement, gamma following the error. Paper, Sec. 3.4.

    Too small an error leaves nothing to gain over F*, too large a one does not expand enough. Found on a grid of 2000.

    Args:
        c: the expansion of P_w.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.

    Returns:
        The smallest and the largest such error; None where there is none.
    """
    total = total_weight(weights)
    high = largest_error(c, GAMMA) * total - err_star
    if high <= 0:
        return None

    def promises(error: float) -> bool:
        g = gamma(c, error, err_star, weights)
        return g > GAMMA and theorem_bound(g, error, err_star, consistency_star) < error

    good = [error for error in np.linspace(0, high, 2002)[1:-1].tolist() if promises(error)]
    return (good[0], good[-1]) if good else None


@dataclass(frozen=True)
class Assumptions:
    """Whether the theory applies, with its numbers.

    Args:
        fraction: p_w, at most 1.
        gamma: c(p_w).
        promise: the bound of Theorem 1; None where gamma is not above 1.
        against: what speaks against it in plain words; nothing if it applies.
    """

    fraction: float
    gamma: float
    promise: float | None
    against: tuple[str, ...]

    @property
    def hold(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.against


def check_assumptions(
    c: Expansion, err_pl: float, err_star: float, consistency_star: float, weights: Any
) -> Assumptions:
    """Whether Theorem 1 applies and promises an improvement.

    Paper, Sec. 3.2 to 3.4, Assumptions 1 [mu-small], 2 [c-exp] and 3 [pseudo-labeler].

    Args:
        c: the expansion of P_w.
        err_pl: err_w of the pseudo-labeler F_pl.
        err_star: err_w of F*.
        consistency_star: R_{B,w}(F*).
        weights: w, (K, K), non-negative.

    Returns:
        The numbers, and what speaks against it.
    """
    total, floor = total_weight(weights), least_error(weights)
    against = []
    if err_pl + err_star > total:
        against.append(
            f"err_w(F_pl) + err_w(F*) = {err_pl + err_star:.3f} exceeds |w|_1 = {total:.3f}: the labeler is too wrong"
        )
    fraction = min((err_pl + err_star) / total, 1.0)
    factor = c(fraction) if fraction > 0 else math.inf
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


def _at_least_0(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise InputError(f"{name} must be a number >= 0; found {value!r}")
