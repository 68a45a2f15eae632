"""A decision rule on a classifier's probabilities.

    F(x) = argmax_j  m_j q_j(x) + c_j,      q = softmax(T log p(x) + d)

q are the calibrated probabilities under the deployment prior: T and d come from calibration, and from the class priors
that were taken out and put in. The scale m and offset c carry the objective. The first of equal scores wins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.estimation.held_out_scores import SMALLEST_PROBABILITY, check_probs, undo_gain
from csst.maths.confusion import Confusion, as_float64, confusion_counts


def rule_probs(probs: Tensor, temperature: Tensor, shift: Tensor, undo: Tensor | None) -> Tensor:
    """Return q = softmax(T log p + d), (N, K)."""
    return torch.softmax(temperature * undo_gain(probs, undo).clamp(min=SMALLEST_PROBABILITY).log() + shift, 1)


def rule_scores(posterior: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Return m q + c, (N, K); with a matrix m (K, K), m^T q + c."""
    return (posterior * scale if scale.ndim == 1 else posterior @ scale) + offset


class Rule(ABC):
    """What decides on a classifier's probabilities: one rule for all rows, or one for each group of them.

    Args:
        column: the column that the groups are of; "" for one rule, which ignores the groups it is given.
        names: the values of that column, in the order of the groups.
    """

    column: str
    names: tuple[str, ...]

    @property
    @abstractmethod
    def undo(self) -> Tensor | None:
        """The inverse of the gain that a network was trained under, (K,) or (K, K); None where there was none."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """K, how many classes there are."""

    @property
    def abstains(self) -> bool:
        """Whether the rule may give no answer: never, for groups."""
        return False

    @abstractmethod
    def posterior(self, probs: Any, groups: Any = None) -> Tensor:
        """Return the calibrated probabilities under the deployment prior, softmax(T log p + d).

        Args:
            probs: probabilities by the model, (N, K).
            groups: the value of the column for every row, (N,).

        Returns:
            Probabilities, (N, K), float64.
        """

    @abstractmethod
    def scores(self, probs: Any, groups: Any = None) -> Tensor:
        """Return what is maximized, for every row.

        Args:
            probs: probabilities by the model, (N, K).
            groups: the value of the column for every row, (N,).

        Returns:
            m q + c for the posterior q, (N, K), float64; (N, K + 1) with the worth of no answer last.
        """

    def predict(self, probs: Any, groups: Any = None) -> Tensor:
        """Return the class of every row.

        Args:
            probs: probabilities by the model, (N, K).
            groups: the value of the column for every row, (N,).

        Returns:
            Class indices, (N,); K for no answer.
        """
        return self.scores(probs, groups).argmax(1)

    def counts(self, probs: Any, labels: Any, groups: Any = None) -> Tensor:
        """Return the confusion counts of the predictions.

        Args:
            probs: probabilities by the model, (N, K).
            labels: true class indices, (N,).
            groups: the value of the column for every row, (N,).

        Returns:
            int64 counts, (K, K), row = truth; (K, K + 1) for a rule that may give no answer, which is last.
        """
        return confusion_counts(labels, self.predict(probs, groups), self.classes, self.abstains)

    def confusion(self, probs: Any, labels: Any, groups: Any = None) -> Confusion:
        """Return the confusion of the predictions.

        Args:
            probs: probabilities by the model, (N, K).
            labels: true class indices, (N,); every class at least once.
            groups: the value of the column for every row, (N,).

        Returns:
            Rates and prior of the counts.
        """
        return Confusion.from_counts(self.counts(probs, labels, groups))

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `rule_from_dict` reads."""


