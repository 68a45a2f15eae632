"""lambda and G as buffers: the min-player of the game, in a checkpoint and on a device like any module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.maths.confusion import Confusion, check_prior
from csst.maths.constraint_scale import ConstraintUnits
from csst.maths.domains import Simplex, flatten_domain
from csst.maths.gain import Gain, canonical, gain_matrix
from csst.maths.objectives import MetricPrior, Objective, check_objective, payoff_of

Initial = Literal["uniform", "prior", "zero"]
#: the mean of the confusions starts at chance, which weighs as much as this many updates
CHANCE_UPDATES = 3
#: how far above chance, as a part of the way to 1, the recall of a class is once the network has begun to learn it
BEGUN = 0.1
#: weight of one entry above which a worst case has collapsed on it, and the updates in a row that must show it
COLLAPSE_WEIGHT = 0.99
COLLAPSE_UPDATES = 5


class GainBuffer(nn.Module):
    """A module with gains in its buffer `entries`, (..., K) if they are diagonal, else (..., K, K).

    It loads a state of either shape, as a stored gain may be diagonal and the present one not, or the other way round.
    """

    entries: Tensor

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        entries = state.get(f"{prefix}entries")
        if isinstance(entries, Tensor):
            shared_ndim = min(entries.ndim, self.entries.ndim)
            if entries.shape[:shared_ndim] == self.entries.shape[:shared_ndim]:
                self.entries = self.entries.new_empty(entries.shape)
        super()._load_from_state_dict(state, prefix, *rest)


class Multipliers(GainBuffer):
    """The multipliers of an objective, and the gain they give (Algorithms 1 [algo:worst-case] and 2 [algo:coverage]).

        game = csst.Multipliers(csst.objective("max min(recall)"), train_prior=[0.9, 0.1])
        game.update(confusion)
        loss = csst.cost_sensitive_loss(logits, labels, game.gain).mean()

    `value` is lambda, (m,); `gain` the current `Gain`, before the first update the one at R = 1/K.

    A gain that depends on the confusion (F1, Jaccard, G-mean, precision ...) is derived at the mean of all confusions,
    in which the newest weighs gamma_t = 2/(t + 1 + CHANCE_UPDATES). This is Frank-Wolfe: training a network under a
    gain is its linear maximization. A constraint that is steeper than the objective moves by smaller steps
    (`csst.maths.constraint_scale`). Neither affects the paper's objectives, which follow Algorithms 1 and 2 exactly.

    Args:
        objective: an `Objective`; `csst.objective` reads one from a sentence.
        train_prior: pi, class fractions of the training data, (K,).
        step_size: omega, how far lambda moves at an update.
        initial: "uniform" (in a worst case every class weighs the same, so that recall starts at the gain of mean
            recall; 1/K for each constraint, less for a steep one), "prior" (a worst case starts at the fraction of
            training examples behind each entry, so that recall starts at G = I), or "zero" (constraints start at 0).
        metric_prior: see `gain_matrix`.
        waits: whether a multiplier stands still until the classes behind it have begun to be learned. Until then their
            recall is low for any multiplier, which would grow for nothing and have to shrink again later.
    """

    value: Tensor
    train_prior: Tensor
    mean_rates: Tensor
    updates: Tensor
    has_begun: Tensor

    def __init__(
        self,
        objective: Objective,
        train_prior: Any,
        step_size: float = 0.25,
        initial: Initial = "uniform",
        metric_prior: MetricPrior | None = None,
        waits: bool = False,
    ) -> None:
        super().__init__()
        _check_step_size(step_size)
        prior = check_prior(train_prior, "the training prior")
        self.objective = check_objective(objective).bind_prior(prior)
        self.step_size = float(step_size)
        self.metric_prior = metric_prior
        chance = Confusion.uniform(prior)
        self.units = ConstraintUnits.measure(self.objective, prior, metric_prior or self.objective.metric_prior)
        value = self._start(chance, initial)
        self.register_buffer("train_prior", prior)
        self.register_buffer("value", value)
        self.register_buffer("mean_rates", chance.rates.clone())
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("entries", gain_matrix(self.objective, value, chance, prior, metric_prior).entries)
        self.waits = waits and len(value) > 0
        if self.waits:
            self.register_buffer("has_begun", torch.zeros(len(value), dtype=torch.bool))
        self._gain: tuple[Gain, int] | None = None

    @property
    def gain(self) -> Gain:
        """The gain at the current multipliers."""
        # Moving the module replaces the buffer and loading a state writes into it: both make the cached gain stale.
        if self._gain is None or self._gain[0].entries is not self.entries or self._gain[1] != self.entries._version:
            self._gain = Gain(self.entries), self.entries._version
            self.entries = self._gain[0].entries
        return self._gain[0]

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each multiplier."""
        labels = self.objective.labels
        return labels if len(labels) == len(self.value) else tuple(f"payoff {k}" for k in range(len(self.value)))

    @torch.no_grad()
    def update(self, confusion: Confusion, step_size: float | None = None) -> None:
        """Take a dual step, lambda <- step(lambda, payoff of this confusion), then derive G (Algorithms 1 and 2).

        R_mean <- (1 - gamma_t) R_mean + gamma_t R,  gamma_t = 2/(t + 1 + CHANCE_UPDATES) at the t-th update.

        Args:
            confusion: the classifier's current confusion, K classes.
            step_size: omega of this step; None takes the module's `step_size`.
        """
        payoff = payoff_of(self.objective, confusion).to(self.value)
        if self.waits:
            payoff = self._wait_for_classes(payoff, confusion)
        size = self.step_size if step_size is None else step_size
        _check_step_size(size)
        value = self.objective.domain.step(self.value, payoff * self.units.scales.to(payoff), size)
        value = torch.minimum(value, self.units.limits.to(value))
        self.updates = self.updates + 1
        weight = 2 / (float(self.updates) + 1 + CHANCE_UPDATES)
        self.mean_rates = (1 - weight) * self.mean_rates + weight * confusion.rates.to(self.mean_rates)
        mean = Confusion(self.mean_rates.to(confusion.rates), confusion.prior)
        prices = value * self.units.damp(mean).to(value)
        gain = gain_matrix(self.objective, prices, mean, self.train_prior, self.metric_prior)
        self.value = value
        self.entries = gain.entries.to(self.entries.device)

    @torch.no_grad()
    def adopt(self, weights: Tensor, prices: Tensor) -> None:
        """Set the gain and the multipliers from the solution of another method.

            G = w / pi,     lambda of a worst case in proportion to the weights of the classes behind its entries

        Args:
            weights: w_ij = pi_i G_ij, (K, K), or (K,) for the diagonal of a matrix that is 0 elsewhere.
            prices: multipliers of the constraints, (m,); entries of worst cases are ignored.
        """
        prior = self.train_prior.cpu()
        weights = weights.to(prior)
        class_weights = weights if weights.ndim == 1 else weights.diagonal()
        entries = weights / prior if weights.ndim == 1 else canonical(weights / prior[:, None])
        in_worst_case = self.objective.domain.simplex_mask(len(prices))
        value = prices.to(prior)
        if in_worst_case.any():
            fractions = self._fractions_behind(Confusion.uniform(prior), class_weights / class_weights.sum())
            value = self._weigh_entries(torch.where(in_worst_case, torch.ones_like(value), value), fractions)
        self.value = torch.minimum(value, self.units.limits.to(value)).to(self.value)
        self.entries = Gain(entries).entries.to(self.entries.device)

    def _start(self, chance: Confusion, initial: Initial) -> Tensor:
        """Return the initial multipliers, (m,)."""
        starts = {"uniform": self._start_uniform, "prior": self._start_prior, "zero": self._start_zero}
        if not isinstance(initial, str) or initial not in starts:
            raise InputError(f'initial must be "uniform", "prior" or "zero"; found {initial!r}')
        return starts[initial](chance)

    def _start_uniform(self, chance: Confusion) -> Tensor:
        """Return multipliers with which every class weighs the same in a worst case; 1/K for each constraint."""
        value = self._start_by_domain(chance)
        places = [
            place for part, place in flatten_domain(self.objective.domain, len(value)) if isinstance(part, Simplex)
        ]
        # A worst case with fewer entries than classes may have entries of several classes, such as recall[head].
        if any(place.stop - place.start < chance.classes for place in places):
            weights = self._fractions_behind(chance, torch.full_like(chance.prior, 1 / chance.classes))
            if any(weights[place].unique().numel() > 1 for place in places):
                return self._weigh_entries(value, weights)
        return value

    def _start_prior(self, chance: Confusion) -> Tensor:
        """Return worst cases that weigh each entry by the fraction of training examples behind it."""
        value = self._start_by_domain(chance)
        if not self.objective.domain.simplex_mask(len(value)).any():
            return value
        return self._weigh_entries(value, self._fractions_behind(chance, chance.prior))

    def _start_zero(self, chance: Confusion) -> Tensor:
        """Return the uniform start with constraints at 0."""
        value = self._start_uniform(chance)
        return torch.where(self.objective.domain.simplex_mask(len(value)), value, torch.zeros_like(value))

    def _start_by_domain(self, chance: Confusion) -> Tensor:
        size = len(payoff_of(self.objective, chance))
        return self.objective.domain.start(size, chance.classes) * self.units.scales

    def _wait_for_classes(self, payoff: Tensor, confusion: Confusion) -> Tensor:
        """Return the payoff with waiting entries set to the mean of the others, so that their multipliers stand still.

        An entry has begun for good once the mean recall of the classes behind it was `BEGUN` of the way above chance.
        """
        membership = self._classes_behind(Confusion.uniform(confusion.prior)).to(payoff)
        recall = membership @ confusion.recall.to(payoff) / membership.sum(1).clamp(min=1)
        chance = 1 / confusion.classes
        # An entry that depends on no class's recall has nothing to wait for.
        begins = (recall > chance + BEGUN * (1 - chance)) | (membership.sum(1) == 0)
        self.has_begun = self.has_begun | begins.to(self.has_begun.device)
        is_begun = self.has_begun.to(payoff.device)
        changed_payoff = payoff.clone()
        for domain, place in flatten_domain(self.objective.domain, len(payoff)):
            entries = payoff[place]
            if isinstance(domain, Simplex):
                weights = self.value[place].to(payoff) * is_begun[place]
                # Before any entry has begun the mean is 0 for all, and nothing moves.
                mean = (weights @ entries) / weights.sum().clamp(min=torch.finfo(payoff.dtype).tiny)
                changed_payoff[place] = torch.where(is_begun[place], entries, mean)
            else:
                changed_payoff[place] = torch.where(is_begun[place], entries, entries.clamp(min=0))
        return changed_payoff

    def _weigh_entries(self, uniform: Tensor, weights: Tensor) -> Tensor:
        """Return multipliers with each worst case in proportion to the weights (m,) and constraints unchanged."""
        # A step of size 1 from uniform along -log(weight) lands on the weights and normalizes each worst case.
        in_worst_case = self.objective.domain.simplex_mask(len(uniform))
        payoff = torch.where(in_worst_case, -torch.log(weights), torch.zeros_like(uniform))
        return self.objective.domain.step(uniform, payoff, 1.0)

    def _fractions_behind(self, start: Confusion, prior: Tensor) -> Tensor:
        """Return the fraction of a class prior (K,) behind each worst-case entry, split if a class has several."""
        membership = self._classes_behind(start)
        membership[~self.objective.domain.simplex_mask(len(membership))] = 0
        fractions = (membership / membership.sum(0).clamp(min=1)) @ prior
        return fractions.clamp(min=float(prior.min()) * 1e-3)

    @torch.enable_grad()
    def _classes_behind(self, start: Confusion) -> Tensor:
        """Return 1 for an entry of the payoff that depends on R_ii of class i, else 0, (m, K)."""
        rates = start.smoothed(self.objective.epsilon).rates

        def payoff_at(change: Tensor) -> Tensor:
            return payoff_of(self.objective, Confusion(rates + torch.diag(change), start.prior))

        slopes = torch.autograd.functional.jacobian(payoff_at, torch.zeros_like(start.prior)).abs()
        return (slopes > 1e-12 * slopes.max()).to(slopes)


