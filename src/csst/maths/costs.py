"""What every kind of mistake costs: a table with one row per true class and one column per prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from csst.errors import InputError, nearest
from csst.maths.confusion import as_float64


@dataclass(frozen=True)
class CostTable:
    """The cost of predicting class j for an example of class i; a negative cost is a profit.

        cost(C) = sum_ij cost_ij C_ij, per example

    Args:
        rows: cost_ij, K rows of K numbers.
        class_names: the class of each row and column; None for the order of the classes.
        unit: unit of the numbers, such as EUR, for reports.
    """

    rows: tuple[tuple[float, ...], ...]
    class_names: tuple[str, ...] | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        sizes = {len(row) for row in self.rows}
        if len(self.rows) < 2 or sizes != {len(self.rows)}:
            raise InputError(
                f"costs have one row and one column per class, K x K; found {len(self.rows)} rows of {sorted(sizes)}"
            )
        values = torch.tensor(self.rows, dtype=torch.float64)
        if not torch.isfinite(values).all():
            raise InputError("costs must be finite numbers; found others")
        if (values.amax(1) == values.amin(1)).all():
            raise InputError("these costs are the same for all predictions of a class, so no prediction is better")
        if self.class_names is not None and len(set(self.class_names)) != len(self.rows):
            raise InputError(
                f"costs need {len(self.rows)} different class names; found {list(self.class_names)}: one for each row"
            )

    def matrix(self, class_names: Sequence[str] | None, classes: int) -> Tensor:
        """Return the costs in the order of the classes.

        Args:
            class_names: names of the classes in order; None if they have none.
            classes: K.

        Returns:
            cost_ij, (K, K), float64.
        """
        if len(self.rows) != classes:
            raise InputError(f"the costs are for {len(self.rows)} classes, and there are {classes}")
        values = torch.tensor(self.rows, dtype=torch.float64)
        if self.class_names is None or class_names is None:
            return values
        unknown = [name for name in class_names if name not in self.class_names]
        if unknown:
            hint = nearest(unknown[0], self.class_names)
            raise InputError(f"the costs name no class {unknown[0]!r}{hint}; they name {list(self.class_names)[:20]}")
        order = [self.class_names.index(name) for name in class_names]
        return values[order][:, order]


def read_cost_table(costs: Any) -> CostTable | None:
    """Return a cost table of a matrix, a data frame with class names as index and columns, or a table; None of None."""
    if costs is None or isinstance(costs, CostTable):
        return costs
    class_names = None
    if hasattr(costs, "columns") and hasattr(costs, "index"):
        class_names = tuple(str(name) for name in costs.index)
        columns = [str(name) for name in costs.columns]
        if sorted(columns) != sorted(class_names):
            raise InputError(f"rows and columns of costs name other classes: {list(class_names)} and {columns}")
        costs = costs.to_numpy()[:, [columns.index(name) for name in class_names]]
    values = as_float64(costs, "costs")
    if values.ndim != 2:
        raise InputError(f"costs have one row and one column per class, K x K; found shape {tuple(values.shape)}")
    return CostTable(tuple(tuple(row) for row in values.tolist()), class_names)


def cost_table_from_dict(stored: dict[str, Any] | None) -> CostTable | None:
    """Return the cost table of a run's metrics.json; None if the run has none."""
    if stored is None:
        return None
    names = stored.get("class_names")
    rows = tuple(tuple(float(cost) for cost in row) for row in stored["rows"])
    return CostTable(rows, None if names is None else tuple(names), stored.get("unit", ""))


def format_amount(value: float, unit: float = 1.0, sign: str = "", digits: int = 3) -> str:
    """Return a number with some digits after the point, and with more if its unit is small.

    Args:
        value: the number.
        unit: what counts as 1; of rates it is 1.
        sign: "+" to show the sign of a positive number.
        digits: digits after the point for a unit of 1 or more.
    """
    exponent = int(f"{unit:e}".partition("e")[2])
    return f"{value:{sign}.{digits + max(0, -exponent)}f}"