@dataclass(frozen=True, eq=False)
class DecisionRule(Rule):
    """argmax_j m_j softmax(T log p + d)_j + c_j; all float64. `DecisionRule.identity(K)` is the plain argmax.

    Args:
        scale: m, (K,); a matrix (K, K) for an objective that reads single wrong predictions, (K, K + 1) for a rule
            that may give no answer.
        offset: c, (K,), or (K + 1,) for a rule that may give no answer.
        temperature: T > 0.
        shift: d, (K,).
        undo: the inverse of the gain that a network was trained under, (K,) or (K, K); None where there was none.
    """

    scale: Tensor
    offset: Tensor
    temperature: float
    shift: Tensor
    undo: Tensor | None = None
    # One rule for all groups.
    column = ""
    names = ()

    def __post_init__(self) -> None:
        for name in ("scale", "offset", "shift", "undo"):
            value = getattr(self, name)
            if value is None and name == "undo":
                continue
            tensor = as_float64(value, f"the {name} of a decision rule").detach().cpu()
            if not torch.isfinite(tensor).all():
                raise InputError(f"the {name} of a decision rule must be finite; found NaN or infinite entries")
            object.__setattr__(self, name, tensor)
        classes = len(self.shift) if self.shift.ndim == 1 else 0
        square = ((classes,), (classes, classes))
        fits = self.scale.shape in square and self.offset.shape == (classes,)
        fits = fits or (self.scale.shape == (classes, classes + 1) and self.offset.shape == (classes + 1,))
        if classes < 2 or not fits or (self.undo is not None and self.undo.shape not in square):
            raise InputError(
                f"a decision rule has a scale, an offset and a shift for each of at least 2 classes; found shapes "
                f"{tuple(self.scale.shape)}, {tuple(self.offset.shape)} and {tuple(self.shift.shape)}"
            )
        if not 0 < self.temperature < float("inf"):
            raise InputError(f"the temperature of a decision rule is a positive number; found {self.temperature!r}")

    @classmethod
    def identity(cls, classes: int) -> DecisionRule:
        """Return the plain argmax.

        Args:
            classes: K.

        Returns:
            The rule that changes nothing.
        """
        zero = torch.zeros(classes, dtype=torch.float64)
        return cls(torch.ones(classes, dtype=torch.float64), zero, 1.0, zero)

    @property
    def classes(self) -> int:
        """K, how many classes there are."""
        return len(self.shift)

    @property
    def abstains(self) -> bool:
        """Whether the rule may give no answer."""
        return len(self.offset) > self.classes

    def posterior(self, probs: Any, groups: Any = None) -> Tensor:
        values = torch.from_numpy(check_probs(probs, self.classes))
        return rule_probs(values, torch.tensor(self.temperature, dtype=torch.float64), self.shift, self.undo)

    def scores(self, probs: Any, groups: Any = None) -> Tensor:
        return rule_scores(self.posterior(probs), self.scale, self.offset)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `rule_from_dict` reads."""
        tensors = {name: getattr(self, name).tolist() for name in ("scale", "offset", "shift")}
        return {
            **tensors,
            "temperature": self.temperature,
            **({} if self.undo is None else {"undo": self.undo.tolist()}),
        }


def build_rule(
    scale: np.ndarray,
    offset: np.ndarray,
    calibration: Calibration,
    prior: np.ndarray,
    train_prior: np.ndarray,
    undo: Tensor | None = None,
) -> DecisionRule:
    """Return the rule argmax_j m_j q_j + c_j, q = softmax(T z + a + log pi), for scores z = log p - log pi_train.

    Args:
        scale: m, (K,), (K, K) or (K, K + 1).
        offset: c, (K,) or (K + 1,).
        calibration: T and a.
        prior: pi, the deployment prior, (K,).
        train_prior: pi_train, which the probabilities p have in them, (K,).
        undo: see `DecisionRule`.
    """
    shift = calibration.bias + np.log(prior) - calibration.temperature * np.log(train_prior)
    arrays = (scale, offset, shift - shift.mean())
    tensors = [torch.from_numpy(np.ascontiguousarray(values)) for values in arrays]
    return DecisionRule(tensors[0], tensors[1], calibration.temperature, tensors[2], undo)


@dataclass(frozen=True, eq=False)
class GroupedRule(Rule):
    """One decision rule for each group of rows, over the same classes and the same undone gain.

    Args:
        column: the column that the groups are of.
        names: its values, A of them.
        rules: their rules.
    """

    column: str
    names: tuple[str, ...]
    rules: tuple[DecisionRule, ...]

    @property
    def classes(self) -> int:
        """K, how many classes there are."""
        return self.rules[0].classes

    @property
    def undo(self) -> Tensor | None:
        """The inverse of the gain that a network was trained under."""
        return self.rules[0].undo

    def read_groups(self, groups: Any, rows: int) -> np.ndarray:
        """Return the indices of groups given by their values; raise an error for a value without a rule.

        Args:
            groups: the value of the column for every row, (N,).
            rows: N.

        Returns:
            Indices, (N,).
        """
        if groups is None:
            raise InputError(
                f"there is one rule for each {self.column}, so that every row needs its group: pass group=..., or on "
                "the command line a file with that column"
            )
        return read_group_values(groups, self.names, self.column, rows)

    def posterior(self, probs: Any, groups: Any = None) -> Tensor:
        return self._by_group("posterior", probs, groups)

    def scores(self, probs: Any, groups: Any = None) -> Tensor:
        return self._by_group("scores", probs, groups)

    def _by_group(self, what: str, probs: Any, groups: Any) -> Tensor:
        values = torch.from_numpy(check_probs(probs, self.classes))
        index = self.read_groups(groups, len(values))
        results = torch.zeros_like(values)
        for a, rule in enumerate(self.rules):
            rows = np.flatnonzero(index == a)
            if len(rows):
                results[rows] = getattr(rule, what)(values[rows])
        return results

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which `rule_from_dict` reads."""
        return {"column": self.column, "groups": list(self.names), "rules": [rule.as_dict() for rule in self.rules]}


def read_group_values(groups: Any, names: Sequence[str], column: str, rows: int) -> np.ndarray:
    """Return the indices of values of a column of groups, (N,); raise an error for a value that is none of the names.

    Args:
        groups: the values, (N,).
        names: the known values, as text.
        column: their column, for errors.
        rows: N.
    """
    values = [str(value) for value in np.asarray(groups, dtype=object).ravel().tolist()]
    if len(values) != rows:
        raise InputError(f"each row needs one {column}; found {len(values)} for {rows} rows")
    places = {name: index for index, name in enumerate(names)}
    strangers = sorted({value for value in values if value not in places})
    if strangers:
        raise InputError(f"{column} has values that were not in the fit: {strangers[:5]}; known are {list(names)[:20]}")
    return np.array([places[value] for value in values], dtype=np.int64)


def rule_from_dict(stored: Mapping[str, Any]) -> Rule:
    """Return the rule that `as_dict` has written."""
    if "rules" in stored:
        rules = [rule_from_dict(part) for part in stored["rules"]]
        return GroupedRule(
            stored["column"], tuple(stored["groups"]), tuple(r for r in rules if isinstance(r, DecisionRule))
        )
    keys = {"scale", "offset", "shift", "temperature"}
    if not keys <= set(stored):
        raise InputError(f"a stored rule has {', '.join(sorted(keys))}; found the keys {sorted(map(str, stored))}")
    return DecisionRule(
        stored["scale"], stored["offset"], float(stored["temperature"]), stored["shift"], stored.get("undo")
    )
