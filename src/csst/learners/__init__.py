"""Learners for a few labeled rows: linear, forest, any scikit-learn classifier, and portfolios of them.

The network of the paper learns by `csst.training.trainer`; everything here takes a second on a laptop.
"""

from __future__ import annotations

from csst.learners.catalog import LEARNERS, default_members, read_learner
from csst.learners.portfolio import Portfolio
from csst.learners.protocol import FittedLearner, Learner

__all__ = ["LEARNERS", "FittedLearner", "Learner", "Portfolio", "default_members", "read_learner"]
