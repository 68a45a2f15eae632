"""Tasks: where examples come from, how they are split, how they are viewed."""

from csst.data.digits import Digits
from csst.data.splits import Split, long_tail, long_tail_counts, stratified
from csst.data.tabular.arrays import Arrays, from_arrays
from csst.data.task import Examples, Labeled, Task, View, make
from csst.data.toy import Gaussians, Toy

__all__ = [
    "Arrays",
    "Digits",
    "Examples",
    "Gaussians",
    "Labeled",
    "Split",
    "Task",
    "Toy",
    "View",
    "from_arrays",
    "long_tail",
    "long_tail_counts",
    "make",
    "stratified",
]
