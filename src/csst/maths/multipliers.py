"""lambda and G as buffers: the min-player of the game, in a checkpoint and on a device like any module."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, check_prior
from csst.maths.domains import Simplex, flatten_domain
from csst.maths.gain import Gain, canonical, gain_matrix
from csst.maths.objectives import MetricPrior, Objective, check_objective, payoff_of
from csst.maths.slopes import ConstraintUnits

Initial = Literal["uniform", "prior", "zero"]
#: the mean of the confusions starts at chance, as if that had been seen at so many updates
CHANCE_UPDATES = 3
#: how far above chance, as a part of the way to 1, the recall of a class is once the network has begun to learn it
BEGUN = 0.1


class Multipliers(nn.Module):
    """The multipliers of an objective, and the gain they give (Algorithms 1 [algo:worst-case] and 2 [algo:coverage]).

        game = csst.Multipliers(csst.objective("max min(recall)"), train_prior=[0.9, 0.1])
        game.update(confusion)
        loss = csst.cost_sensitive_loss(logits, labels, game.gain).mean()

    `value` is lambda, (m,); `gain` the current `Gain`, before the first update the one at R = 1/K.

    Where the gain depends on the confusion (F1, Jaccard, G-mean, precision ...) it is derived at the mean of the
    confusions so far, the newest weighing gamma_t = 2/(t + 1 + CHANCE_UPDATES): Frank-Wolfe, whose linear maximization
    is what a network trained under a gain does. A constraint that is steeper than the objective moves by smaller steps
    (`csst.maths.slopes`). The paper's objectives know neither: they follow Algorithms 1 and 2 to the last digit.

    Args:
        objective: an `Objective`; `csst.objective` reads one from a sentence.
        train_prior: pi, class fractions of the training data, (K,).
        step_size: omega, how far lambda moves at an update.
        initial: "uniform" (in a worst case every class weighs the same, so that recall starts at the gain of mean
            recall; 1/K for each constraint, less for a steep one), "prior" (a worst case starts at the fraction of
            training examples behind each entry, so that recall starts at G = I), "zero" (constraints start at 0), or
            the values themselves, (m,).
        metric_prior: see `gain_matrix`.
        waits: whether a multiplier stands still until the classes behind it have begun to be learned. Their recall is
            low whatever it is, so that its sum of payoffs would grow, and has to shrink again once they are learned.
    """

    value: Tensor
    entries: Tensor
    train_prior: Tensor
    mean_rates: Tensor
    updates: Tensor
    has_begun: Tensor

    def __init__(
        self,
        objective: Objective,
        train_prior: Any,
        step_size: float = 0.25,
        initial: Initial | Any = "uniform",
        metric_prior: MetricPrior | None = None,
        waits: bool = False,
    ) -> None:
        super().__init__()
        _check_step_size(step_size)
        prior = check_prior(train_prior, "the training prior")
        self.objective = check_objective(objective).bind_prior(prior)
        self.step_size, self.metric_prior = float(step_size), metric_prior
        start = Confusion.uniform(prior)
        self.units = ConstraintUnits.measure(self.objective, prior, metric_prior or self.objective.metric_prior)
        value = self._start(start, initial)
        self.register_buffer("train_prior", prior)
        self.register_buffer("value", value)
        self.register_buffer("mean_rates", start.rates.clone())
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("entries", gain_matrix(self.objective, value, start, prior, metric_prior).entries)
        self.waits = waits
        if waits:
            self.register_buffer("has_begun", torch.zeros(len(value), dtype=torch.bool))
        self._gain: tuple[Gain, int] | None = None

    @property
    def gain(self) -> Gain:
        # Moving the module replaces the buffer and loading a state writes into it: both make the cached gain stale.
        """The gain at the current multipliers."""
        if self._gain is None or self._gain[0].entries is not self.entries or self._gain[1] != self.entries._version:
            self._gain = Gain(self.entries), self.entries._version
            self.entries = self._gain[0].entries
        return self._gain[0]

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A gain may have become diagonal, or have ceased to be, since this module was made.
        stored = state.get(f"{prefix}entries")
        if isinstance(stored, Tensor) and stored.shape in ((len(self.train_prior),), (len(self.train_prior),) * 2):
            self.entries = torch.empty(stored.shape, dtype=self.entries.dtype, device=self.entries.device)
        super()._load_from_state_dict(state, prefix, *rest)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each multiplier."""
        named = self.objective.labels
        return named if len(named) == len(self.value) else tuple(f"payoff {k}" for k in range(len(self.value)))

    @torch.no_grad()
    def update(self, confusion: Confusion, step_size: float | None = None) -> None:
        """One dual step: lambda <- step(lambda, payoff of this confusion), then G (Algorithms 1 and 2).

        R_mean <- (1 - gamma_t) R_mean + gamma_t R,  gamma_t = 2/(t + 1 + CHANCE_UPDATES) at the t-th update.

        Args:
            confusion: of the classifier now, K classes.
            step_size: omega of this step; None takes the module's own.
        """
        payoff = payoff_of(self.objective, confusion).to(self.value)
        if self.waits:
            payoff = self._wait_for_classes(payoff, confusion)
        size = self.step_size if step_size is None else step_size
        _check_step_size(size)
        value = self.objective.domain.step(self.value, payoff * self.units.scales.to(payoff), size)
        value = torch.minimum(value, self.units.limits.to(value))
        self.updates = self.updates + 1
        newest = 2 / (float(self.updates) + 1 + CHANCE_UPDATES)
        self.mean_rates = (1 - newest) * self.mean_rates + newest * confusion.rates.to(self.mean_rates)
        mean = Confusion(self.mean_rates.to(confusion.rates), confusion.prior)
        prices = value * self.units.damp(mean).to(value)
        gain = gain_matrix(self.objective, prices, mean, self.train_prior, self.metric_prior)
        self.value, self.entries = value, gain.entries.to(self.entries.device)

    @torch.no_grad()
    def adopt(self, weights: Tensor, prices: Tensor) -> None:
        """Take over a gain that was found otherwise, and the multipliers it stands for.

            G = w / pi,     lambda of a worst case in proportion to the weights of the classes behind its entries

        Args:
            weights: w_ij = pi_i G_ij, (K, K), or (K,) for the diagonal of a matrix that is 0 elsewhere.
            prices: multipliers of the constraints, (m,); entries of worst cases are not looked at.
        """
        prior = self.train_prior.cpu()
        weights = weights.to(prior)
        class_weights = weights if weights.ndim == 1 else weights.diagonal()
        entries = weights / prior if weights.ndim == 1 else canonical(weights / prior[:, None])
        in_worst_case = self.objective.domain.simplex_mask(len(prices))
        value = prices.to(prior)
        if in_worst_case.any():
            behind = self._fractions_behind(Confusion.uniform(prior), class_weights / class_weights.sum())
            value = self._weigh_entries(torch.where(in_worst_case, torch.ones_like(value), value), behind)
        self.value = torch.minimum(value, self.units.limits.to(value)).to(self.value)
        self.entries = Gain(entries).entries.to(self.entries.device)

    def _start(self, start: Confusion, initial: Initial | Any) -> Tensor:
        size, domain = len(payoff_of(self.objective, start)), self.objective.domain
        if not isinstance(initial, str):
            value = as_float64(initial, "the initial multipliers").detach().clone()
            if value.shape != (size,) or not torch.isfinite(value).all() or not domain.contains(value):
                raise InputError(f"the initial multipliers must be {size} numbers in {domain}; found {value.tolist()}")
            return value
        if initial not in ("uniform", "prior", "zero"):
            raise InputError(f'initial must be "uniform", "prior", "zero" or the values; found {initial!r}')
        value, in_worst_case = domain.start(size, start.classes) * self.units.scales, domain.simplex_mask(size)
        if initial == "prior" and in_worst_case.any():
            return self._weigh_entries(value, self._fractions_behind(start, start.prior))
        worst_cases = [at for part, at in flatten_domain(domain, size) if isinstance(part, Simplex)]
        if any(at.stop - at.start < start.classes for at in worst_cases):  # some entry may be of several classes
            weights = self._fractions_behind(start, torch.full_like(start.prior, 1 / start.classes))
            is_level = all(weights[at].unique().numel() == 1 for at in worst_cases)
            value = value if is_level else self._weigh_entries(value, weights)
        return torch.where(in_worst_case, value, torch.zeros_like(value)) if initial == "zero" else value

    def _wait_for_classes(self, payoff: Tensor, confusion: Confusion) -> Tensor:
        """The payoff with entries that must wait at the mean of the others, which leaves their multipliers as they are.

        An entry has begun for good once the mean recall of the classes behind it was `BEGUN` of the way above chance.
        """
        behind = self._classes_behind(Confusion.uniform(confusion.prior)).to(payoff)
        recall = behind @ confusion.recall.to(payoff) / behind.sum(1).clamp(min=1)
        chance = 1 / confusion.classes
        # Nothing can be waited for where no class's own recall moves an entry.
        begins = (recall > chance + BEGUN * (1 - chance)) | (behind.sum(1) == 0)
        self.has_begun = self.has_begun | begins.to(self.has_begun.device)
        is_begun = self.has_begun.to(payoff.device)
        changed_payoff = payoff.clone()
        for domain, place in flatten_domain(self.objective.domain, len(payoff)):
            entries = payoff[place]
            if isinstance(domain, Simplex):
                weights = self.value[place].to(payoff) * is_begun[place]
                # With no entry begun all stand at 0, and nothing moves.
                mean = (weights @ entries) / weights.sum().clamp(min=torch.finfo(payoff.dtype).tiny)
                changed_payoff[place] = torch.where(is_begun[place], entries, mean)
            else:
                changed_payoff[place] = torch.where(is_begun[place], entries, entries.clamp(min=0))
        return changed_payoff

    def _weigh_entries(self, uniform: Tensor, weights: Tensor) -> Tensor:
        """Each worst case in proportion to these weights (m,), constraints as they are."""
        # A step of size 1 from uniform along -log(weight) lands on the weights, each worst case normalized apart.
        in_worst_case = self.objective.domain.simplex_mask(len(uniform))
        behind = torch.where(in_worst_case, -torch.log(weights), torch.zeros_like(uniform))
        return self.objective.domain.step(uniform, behind, 1.0)

    def _fractions_behind(self, start: Confusion, prior: Tensor) -> Tensor:
        """The part of a class prior (K,) behind each entry of a worst case: of classes whose own rate R_ii moves it."""
        behind = self._classes_behind(start)
        behind[~self.objective.domain.simplex_mask(len(behind))] = 0
        fractions = (behind / behind.sum(0).clamp(min=1)) @ prior
        return fractions.clamp(min=float(prior.min()) * 1e-3)

    @torch.enable_grad()
    def _classes_behind(self, start: Confusion) -> Tensor:
        """1 where a class's own rate R_ii moves an entry of the payoff, else 0, (m, K)."""
        rates = start.smoothed(self.objective.epsilon).rates

        def along(block: Tensor) -> Tensor:
            return payoff_of(self.objective, Confusion(rates + torch.diag(block), start.prior))

        moved = torch.autograd.functional.jacobian(along, torch.zeros_like(start.prior)).abs()
        return (moved > 1e-12 * moved.max()).to(moved) if moved.numel() else moved


def _check_step_size(step_size: float) -> None:
    if not (isinstance(step_size, (int, float)) and 0 <= step_size < float("inf")):
        raise InputError(f"step_size is a finite number >= 0; found {step_size!r}")
