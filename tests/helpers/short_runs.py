"""Warnings that runs of a second get: for modules that train such runs and are about something else."""

from __future__ import annotations

import pytest

#: `pytestmark = SHORT_RUN` hides these in one module; `pytest.warns` inside it still sees them
SHORT_RUN = [
    pytest.mark.filterwarnings(f"ignore:{beginning}:UserWarning")
    for beginning in (
        r"training\.ema = ",
        "the lowest class recall is expected to be ",
        "the unlabeled data looks differently balanced than the labeled data",
        "the labels do not show that the scores say anything about the classes",
    )
]
