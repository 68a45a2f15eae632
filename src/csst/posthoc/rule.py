"""Decision rules on a classifier's probabilities: one gain matrix, or a lottery between a few.

    F(x) = argmax_j (G^T p(x))_j

The first of equal scores wins, as in `argmax`. Multiplying G by a positive constant, or adding a constant to one of
its rows, changes no decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.confusion import Confusion, as_float64, confusion_counts
from csst.errors import InputError
from csst.gain import Gain, canonical

#: how far a row of probabilities may be from summing to 1: enough for a softmax in single precision
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """argmax_j (G^T p)_j for a matrix G (K, K), float64; `DecisionRule.identity(K)` is the plain argmax."""

    matrix: Tensor

    def __post_init__(self) -> None:
        matrix = as_float64(self.matrix, "the matrix of a decision rule").detach().cpu()
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
            raise InputError(f"a decision rule needs a matrix (K, K) with K >= 2; found shape {tuple(matrix.shape)}")
        if not torch.isfinite(matrix).all():
            raise InputError("the matrix of a decision rule must be finite; found NaN or infinite entries")
        object.__setattr__(self, "matrix", matrix)

    @classmethod
    def identity(cls, classes: int) -> DecisionRule:
        return cls(torch.eye(classes, dtype=torch.float64))

    @property
    def classes(self) -> int:
        return len(self.matrix)

    @property
    def gain(self) -> Gain:
        """The same rule as a gain matrix in canonical form, for the losses."""
        return Gain(canonical(self.matrix))

    def scores(self, probs: Any) -> Tensor:
        """G^T p for every example, (N, K)."""
        return scored(check_probs(probs, self.classes), self.matrix)

    def predict(self, probs: Any) -> Tensor:
        """The class of every example, (N,)."""
        return self.scores(probs).argmax(1)

    def counts(self, probs: Any, labels: Any) -> Tensor:
        """Confusion counts (K, K), row = truth."""
        return confusion_counts(labels, self.predict(probs), self.classes)

    def confusion(self, probs: Any, labels: Any) -> Confusion:
        return Confusion.from_counts(self.counts(probs, labels))

    def shrunk(self, strength: float, odds: Tensor | None = None) -> DecisionRule:
        """The rule part of the way from the plain argmax (strength 0) to this one (strength 1).

            G_ij = r_i a_j (delta_ij + c_ij)    ->    r_i^s a_j^s (delta_ij + s c_ij)

        `odds` is r, which takes the probabilities to another class prior; None for 1. The weights a are what stands on
        the diagonal beyond the rest of the column, scaled to 1 at most. A constant added to all a_j c_ij changes no
        decision; the one is taken that makes the offsets c smallest.
        """
        if not 0 <= strength <= 1:
            raise InputError(f"strength lies between 0 (no adjustment) and 1 (all of it); found {strength!r}")
        if strength == 0:
            return DecisionRule.identity(self.classes)
        rows = torch.ones(self.classes, dtype=torch.float64) if odds is None else odds
        inner = self.matrix / rows[:, None]
        column = (inner.sum(0) - inner.diagonal()) / (self.classes - 1)
        weight = inner.diagonal() - column
        scale = float(weight.abs().max())
        if strength == 1 or scale == 0:
            return self
        weight, rest = weight / scale, (inner - torch.diag(inner.diagonal() - column)) / scale
        # A weight that is not positive has no logarithm: it goes straight from 1 to its value.
        positive = weight > 1e-6
        power = torch.where(positive, weight.abs().pow(strength), 1 - strength + strength * weight)
        pace = torch.where(positive, power / weight, 1.0)
        nearness = torch.where(positive, weight, 1.0).pow(-2)
        constant = (nearness * column).sum() / nearness.sum() / scale
        return DecisionRule(rows.pow(strength)[:, None] * (torch.diag(power) + strength * (rest - constant) * pace))

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON; `rule_from_dict` reads it back."""
        return {"kind": "deterministic", "matrix": self.matrix.tolist()}

    def tensors(self) -> dict[str, Tensor]:
        """The rule as named tensors, e.g. for safetensors; `rule_from_tensors` reads it back."""
        return {"matrices": self.matrix[None].clone(), "weights": torch.ones(1, dtype=torch.float64)}


