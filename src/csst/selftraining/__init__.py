"""Self-training on unlabeled examples, for any gain matrix."""

from csst.selftraining.core import Refiner, SelfTraining
from csst.selftraining.crest import Alignment, Rebalancing
from csst.selftraining.darp import Refinery
from csst.selftraining.flexmatch import Curriculum
from csst.selftraining.labelers import Hard, Labeler, Sharpened
from csst.selftraining.memory import Memory, Setup
from csst.selftraining.methods import METHODS, Method, method
from csst.selftraining.selectors import Confidence, KLThreshold, Selector, Threshold

__all__ = [
    "METHODS",
    "Alignment",
    "Confidence",
    "Curriculum",
    "Hard",
    "KLThreshold",
    "Labeler",
    "Memory",
    "Method",
    "Rebalancing",
    "Refiner",
    "Refinery",
    "Selector",
    "SelfTraining",
    "Setup",
    "Sharpened",
    "Threshold",
    "method",
]
