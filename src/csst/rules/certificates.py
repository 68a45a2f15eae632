"""Whether labels that nothing was fitted to prove the bounds of a sentence, with a stated confidence.

    P(certified and some bound untrue) <= delta    over draws of the certification labels

All tests read confusion counts (K, K), row = truth. The labels are either drawn within classes, and bounds that depend
on the class balance are proved under a stated prior pi; or they are a random sample of the rows where the rule is used,
and every metric is a fraction of rows. Rules are tested from cautious to bold, each only if all before it passed, so
that no correction for their number is needed; all bounds of a rule must pass, so that none is needed there either
(docs/explanation/certificates.md).
"""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, rel_entr
from scipy.stats import norm

from csst.rules.claims import RATIOS, Claim

#: halvings of an interval: to a part in 10^15
HALVINGS = 50
#: how often the bounds shall be proved by as many labels as a price names
POWER = 0.8
#: the largest multiple of the labels that a price names
LARGEST_MULTIPLE = 1e4
#: class balances among which those are found for which a bound is proved
LEAST_SHARE = 0.001
MOST_SHARE = 0.999


def binomial_tail(successes: np.ndarray, trials: np.ndarray, value: np.ndarray | float) -> np.ndarray:
    """Return P(Bin(n, r) >= x), the p-value of "the chance of success is at most r".

    Args:
        successes: x, any shape.
        trials: n.
        value: r.

    Returns:
        p-values; 1 where there is no trial.
    """
    x = np.asarray(successes, dtype=float)
    failures = np.asarray(trials, dtype=float) - x + 1
    return np.where(x > 0, betainc(np.maximum(x, 1), failures, np.clip(value, 0, 1)), 1.0)


