"""Runs: a recipe carried out in a folder, resumable; comparisons of several."""

from __future__ import annotations

from csst.runs.execute import assemble, execute, trained
from csst.runs.folder import Run
from csst.runs.restore import Classifier, restored

__all__ = ["Classifier", "Run", "assemble", "execute", "restored", "trained"]