@dataclass(frozen=True, eq=False)
class Randomised:
    """For each example one of a few rules, drawn with fixed weights.

    Its confusion is the same mixture of the rules' confusions, exactly; so it can reach what lies between them.
    """

    rules: tuple[DecisionRule, ...]
    weights: Tensor

    def __post_init__(self) -> None:
        weights = as_float64(self.weights, "the weights of a randomised rule").detach().cpu()
        if not self.rules or weights.shape != (len(self.rules),):
            raise InputError(
                f"a randomised rule needs one weight per rule; found {len(self.rules)} rules and weights of shape "
                f"{tuple(weights.shape)}"
            )
        if len({rule.classes for rule in self.rules}) > 1:
            raise InputError("the rules of a randomised rule must have the same classes")
        if not (torch.isfinite(weights).all() and (weights >= 0).all() and abs(float(weights.sum()) - 1) < 1e-6):
            raise InputError(
                f"the weights of a randomised rule must be non-negative and sum to 1; found {weights.tolist()}"
            )
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def classes(self) -> int:
        return self.rules[0].classes

    def scores(self, probs: Any) -> Tensor:
        """The chance with which each class is predicted, (N, K)."""
        chances = check_probs(probs, self.classes).new_zeros(len(probs), self.classes)
        for weight, rule in zip(self.weights, self.rules, strict=True):
            chances.scatter_add_(1, rule.predict(probs)[:, None], weight.expand(len(chances), 1))
        return chances

    def predict(self, probs: Any, generator: torch.Generator | int) -> Tensor:
        """The class of every example, drawn with a generator or a seed."""
        if isinstance(generator, int):
            generator = torch.Generator().manual_seed(generator)
        options = torch.stack([rule.predict(probs) for rule in self.rules])
        if not options.shape[1]:
            return options[0]
        drawn = torch.multinomial(self.weights, options.shape[1], replacement=True, generator=generator)
        return options.gather(0, drawn[None]).squeeze(0)

    def counts(self, probs: Any, labels: Any) -> Tensor:
        """Expected confusion counts (K, K), float64: exact, nothing is drawn."""
        each = torch.stack([rule.counts(probs, labels) for rule in self.rules]).double()
        return (self.weights[:, None, None] * each).sum(0)

    def confusion(self, probs: Any, labels: Any) -> Confusion:
        return Confusion.from_counts(self.counts(probs, labels))

    def as_dict(self) -> dict[str, Any]:
        matrices = [rule.matrix.tolist() for rule in self.rules]
        return {"kind": "randomised", "matrices": matrices, "weights": self.weights.tolist()}

    def tensors(self) -> dict[str, Tensor]:
        return {"matrices": torch.stack([rule.matrix for rule in self.rules]), "weights": self.weights.clone()}


def rule_from_dict(stored: Mapping[str, Any]) -> DecisionRule | Randomised:
    """A rule from what `as_dict` gave."""
    if stored.get("kind") == "deterministic" and "matrix" in stored:
        return DecisionRule(stored["matrix"])
    if stored.get("kind") == "randomised" and {"matrices", "weights"} <= set(stored):
        return Randomised(tuple(DecisionRule(m) for m in stored["matrices"]), stored["weights"])
    raise InputError(
        "a stored rule has kind 'deterministic' with a matrix, or 'randomised' with matrices and weights; "
        f"found the keys {sorted(map(str, stored))}"
    )


def rule_from_tensors(tensors: Mapping[str, Tensor]) -> DecisionRule | Randomised:
    """A rule from what `tensors` gave; a single matrix is a deterministic rule."""
    if not {"matrices", "weights"} <= set(tensors) or tensors["matrices"].ndim != 3:
        raise InputError(
            f"a stored rule has tensors matrices (M, K, K) and weights (M,); found {sorted(map(str, tensors))}"
        )
    rules = tuple(DecisionRule(matrix) for matrix in tensors["matrices"])
    return rules[0] if len(rules) == 1 else Randomised(rules, tensors["weights"])


def scored(probs: Tensor, matrix: Tensor) -> Tensor:
    """G^T p for checked probabilities (N, K), without a matrix product where G is diagonal."""
    own = matrix.diagonal()
    return probs * own if torch.equal(matrix, torch.diag(own)) else probs @ matrix


def check_probs(probs: Any, classes: int | None = None) -> Tensor:
    """Probabilities (N, K) as float64 on the CPU: finite, non-negative, rows that sum to 1."""
    values = as_float64(probs, "probs").detach().cpu()
    wanted = "K" if classes is None else str(classes)
    if values.ndim != 2 or (classes is not None and values.shape[1] != classes):
        raise InputError(f"probs must have shape (N, {wanted}), one row per example; found {tuple(values.shape)}")
    if values.shape[1] < 2:
        raise InputError(f"probs must have a column for each of at least 2 classes; found {values.shape[1]}")
    if not torch.isfinite(values).all():
        rows = (~torch.isfinite(values)).any(1).nonzero().flatten().tolist()
        raise InputError(f"probs must be finite; found NaN or infinite values in rows {rows[:10]}: check the model")
    if (values < 0).any():
        row = int((values < 0).any(1).nonzero()[0])
        raise InputError(
            f"probs must be non-negative; row {row} holds {float(values[row].min()):.4g}: "
            "give probabilities, not logits"
        )
    off = (values.sum(1) - 1).abs()
    if len(off) and float(off.max()) > SUM_TOLERANCE:
        row = int(off.argmax())
        raise InputError(
            f"each row of probs must sum to 1; row {row} sums to {float(values[row].sum()):.6g}: "
            "give the softmax of the logits"
        )
    return values
