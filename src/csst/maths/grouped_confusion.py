"""What a classifier does in each group of rows.

rates      R_aij = P(F(x) = j | y = i, group a)          (A, K, K)
prior      P_ai  = P(y = i, group a)                     (A, K), sums to 1
pooled     R_ij  = sum_a P_ai R_aij / sum_a P_ai         what it does on all rows together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError
from csst.maths.confusion import Confusion, as_float64, check_prior


@dataclass(frozen=True, eq=False)
class GroupedConfusion(Confusion):
    """The confusion of all rows, which also has that of each group, as "recall by region" reads it.

    Args:
        rates: R_ij of all rows, (K, K).
        prior: pi of all rows, (K,).
        by_group: the confusion of each group, A of them.
    """

    by_group: tuple[Confusion, ...] = ()

    @classmethod
    def from_rates(cls, rates: Any, prior: Any) -> GroupedConfusion:
        """Return the confusion of rates in each group.

        Args:
            rates: R_aij, (A, K, K).
            prior: P_ai, the fractions of all rows in each group and class, (A, K), positive, sums to 1.

        Returns:
            The pooled confusion with those of the groups, differentiable in the rates.
        """
        values = as_float64(rates, "rates")
        fractions = as_float64(prior, "the prior of groups and classes")
        if values.ndim != 3 or fractions.shape != values.shape[:2] or values.shape[1] != values.shape[2]:
            raise InputError(
                f"rates of groups need shape (A, K, K) and a prior of shape (A, K); found {tuple(values.shape)} and "
                f"{tuple(fractions.shape)}"
            )
        check_prior(fractions.flatten(), "the prior of groups and classes")
        totals = fractions.sum(0)
        pooled = values[0]
        if len(values) > 1:  # one group is all rows, to the bit
            pooled = (fractions[:, :, None] * values).sum(0) / totals[:, None]
        parts = tuple(Confusion(r, p / p.sum()) for r, p in zip(values, fractions, strict=True))
        return cls(pooled, totals, parts)

    @classmethod
    def from_counts(
        cls, counts: Any, class_names: Sequence[str] | None = None, row_groups: Sequence[str] | None = None
    ) -> GroupedConfusion:
        """Return the confusion of counted predictions in each group.

        Args:
            counts: (A, K, K), row = truth, column = prediction; each class in each group at least once.
            class_names: names for the error about a class without examples in a group.
            row_groups: names of the groups for the same error.

        Returns:
            Rates and prior of the counts.
        """
        values = as_float64(counts, "counts")
        totals = values.sum(2)
        for group, k in (totals <= 0).nonzero().tolist():
            class_name = k if class_names is None else class_names[k]
            group_name = group if row_groups is None else row_groups[group]
            raise InputError(
                f"rates of groups need an example of every class in every group; class {class_name!r} has none in "
                f"group {group_name!r}: add examples, or merge groups or classes"
            )
        return cls.from_rates(values / totals[:, :, None], totals / totals.sum())


def count_groups(labels: Any, predictions: Any, groups: Any, classes: int, group_count: int) -> Tensor:
    """Return confusion counts in each group, (A, K, K), int64.

    Args:
        labels: true classes, integers in 0 .. K-1, (N,).
        predictions: predicted classes, (N,).
        groups: groups of the rows, integers in 0 .. A-1, (N,).
        classes: K.
        group_count: A.
    """
    cells = (torch.as_tensor(groups) * classes + torch.as_tensor(labels)) * classes + torch.as_tensor(predictions)
    return torch.bincount(cells, minlength=group_count * classes**2).reshape(group_count, classes, classes)
