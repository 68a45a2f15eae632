"""A portfolio as plain arrays, and back: no code is run when it is read.

A linear model is its weights, a kernel its landmarks too, propagation its nodes with their probabilities; a forest is
its trees: for every node the feature, the threshold, the two children and the class fractions, all trees one after the
other.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from csst.errors import InputError
from csst.learners.forest import FittedForest
from csst.learners.kernel import FittedKernel
from csst.learners.linear import FittedLinear
from csst.learners.neighbors import Cells
from csst.learners.portfolio import Member, Portfolio
from csst.learners.projection import Projection
from csst.learners.propagation import FittedPropagation
from csst.learners.protocol import FittedLearner, Rows
from csst.learners.read import LEARNERS
from csst.learners.trees import Trees, read_trees
from csst.statistics.calibration import Calibration

FORMAT = 2


def pack(portfolio: Portfolio) -> bytes:
    """The portfolio as a safetensors file; a learner of the user's own is refused."""
    arrays: dict[str, np.ndarray] = {"prior": portfolio.prior}
    members = []
    for number, member in enumerate(portfolio.members):
        kind, parts = describe_model(member.name, member.model)
        calibration = member.calibration
        parts = {**parts, "bias": calibration.bias, "temperature": np.array([calibration.temperature])}
        parts["weight"] = np.array([member.weight])
        arrays |= {f"{number}.{name}": array for name, array in parts.items()}
        members.append({"name": member.name, "kind": kind, "loss": member.loss})
    about = {"format": FORMAT, "members": members, "left_out": list(portfolio.left_out)}
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(plain, metadata={"csst": json.dumps(about)})


def describe_model(name: str, model: FittedLearner) -> tuple[str, dict[str, np.ndarray]]:
    """The kind of a fitted learner, and its arrays."""
    if isinstance(model, FittedLinear):
        return "linear", {"weights": model.weights, "intercept": model.bias, **describe_table(model.table)}
    if isinstance(model, FittedForest):
        parts: dict[str, np.ndarray] = {}
        for at, forest in enumerate(model.forests):
            parts |= {f"{at}.{key}": array for key, array in read_trees(forest).arrays().items()}
        return "forest", parts
    if isinstance(model, FittedKernel):
        arrays_of_model = {"landmarks": model.landmarks, "gamma": np.array([model.gamma])}
        arrays_of_model |= {"weights": model.weights, "intercept": model.bias}
        return "kernel", {**arrays_of_model, **describe_projection(model.projection)}
    if isinstance(model, FittedPropagation):
        arrays_of_model = {"nodes": model.nodes, "probs": model.probs, "fractions": model.prior}
        if model.cells is not None:
            arrays_of_model |= {"centers": model.cells.centers, "nearby": model.cells.nearby}
        return "propagation", {**arrays_of_model, **describe_projection(model.projection)}
    names = ", ".join(known for known in LEARNERS if known not in ("auto", "network"))
    raise InputError(f"the learner {name} cannot be stored without running code: use {names}")


def describe_table(table: Rows) -> dict[str, np.ndarray]:
    return {"mean": table.mean, "std": table.std, "sizes": np.array(table.sizes, dtype=np.int64)}


def describe_projection(projection: Projection) -> dict[str, np.ndarray]:
    arrays_of_model = {"center": projection.center, "matrix": projection.matrix}
    return {
        **arrays_of_model,
        "has_unit_length": np.array([projection.has_unit_length]),
        **describe_table(projection.table),
    }


def unpack(content: bytes, what: str) -> Portfolio:
    """A portfolio from what `pack` gave."""
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["csst"])
        arrays = load(content)
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']}, and this csst reads {FORMAT}")
        members = tuple(_member(arrays, number, each) for number, each in enumerate(about["members"]))
        return Portfolio(members, tuple(about["left_out"]), arrays["prior"])
    except Exception as error:  # a damaged file can make its reader raise anything
        raise InputError(f"{what} cannot be read as stored learners: {error}") from None


def _trees(arrays: dict[str, np.ndarray], number: int) -> Trees:
    names = ("roots", "feature", "threshold", "left", "right", "probs")
    return Trees(**{name: arrays[f"{number}.{name}"] for name in names}, depth=int(arrays[f"{number}.depth"][0]))


def _model(kind: str, arrays: dict[str, np.ndarray]) -> FittedLearner:
    if kind == "forest":
        return FittedForest(tuple(_trees(arrays, number) for number in (0, 1)))
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


def _member(arrays: dict[str, np.ndarray], number: int, about: dict[str, Any]) -> Member:
    member_arrays = {
        name[len(f"{number}.") :]: array for name, array in arrays.items() if name.startswith(f"{number}.")
    }
    calibration = Calibration(float(member_arrays["temperature"][0]), member_arrays["bias"])
    model, weight = _model(about["kind"], member_arrays), float(member_arrays["weight"][0])
    return Member(about["name"], model, calibration, float(about["loss"]), weight)
