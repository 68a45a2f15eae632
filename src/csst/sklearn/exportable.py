"""A fitted estimator as something to export: its network, its decision rule, and what its card says."""

from __future__ import annotations

import json
from typing import Any

import torch

from csst.export import Exportable
from csst.learners.fit import MembersFit
from csst.learners.graph import PortfolioScores


def exportable(fitted: Any) -> Exportable:
    """`fitted` is a `CSSTClassifier` after fit."""
    found, columns = fitted.fit_, fitted.columns_
    card = {
        "objective": str(found.objective),
        "method": found.about.removesuffix(", for"),
        "data_hash": fitted.data_hash_,
        "preprocessing": preprocessing(fitted.encoder, columns),
        "measured": {"labeled and unlabeled rows": {**fitted.intervals_, "basis": found.expected.basis}},
        "notes": [*fitted.notes_, *found.notes],
    }
    names = tuple(str(name) for name in fitted.classes_)
    example = torch.randn(3, columns.width, generator=torch.Generator().manual_seed(0))
    model = PortfolioScores(found.portfolio) if isinstance(found, MembersFit) else found.model
    return Exportable(model, example, names, found.rule, card)


def preprocessing(encoder: Any, columns: Any) -> str:
    """What has to be done to raw examples before the graph, in words."""
    if encoder is not None:
        return f"each example is embedded by {encoder!r} first; the graph takes the vectors"
    known = "none: standardization is part of the graph"
    if columns.names is not None:
        known += f"; columns in this order: {_listed(columns.names)}"
    for at, categories in columns.categories.items():
        known += f"; column {at} holds the place, from 0, in {_listed(categories)}, and -1 for anything else"
    return known


def _listed(values: Any) -> str:
    return json.dumps(list(values), ensure_ascii=False, default=str)