def find_collapse(history: Sequence[Sequence[float]], shared: Sequence[bool], labels: Sequence[str]) -> str:
    """Return a sentence about a worst case that has collapsed on a single entry; "" if none has.

    Args:
        history: multipliers after each update, m numbers each; the last `COLLAPSE_UPDATES` count.
        shared: whether each multiplier weighs an entry of a worst case (`domain.simplex_mask`), m of them.
        labels: names of the multipliers, m of them.

    Returns:
        The sentence, with advice.
    """
    entries = [index for index, is_shared in enumerate(shared) if is_shared]
    if len(entries) < 2 or len(history) < COLLAPSE_UPDATES:
        return ""
    if min(max(multipliers[k] for k in entries) for multipliers in history[-COLLAPSE_UPDATES:]) <= COLLAPSE_WEIGHT:
        return ""
    weight, index = max((history[-1][k], k) for k in entries)
    return (
        f"the multiplier of {labels[index]} has held {weight:.1%} of the weight for {COLLAPSE_UPDATES} updates, so the "
        "other classes are hardly trained for: lower dual.step_size, or let it decay with dual.schedule linear"
    )


def _check_step_size(step_size: float) -> None:
    if not (isinstance(step_size, (int, float)) and 0 <= step_size < float("inf")):
        raise InputError(f"step_size is a finite number >= 0; found {step_size!r}")