def divergence(observed: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Return KL(t || r) = t log(t / r) + (1 - t) log((1 - t) / (1 - r))."""
    return rel_entr(observed, value) + rel_entr(1 - observed, 1 - value)


def weighted_tail(
    successes: np.ndarray, trials: np.ndarray, weights: np.ndarray, value: np.ndarray | float
) -> np.ndarray:
    """Return the p-value of  sum_i w_i q_i <= r,  from x_i successes of chance q_i in n_i trials of each class.

    A row of class i weighs a_i = w_i / n_i, and its mean t = sum_i a_i x_i has

        P(t or more) <= exp(-KL(t || r) / max_i a_i).

    Rows of one class are binomial and rows that weigh the same are compared with a binomial, which is exact from one
    success above its mean on (Hoeffding, 1956). A class without a trial counts as q_i = 0.

    Args:
        successes: x, (..., K).
        trials: n, (..., K).
        weights: w, (K,), of sum 1.
        value: r.

    Returns:
        p-values, (...).
    """
    counts = np.asarray(successes, dtype=float)
    rows = np.asarray(trials, dtype=float)
    counts, rows, shares = np.broadcast_arrays(counts, rows, np.asarray(weights, dtype=float))
    shares = np.where(rows > 0, shares, 0.0)
    mass = shares.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # What classes with labels must reach for the mean of all to reach the value.
        target = np.where(mass > 0, value / mass, np.inf)
        per_row = np.where(shares > 0, shares / np.maximum(rows, 1) / mass[..., None], 0.0)
    is_counted = per_row > 0
    heaviest = per_row.max(-1)
    lightest = np.where(is_counted, per_row, np.inf).min(-1)
    mean = (per_row * counts).sum(-1)
    inside = np.clip(target, 0, 1)
    is_above = (mean > inside) & (target < 1)
    safe_mean = np.where(is_above, np.minimum(mean, 1.0), 0.5)
    safe_value = np.where(is_above, inside, 0.5)
    spread = divergence(safe_mean, safe_value) / np.where(heaviest > 0, heaviest, 1.0)
    chernoff = np.where(is_above, np.exp(-spread), 1.0)
    total = np.where(is_counted, counts, 0.0).sum(-1)
    number = np.where(is_counted, rows, 0.0).sum(-1)
    exact_tail = binomial_tail(total, number, inside)
    is_alike = heaviest - lightest <= 1e-12 * heaviest
    is_binomial = (is_counted.sum(-1) == 1) | (total >= number * inside + 1)
    p = np.where(is_alike & is_binomial, exact_tail, chernoff)
    return np.where((mass > 0) & (target < 1), np.where(target <= 0, 0.0, p), np.where(target <= 0, 0.0, 1.0))


def ratio_tail(bound: Claim, counts: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the p-value of a bound on precision, f1 or jaccard of class k under a stated prior.

    The metric rises in the recall R and falls in the false alarms f = sum_{i != k} pi_i R_ik / (1 - pi_k), and

        metric >= r   <=>   (1 - pi_k) f <= pi_k (a R - b).

    With R at the end of its interval at delta / 2 and f at the end of its own, the smallest delta at which the bound
    still holds is  p = 2 min_R max(P(R or less), P(f(R) or more)),  found where the two are equal.

    Args:
        bound: on one class.
        counts: (..., K, K).
        prior: pi, (K,).

    Returns:
        p-values, (...).
    """
    k = bound.classes[0]
    if bound.value <= 0 or bound.value >= 1:
        # Every rule reaches 0, and no number of labels proves 1; the other way round for metric <= value.
        is_true = bound.value <= 0 if bound.is_lower else bound.value >= 1
        return np.full(counts.shape[:-2], 0.0 if is_true else 1.0)
    shares = np.array(prior, dtype=float)
    shares[k] = 0
    shares /= shares.sum()
    rows = counts.sum(-1)
    alarms = counts[..., :, k]
    hits = counts[..., k, k]
    slope, offset = _ratio_line(bound)

    def compare(recall: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        limit = prior[k] * (slope * recall - offset) / (1 - prior[k])
        if bound.is_lower:
            return (
                binomial_tail(hits, rows[..., k], recall),
                weighted_tail(rows - alarms, rows, shares, 1 - limit),
            )
        return binomial_tail(rows[..., k] - hits, rows[..., k], 1 - recall), weighted_tail(alarms, rows, shares, limit)

    low = np.zeros(counts.shape[:-2])
    high = np.ones(counts.shape[:-2])
    for _ in range(HALVINGS):
        midpoint = (low + high) / 2
        of_recall, of_alarms = compare(midpoint)
        # P(R or less) rises with R for a lower bound, and P(f(R) or more) falls; the other way round for an upper one.
        goes_up = (of_recall < of_alarms) == bound.is_lower
        low = np.where(goes_up, midpoint, low)
        high = np.where(goes_up, high, midpoint)
    ends = [np.maximum(*compare(recall)) for recall in (low, high)]
    return np.minimum(1.0, 2 * np.minimum(*ends))


def _ratio_line(bound: Claim) -> tuple[float, float]:
    """Return a and b of  metric >= r  <=>  (1 - pi_k) f <= pi_k (a R - b)."""
    if bound.metric == "precision":
        return (1 - bound.value) / bound.value, 0.0
    return (2 / bound.value - 1 if bound.metric == "f1" else 1 / bound.value), 1.0


def p_value(
    bound: Claim, counts: np.ndarray, prior: np.ndarray | None = None, predicted: np.ndarray | None = None
) -> np.ndarray:
    """Return the p-value of "the bound is untrue" (paper: none; Clopper and Pearson, 1934; Hoeffding, 1956, 1963).

    Args:
        bound: bound that is to be proved.
        counts: confusion counts on certification labels, (..., K, K), row = truth.
        prior: the stated class balance, (K,); None if the labels are a random sample of the rows where it is used.
        predicted: how often each class is predicted for unlabeled rows kept apart, (..., K), which are the rows where
            the rule is used; coverage is then proved by them.

    Returns:
        p-values, (...).
    """
    table = np.asarray(counts, dtype=float)
    rows = table.sum(-1)
    hits = np.diagonal(table, axis1=-2, axis2=-1)
    value = bound.value
    shares = prior
    if bound.metric in RATIOS:
        k = bound.classes[0]
        if prior is not None:
            return ratio_tail(bound, table, np.asarray(prior, dtype=float))
        judged_rows = table[..., :, k].sum(-1)
        if bound.metric != "precision":
            judged_rows = judged_rows + rows[..., k] - hits[..., k]
        return _two_sided(hits[..., k], judged_rows, bound.ratio, bound.is_lower)
    if bound.metric == "recall":
        shares = np.bincount(bound.classes, minlength=table.shape[-1]) / len(bound.classes)
    elif bound.metric == "coverage":
        # The mean coverage of several classes is the coverage of their union, divided by their number.
        members = list(bound.classes)
        value = bound.value * len(members)
        hits = table[..., members].sum(-1)
        if predicted is not None:
            predictions = np.asarray(predicted, dtype=float)
            return _two_sided(predictions[..., members].sum(-1), predictions.sum(-1), value, bound.is_lower)
    if shares is None:
        return _two_sided(hits.sum(-1), rows.sum(-1), value, bound.is_lower)
    if bound.is_lower:
        return weighted_tail(hits, rows, shares, value)
    return weighted_tail(rows - hits, rows, shares, 1 - value)


def _two_sided(successes: np.ndarray, trials: np.ndarray, value: float, is_lower: bool) -> np.ndarray:
    """Return the p-value of a chance of success at most the value, or of one at least the value."""
    if value <= 0 or value >= 1:
        is_true = value <= 0 if is_lower else value >= 1
        return np.full(np.shape(trials), 0.0 if is_true else 1.0)
    if is_lower:
        return binomial_tail(successes, trials, value)
    return binomial_tail(trials - successes, trials, 1 - value)


def read_range(bound: Claim, counts: np.ndarray, prior: np.ndarray | None, delta: float) -> tuple[float, float] | None:
    """Return the class balances pi_k for which a bound on a ratio is proved, the other classes in proportion.

    Args:
        bound: on precision, f1 or jaccard of one class; others have no such range.
        counts: (K, K).
        prior: the stated class balance, (K,); None for a random sample.
        delta: 1 - confidence.

    Returns:
        The lowest and the highest pi_k; None if there is none.
    """
    if prior is None or bound.metric not in RATIOS:
        return None
    k = bound.classes[0]
    other_shares = np.array(prior, dtype=float)
    other_shares[k] = 0
    other_shares /= other_shares.sum()

    def passes(share: float) -> bool:
        balance = other_shares * (1 - share)
        balance[k] = share
        return bool(p_value(bound, counts, balance) <= delta)

    # What is proved for one balance is proved for all that have more of the class (less, for metric <= value).
    passing_share, failing_share = (MOST_SHARE, LEAST_SHARE) if bound.is_lower else (LEAST_SHARE, MOST_SHARE)
    if not passes(passing_share):
        return None
    if passes(failing_share):
        return LEAST_SHARE, MOST_SHARE
    while abs(passing_share - failing_share) > 5e-4:
        midpoint = (passing_share + failing_share) / 2
        if passes(midpoint):
            passing_share = midpoint
        else:
            failing_share = midpoint
    return (passing_share, 1.0) if bound.is_lower else (0.0, passing_share)


def draw_unluckily(bound: Claim, rates: np.ndarray, rows: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
    """Return the counts of a draw that four of five draws are better than for a bound.

    Its gain c (`Claim.payoff`) is below the mean by z = .84 standard deviations, and of all such tables it is the
    likeliest:  n_i R_ij (1 - z w_i (c_ij - mean_i) / (n_i s)),   s^2 = sum_i w_i^2 Var_i / n_i.

    Args:
        bound: bound that is to be proved.
        rates: R, (K, K), row = truth.
        rows: labels of every class, (K,).
        prior: see `p_value`.

    Returns:
        Counts, (K, K), no whole numbers.
    """
    payoff = bound.payoff(len(rows))
    quantile = float(norm.ppf(POWER))
    if prior is None and bound.reads_balance:
        cells = rows[:, None] * rates / rows.sum()
        mean = (cells * payoff).sum()
        spread = float(((cells * payoff**2).sum() - mean**2) ** 0.5 / rows.sum() ** 0.5)
        deviations = (payoff - mean) / rows.sum()
    else:
        within = np.bincount(bound.classes, minlength=len(rows)) if bound.metric == "recall" else prior
        assert within is not None
        weights = within / within.sum()
        means = (rates * payoff).sum(1)
        variances = (rates * payoff**2).sum(1) - means**2
        spread = float((weights**2 * variances / rows).sum() ** 0.5)
        deviations = weights[:, None] * (payoff - means[:, None]) / rows[:, None]
    mean_counts = rows[:, None] * rates
    return mean_counts if spread <= 0 else mean_counts * np.maximum(0.0, 1 - quantile * deviations / spread)


def multiply_labels(bound: Claim, rates: np.ndarray, rows: np.ndarray, prior: np.ndarray | None, delta: float) -> float:
    """Return how many times these labels would prove a bound in four cases of five, if the rates are these.

    Args:
        bound: bound that is to be proved.
        rates: R, (K, K), row = truth.
        rows: labels of every class, (K,), at least one each.
        prior: see `p_value`.
        delta: 1 - confidence.

    Returns:
        A multiple; infinity where even ten thousand times as many would not.
    """

    def is_enough(multiple: float) -> bool:
        return float(p_value(bound, draw_unluckily(bound, rates, rows * multiple, prior), prior)) <= delta

    if not is_enough(LARGEST_MULTIPLE):
        return float("inf")
    low = 0.01
    high = LARGEST_MULTIPLE
    # To about a twentieth: the price says "about".
    while high > 1.05 * low:
        midpoint = (low * high) ** 0.5
        if is_enough(midpoint):
            high = midpoint
        else:
            low = midpoint
    return high
