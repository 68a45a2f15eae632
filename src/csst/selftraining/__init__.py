"""Self-training on unlabeled examples, for any gain matrix."""

from csst.selftraining.core import SelfTraining
from csst.selftraining.labelers import Hard, Labeler, Sharpened
from csst.selftraining.methods import METHODS, Method, method
from csst.selftraining.selectors import Confidence, KLThreshold, Selector

__all__ = [
    "METHODS",
    "Confidence",
    "Hard",
    "KLThreshold",
    "Labeler",
    "Method",
    "Selector",
    "SelfTraining",
    "Sharpened",
    "method",
]
