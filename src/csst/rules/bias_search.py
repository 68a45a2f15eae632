"""The search for a rule: soft decisions on weighted rows, maximized by L-BFGS.

Row i counts W_ik for class k: 1 for its label or, where it has none, a multiple of its posterior Q_ik. With soft
decisions S the rates are

    R_kj = sum_i W_ik S_ij / sum_i W_ik.

S = softmax((z + b) / t) with a bias b (K,), whatever the objective reads. The best rule for coverage, precision or F1
also adds an offset to every class; searching for those too was no better on test data, missed constraints more often
and took ten times as long (benchmarks/results/rules.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from csst.estimation.held_out_scores import Blocks, HeldOutScores
from csst.rules.soft_objective import MOST_PENALTY, Prices, SoftObjective, Value

#: how many labels the unlabeled rows are worth for a class in the search
UNLABELED_WORTH = 50.0
#: how strongly parameters are drawn to where the search began
ANCHOR = 1e-3
#: rounds of the augmented Lagrangian at most, and the violation at which it stops
ROUNDS = 10
#: steps of L-BFGS in each round
MOST_STEPS = 30
SMALL_VIOLATION = 3e-4


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Scores z (N, K) and the fraction of each row in every class, W_ik / sum_i W_ik, (N, K)."""

    scores: np.ndarray
    fractions: np.ndarray
    blocks: Blocks = field(default_factory=Blocks)
    _pulls: dict[bytes, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def weigh_coverage(self, prior: np.ndarray) -> np.ndarray:
        """Return how much every row counts for coverage, sum_k pi_k W_ik / sum_i W_ik, (N,)."""
        key = prior.tobytes()
        if key not in self._pulls:
            self._pulls[key] = self.fractions @ prior
        return self._pulls[key]

    @classmethod
    def pool(cls, evidence: HeldOutScores) -> WeightedRows:
        """Weigh labeled rows for their class, and unlabeled rows for every class as their posterior says.

        Unlabeled rows weigh as much as `UNLABELED_WORTH` labels of a class, so that labels decide where they are many.
        """
        labeled = len(evidence.labels)
        posterior = evidence.soft_posterior
        mass = posterior.sum(0)
        weights = np.zeros((labeled + len(posterior), evidence.classes))
        weights[np.arange(labeled), evidence.labels] = 1
        weights[labeled:] = posterior * (np.minimum(UNLABELED_WORTH, mass) / np.maximum(mass, 1e-300))
        weights /= np.maximum(weights.sum(0), 1e-300)
        return cls(np.vstack([evidence.scores, evidence.soft_scores]), weights, evidence.blocks)

    def decide(self, bias: np.ndarray) -> np.ndarray:
        """Return argmax_j z_j + b_j of every row, (N,)."""
        return (self.scores + self.blocks.spread(bias)).argmax(1)


def soft_bias_margins(
    likelihood: np.ndarray, fractions: np.ndarray, pulls: np.ndarray, factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Return recall and coverage of S_ij ∝ E_ij v_j, and a function that takes derivatives by them to log v.

    Args:
        likelihood: E, (N, K).
        fractions: W_ik / sum_i W_ik times E_ik, (N, K).
        pulls: sum_k pi_k W_ik / sum_i W_ik, how much a row counts for coverage, (N,).
        factor: v, (K,).
    """
    inverse = 1 / np.maximum(likelihood @ factor, 1e-150)  # its square is finite
    rows_part = fractions.T @ inverse
    columns = likelihood.T @ (pulls * inverse)

    def pull_back(by_recall: np.ndarray, by_coverage: np.ndarray) -> np.ndarray:
        per_row = fractions @ (by_recall * factor)
        if by_coverage.any():
            per_row = per_row + pulls * (likelihood @ (by_coverage * factor))
        common_part = likelihood.T @ (inverse**2 * per_row)
        return factor * (by_recall * rows_part + by_coverage * columns - common_part)

    return factor * rows_part, factor * columns, pull_back


@dataclass(frozen=True, eq=False)
class Search:
    """The end of a search.

    Args:
        bias: b, (K,).
        prices: prices of the constraints.
        is_feasible: whether soft decisions meet all constraints.
    """

    bias: np.ndarray
    prices: Prices
    is_feasible: bool = True


def maximize(
    objective: SoftObjective,
    measure: Callable[[np.ndarray, Prices], tuple[Value, np.ndarray]],
    start: np.ndarray,
    prices: Prices,
) -> Search:
    """Return the bias that maximizes a measured value less ANCHOR |x - start|^2; constraints by raising prices."""

    def loss(x: np.ndarray, prices: Prices) -> tuple[float, np.ndarray]:
        value, gradient = measure(x, prices)
        distance = x - start
        return ANCHOR * float(distance @ distance) - value.value, 2 * ANCHOR * distance - gradient

    x = start
    violation = float("inf")
    options = {"maxiter": MOST_STEPS, "ftol": 1e-5, "gtol": 1e-5, "maxcor": 10}
    for _ in range(ROUNDS):
        x = minimize(loss, x, args=(prices,), jac=True, method="L-BFGS-B", options=options).x
        if not objective.has_constraints:
            return Search(x, prices)
        slack = measure(x, prices)[0].slack
        earlier_violation = violation
        violation = float(np.maximum(0, -slack).max())
        is_slow = violation > earlier_violation / 2
        prices = prices.raise_by(slack, objective.constraints, is_slow)
        # At the largest penalty, a violation that stays is there to stay.
        if violation < SMALL_VIOLATION or (is_slow and prices.penalty == MOST_PENALTY):
            break
    return Search(x, prices, violation < SMALL_VIOLATION)


def search_bias(
    objective: SoftObjective,
    rows: WeightedRows,
    start: np.ndarray,
    t: float,
    prices: Prices | None = None,
) -> Search:
    """Return the bias b (K,) that is best for the objective at softness t, from a start.

    Args:
        objective: under the deployment prior.
        rows: scores and fractions.
        start: to which the bias is drawn, (K,).
        t: softness of decisions.
        prices: prices of a search for the same objective on similar rows, which shorten this one; None for none.
    """
    # In place: with 1,000 classes every copy is a hundred megabytes.
    likelihood = rows.scores + rows.blocks.spread(start)
    likelihood /= t
    likelihood -= likelihood.max(1, keepdims=True)
    np.exp(likelihood, out=likelihood)
    fractions = rows.fractions * likelihood
    pulls = rows.weigh_coverage(objective.prior.numpy())

    def measure(b: np.ndarray, prices: Prices) -> tuple[Value, np.ndarray]:
        move = (b - start) / t
        factor = rows.blocks.spread(np.exp(np.clip(move - move.max(), -600, 0)))
        if objective.by_margins:
            recall, coverage, pull_back = soft_bias_margins(likelihood, fractions, pulls, factor)
            value = objective.from_margins(recall, coverage, prices)
            return value, rows.blocks.gather(pull_back(*value.slopes)) / t
        decisions = likelihood * factor
        decisions /= decisions.sum(1, keepdims=True)
        value = objective.from_rates(rows.fractions.T @ decisions, prices)
        by_decisions = rows.fractions @ value.slopes[0]
        by_scores = decisions * (by_decisions - np.einsum("ij,ij->i", decisions, by_decisions)[:, None])
        return value, rows.blocks.gather(by_scores.sum(0)) / t

    return maximize(objective, measure, start, prices or objective.first_prices)
