"""Self-training on unlabeled examples, for any gain matrix."""

from csst.selftraining.balance import UnlabeledBalance
from csst.selftraining.crest import Alignment, GenerationSchedule
from csst.selftraining.darp import DARPRefiner
from csst.selftraining.flexmatch import Curriculum
from csst.selftraining.labelers import Hard, Labeler, Sharpened
from csst.selftraining.methods import METHODS, Method, method
from csst.selftraining.selectors import Confidence, Either, KLThreshold, Selector, Threshold
from csst.selftraining.stateful import Setup, StatefulPart
from csst.selftraining.step import Refiner, SelfTraining

__all__ = [
    "METHODS",
    "Alignment",
    "Confidence",
    "Curriculum",
    "DARPRefiner",
    "Either",
    "GenerationSchedule",
    "Hard",
    "KLThreshold",
    "Labeler",
    "Method",
    "Refiner",
    "Selector",
    "SelfTraining",
    "Setup",
    "Sharpened",
    "StatefulPart",
    "Threshold",
    "UnlabeledBalance",
    "method",
]
