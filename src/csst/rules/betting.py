"""Evidence that grows label by label: bets against "the bound is untrue", which may be looked at after every label.

    E_t = mean over b of  prod_{i <= t} (1 + b Z_i),     E[Z_i] <= 0 where the bound is untrue,  Z_i >= -c,  0 < b < 1/c

E_t is the wealth of who bets on the bound, with a stake that follows from the rows before: the mean over fixed stakes b
equals betting  b_i = sum_b b W_b / sum_b W_b,  W_b the wealth of stake b. While the bound is untrue, wealth does not
grow on average, and P(max_t E_t >= 1 / delta) <= delta (Ville, 1939): 1 / max_t E_t is a p-value whenever one looks.

Z is `Claim.payoff` of a row's truth and prediction; what the model expects of Z may be taken out of it (`Bets.adjust`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from csst.rules.certificates import POWER
from csst.rules.claims import Claim

#: stakes as fractions of the largest that cannot go broke
STAKES = np.concatenate([np.linspace(0.02, 0.2, 6), np.linspace(0.3, 0.98, 10)])
#: sequences that are drawn to find how many labels decide, and the most labels that are tried
DRAWS = 200
MOST_LABELS = 8192

Verdict = Literal["certified", "refuted", "undecided"]


def log_wealth(gains: np.ndarray, largest_loss: float) -> np.ndarray:
    """Return log E_t after every row.

    Args:
        gains: Z in order of arrival, (..., n).
        largest_loss: c, with Z >= -c always.

    Returns:
        log E_1 .. log E_n, (..., n).
    """
    stakes = STAKES / largest_loss
    return mix_stakes(np.log1p(np.asarray(gains, dtype=float)[..., None] * stakes).cumsum(-2))


def mix_stakes(wealth: np.ndarray) -> np.ndarray:
    """Return the logarithm of the mean wealth over stakes, (...), from the logarithm for each stake b, (..., b)."""
    top = wealth.max(-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(wealth - top).mean(-1))


def betting_p_value(gains: np.ndarray, largest_loss: float) -> np.ndarray:
    """Return the p-value 1 / max_t E_t, at most 1.

    Args:
        gains: Z in order of arrival, (..., n).
        largest_loss: c, with Z >= -c always.

    Returns:
        p-values, (...); 1 without a row.
    """
    if np.shape(gains)[-1] == 0:
        return np.ones(np.shape(gains)[:-1])
    return np.exp(-np.maximum(0.0, log_wealth(gains, largest_loss).max(-1)))


@dataclass(frozen=True, eq=False)
class Bets:
    """The bets on one bound.

    Args:
        bound: the bound that is bet on.
        gains: Z, one for every bet, (m,).
        ends: the number of labels after which each is known, rising, (m,).
        largest_loss: the largest loss of a bet on the bound.
        largest_gain: its largest gain, which is the largest loss of a bet against the bound.
        is_within: whether a bet takes a row of each of several classes.
    """

    bound: Claim
    gains: np.ndarray
    ends: np.ndarray
    largest_loss: float
    largest_gain: float
    is_within: bool = False

    @property
    def informative(self) -> np.ndarray:
        """The gains that are not 0: of rows that bear on the bound."""
        return self.gains[self.gains != 0]

    def adjust(self, expected: np.ndarray, batch_means: np.ndarray, share: float) -> Bets:
        """Return bets without what the model expects:  Z_i - eta (g(x_i) - mean of g over batch i).

        The mean stays the same whatever g is, so that a wrong model costs power and never validity. It holds only if
        the rows are a random sample of the population of the unlabeled rows, each row having a batch of its own.

        Args:
            expected: g, what the model expects of every Z, (m,).
            batch_means: the mean of g over each row's own batch of unlabeled rows, (m,).
            share: eta, from 0 to 1, chosen before any of the labels was seen.

        Returns:
            The adjusted bets, which can lose more.
        """
        span = self.largest_gain + self.largest_loss
        inside = (np.clip(values, -self.largest_loss, self.largest_gain) for values in (expected, batch_means))
        gains = self.gains - share * np.subtract(*inside)
        return replace(
            self,
            gains=gains,
            largest_loss=self.largest_loss + share * span,
            largest_gain=self.largest_gain + share * span,
        )

    def first_crossing(self, limit: float, is_against: bool = False) -> int | None:
        """Return after how many labels the wealth first reaches a limit; None if it has not.

        Args:
            limit: wealth to reach, such as 1 / delta.
            is_against: whether one bets that the bound is untrue.

        Returns:
            A number of labels.
        """
        if not len(self.gains):
            return None
        gains, loss = (-self.gains, self.largest_gain) if is_against else (self.gains, self.largest_loss)
        is_reached = log_wealth(gains, loss) >= np.log(limit)
        return int(self.ends[is_reached.argmax()]) if is_reached.any() else None


def place_bets(
    bound: Claim, labels: np.ndarray, predictions: np.ndarray, prior: np.ndarray | None, classes: int
) -> Bets:
    """Return the bets on a bound that labels in order of arrival allow.

    A random sample of the rows where the rule is used gives a bet for every row, Z = c[y, F]. For recalls, and under a
    stated prior, rows count within their class: the j-th rows of all classes are one bet, Z = sum_i pi_i c[i, F].

    Args:
        bound: bound that is bet on.
        labels: true classes in order of arrival, (n,).
        predictions: the rule's, (n,).
        prior: the stated class balance, (K,); None for a random sample.
        classes: K.

    Returns:
        The bets.
    """
    payoff = bound.payoff(classes)
    if bound.metric != "recall" and prior is None:
        gains = payoff[labels, predictions]
        return Bets(bound, gains, np.arange(1, len(labels) + 1), -float(payoff.min()), float(payoff.max()))
    if bound.metric == "recall":
        shares = np.bincount(bound.classes, minlength=classes) / len(bound.classes)
    else:
        shares = np.asarray(prior, dtype=float)
    counted_classes = np.flatnonzero(shares > 0)
    places = [np.flatnonzero(labels == k) for k in counted_classes]
    number = min(len(rows) for rows in places)
    gains = np.zeros(number)
    ends = np.zeros(number, dtype=np.int64)
    for k, rows in zip(counted_classes, places, strict=True):
        gains += shares[k] * payoff[k, predictions[rows[:number]]]
        ends = np.maximum(ends, rows[:number] + 1)
    loss = -float(shares @ payoff.min(1))
    return Bets(bound, gains, ends, loss, float(shares @ payoff.max(1)), len(counted_classes) > 1)


def choose_share(gains: np.ndarray, expected: np.ndarray, largest_loss: float, largest_gain: float) -> float:
    """Return eta of the fastest growth on rows that are not bet on, such as the labels of the fit out of fold.

    Args:
        gains: Z of these rows, (n,).
        expected: g of them, (n,).
        largest_loss: c, with Z >= -c always.
        largest_gain: with Z <= it always.

    Returns:
        0, 1/4, 1/2, 3/4 or 1.
    """
    shares = np.linspace(0, 1, 5)
    deviations = expected - expected.mean()
    growth = []
    for share in shares:
        loss = largest_loss + share * (largest_gain + largest_loss)
        growth.append(np.log1p((gains - share * deviations)[:, None] * STAKES / loss).mean(0).max())
    return float(shares[int(np.argmax(growth))])


@dataclass(frozen=True)
class Decision:
    """What labels in order of arrival say about the bounds of a sentence.

    Args:
        verdict: certified (all bounds hold), refuted (one does not) or undecided.
        labels: after how many labels, or how many there were.
        more: about how many more would decide in four cases of five, if things are as they look; None once decided,
            or where nothing bears on the bounds yet.
        bound: the bound that `more` or the refutation is about; "" for all.
        wealth: the largest E_t of every bound.
    """

    verdict: Verdict
    labels: int
    more: int | None = None
    bound: str = ""
    wealth: tuple[float, ...] = ()


def decide(bets: Sequence[Bets], delta: float, labels: int) -> Decision:
    """Return whether all bounds are proved, one is disproved, or how many more labels would tell.

    All bounds must be proved, each at delta. Any of m may be disproved, so that each is at delta / m.

    Args:
        bets: one for every bound.
        delta: 1 - confidence.
        labels: how many there are.

    Returns:
        The decision at the first label that allowed it.
    """
    wealth = tuple(float(1 / betting_p_value(bet.gains, bet.largest_loss)) for bet in bets)
    proofs = [bet.first_crossing(1 / delta) for bet in bets]
    refutations = [
        (end, bet.bound.text) for bet in bets if (end := bet.first_crossing(len(bets) / delta, True)) is not None
    ]
    certified_end = max(end for end in proofs if end is not None) if all(end is not None for end in proofs) else None
    if certified_end is not None and (not refutations or certified_end <= min(refutations)[0]):
        return Decision("certified", certified_end, wealth=wealth)
    if refutations:
        end, bound = min(refutations)
        return Decision("refuted", end, bound=bound, wealth=wealth)
    prices = [(price_bets(bet, delta, len(bets)), bet) for bet, end in zip(bets, proofs, strict=True) if end is None]
    finite_prices = [(price, bet) for price, bet in prices if price is not None]
    if not finite_prices:
        return Decision("undecided", labels, wealth=wealth, bound=prices[0][1].bound.text)
    price, bet = max(finite_prices, key=lambda pair: pair[0])
    return Decision("undecided", labels, price, bet.bound.text, wealth)


def price_bets(bets: Bets, delta: float, bounds: int = 1) -> int | None:
    """Return about how many more bets decide a bound, either way, in four cases of five.

    How often each gain is to be expected is drawn from what the gains so far leave open (Jeffreys), anew for each case:
    the one estimate from a handful of gains may happen to be next to the bound, which thousands would not decide.

    Args:
        bets: on the bound so far.
        delta: 1 - confidence.
        bounds: number of bounds of the sentence, any of which may be disproved.

    Returns:
        A number of further bets that bear on the bound, at most `MOST_LABELS`; None if none did so far.
    """
    gains = bets.informative
    if not len(gains):
        return None
    values = np.concatenate([gains, [-bets.largest_loss, bets.largest_gain]])
    pseudo_counts = np.concatenate([np.ones(len(gains)), [0.5, 0.5]])
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(pseudo_counts, DRAWS).cumsum(1)
    limits = np.log([1 / delta, bounds / delta])
    # Growth of the wealth of who bets on the bound, and of who bets against it, by each value and stake.
    growth = np.stack(
        [
            np.log1p(values[:, None] * (STAKES / bets.largest_loss)),
            np.log1p(-values[:, None] * (STAKES / bets.largest_gain)),
        ],
        axis=1,
    )
    # Each case goes on from the wealth that is there.
    wealth = growth[: len(gains)].sum(0) + np.zeros((DRAWS, 1, 1))
    ends = np.full(DRAWS, MOST_LABELS)
    undecided = np.arange(DRAWS)
    labels = 0
    while labels < MOST_LABELS and (ends < MOST_LABELS).mean() < POWER:
        number = max(64, labels)
        points = rng.random((DRAWS, number))
        draws = np.stack([np.searchsorted(chances[case], points[case]) for case in undecided])
        path = wealth[:, None] + growth[np.minimum(draws, len(values) - 1)].cumsum(1)
        is_decided = np.any(mix_stakes(path) >= limits, axis=2)
        is_newly_decided = is_decided.any(1)
        ends[undecided[is_newly_decided]] = labels + is_decided.argmax(1)[is_newly_decided] + 1
        wealth = path[~is_newly_decided, -1]
        undecided = undecided[~is_newly_decided]
        labels += number
    return int(np.sort(ends)[int(np.ceil(POWER * DRAWS)) - 1])
