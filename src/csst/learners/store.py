"""Store a portfolio as plain arrays and read it back; reading runs no code.

A linear model is stored as its weights, a kernel with its landmarks, propagation with its nodes and their
probabilities, and a forest as its trees: the feature, threshold, children and class fractions of every node.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from csst.errors import InputError
from csst.estimation.calibration import Calibration
from csst.learners.catalog import LEARNERS
from csst.learners.forest import FittedForest, Trees, read_trees
from csst.learners.kernel import FittedKernel
from csst.learners.linear import FittedLinear
from csst.learners.neighbors import Cells
from csst.learners.portfolio import Member, Portfolio
from csst.learners.projection import Projection
from csst.learners.propagation import FittedPropagation
from csst.learners.protocol import FittedLearner, Rows

FORMAT = 2


def pack(portfolio: Portfolio) -> bytes:
    """Return the portfolio as a safetensors file; raise an error for a learner of the user's own."""
    arrays: dict[str, np.ndarray] = {"prior": portfolio.prior}
    members = []
    for number, member in enumerate(portfolio.members):
        kind, parts = describe_model(member.name, member.model)
        parts["bias"] = member.calibration.bias
        parts["temperature"] = np.array([member.calibration.temperature])
        parts["weight"] = np.array([member.weight])
        arrays |= {f"{number}.{name}": array for name, array in parts.items()}
        members.append({"name": member.name, "kind": kind, "loss": member.loss})
    header = {"format": FORMAT, "members": members, "left_out": list(portfolio.left_out)}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(arrays, metadata={"csst": json.dumps(header)})


def describe_model(name: str, model: FittedLearner) -> tuple[str, dict[str, np.ndarray]]:
    """Return the kind of a fitted learner and its arrays."""
    if isinstance(model, FittedLinear):
        return "linear", {"weights": model.weights, "intercept": model.bias, **describe_table(model.table)}
    if isinstance(model, FittedForest):
        parts: dict[str, np.ndarray] = {}
        for number, forest in enumerate(model.forests):
            parts |= {f"{number}.{key}": array for key, array in read_trees(forest).arrays().items()}
        return "forest", parts
    if isinstance(model, FittedKernel):
        parts = {"landmarks": model.landmarks, "gamma": np.array([model.gamma])}
        parts |= {"weights": model.weights, "intercept": model.bias}
        return "kernel", {**parts, **describe_projection(model.projection)}
    if isinstance(model, FittedPropagation):
        parts = {"nodes": model.nodes, "probs": model.probs, "fractions": model.prior}
        if model.cells is not None:
            parts |= {"centers": model.cells.centers, "nearby": model.cells.nearby}
        return "propagation", {**parts, **describe_projection(model.projection)}
    names = ", ".join(name for name in LEARNERS if name not in ("auto", "network"))
    raise InputError(f"the learner {name} cannot be stored without running code: use {names}")


def describe_table(table: Rows) -> dict[str, np.ndarray]:
    return {"mean": table.mean, "std": table.std, "sizes": np.array(table.sizes, dtype=np.int64)}


def describe_projection(projection: Projection) -> dict[str, np.ndarray]:
    return {
        "center": projection.center,
        "matrix": projection.matrix,
        "has_unit_length": np.array([projection.has_unit_length]),
        **describe_table(projection.table),
    }


def unpack(content: bytes, what: str) -> Portfolio:
    """Return the portfolio in the bytes of `pack`; `what` names the file in errors."""
    try:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["csst"])
        arrays = load(content)
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']}, and this csst reads {FORMAT}")
        members = tuple(_member(arrays, number, entry) for number, entry in enumerate(header["members"]))
        return Portfolio(members, tuple(header["left_out"]), arrays["prior"])
    except Exception as error:  # a damaged file can make its reader raise anything
        raise InputError(f"{what} cannot be read as stored learners: {error}") from None


def _model(kind: str, arrays: dict[str, np.ndarray]) -> FittedLearner:
    if kind == "forest":
        return FittedForest(tuple(Trees.from_arrays(arrays, f"{number}.") for number in (0, 1)))
    table = Rows(arrays["mean"], arrays["std"], tuple(arrays["sizes"].tolist()))
    if kind == "linear":
        return FittedLinear(table, arrays["weights"], arrays["intercept"])
    projection = Projection(table, arrays["center"], arrays["matrix"], bool(arrays["has_unit_length"][0]))
    if kind == "kernel":
        return FittedKernel(
            projection, arrays["landmarks"], float(arrays["gamma"][0]), arrays["weights"], arrays["intercept"]
        )
    if kind == "propagation":
        cells = Cells(arrays["centers"], arrays["nearby"]) if "centers" in arrays else None
        return FittedPropagation(projection, arrays["nodes"], arrays["probs"], arrays["fractions"], cells)
    raise ValueError(f"there is no learner of the kind {kind!r}")


def _member(arrays: dict[str, np.ndarray], number: int, entry: dict[str, Any]) -> Member:
    prefix = f"{number}."
    parts = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    calibration = Calibration(float(parts["temperature"][0]), parts["bias"])
    model = _model(entry["kind"], parts)
    return Member(entry["name"], model, calibration, float(entry["loss"]), float(parts["weight"][0]))
