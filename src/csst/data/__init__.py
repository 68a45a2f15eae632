"""Tasks: where examples come from, how they are split, how they are viewed."""

from csst.data.examples import Examples
from csst.data.splits import Split, Tail, hold_out, long_tail, long_tail_counts
from csst.data.tabular.arrays import Arrays, from_arrays
from csst.data.task import Labeled, Task, View, make_task
from csst.data.toy import Digits, Gaussians, Toy

__all__ = [
    "Arrays",
    "Digits",
    "Examples",
    "Gaussians",
    "Labeled",
    "Split",
    "Tail",
    "Task",
    "Toy",
    "View",
    "from_arrays",
    "hold_out",
    "long_tail",
    "long_tail_counts",
    "make_task",
]
