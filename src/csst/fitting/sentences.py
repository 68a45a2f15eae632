"""Another sentence for a run that is finished."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from csst.errors import InputError
from csst.fitting.metrics import KeptEvidence
from csst.fitting.plan import read_plan
from csst.maths.costs import cost_table_from_dict
from csst.maths.language import objective as read_objective
from csst.maths.objectives import Objective


def bind_sentence(folder: str | Path, text: str, class_names: tuple[str, ...], metrics: Mapping[str, Any]) -> Objective:
    """Return a sentence for the classes, the groups and the costs of a run.

    Args:
        folder: the run.
        text: a sentence or a short name, without a confidence.
        class_names: the classes of the run, K names.
        metrics: its metrics.json.
    """
    if read_objective(text).confidence is not None:
        raise InputError("a rule fitted now has no fresh labels to be certified by: leave the confidence out")
    objective = read_plan(folder).bind_objective(class_names, text, cost_table_from_dict(metrics.get("costs")))
    return KeptEvidence.read(folder).bind(objective, class_names)
