"""What a fitted estimator says about itself, in plain words."""

from __future__ import annotations

import sys
from typing import Any

from csst.estimation.class_rates import RateEstimate
from csst.estimation.expectation import estimate_intervals
from csst.maths.costs import format_amount
from csst.maths.objectives import Objective
from csst.training.records import Record


def write_summary(
    objective: Objective,
    estimate: RateEstimate,
    class_names: list[str],
    labeled: list[int],
    notes: list[str],
    about: str,
    intervals: dict[str, Any] | None = None,
) -> str:
    """Return a few lines: the value to expect, the lowest recall with its interval, a row per class, notes."""
    confusion = estimate.confusion
    intervals = estimate_intervals(objective, estimate) if intervals is None else intervals
    lowest_recall = intervals["min_recall"]
    lines = [
        f"{about}, for '{objective}'",
        f"objective {objective.describe_value(intervals['value']['estimate'])}, {estimate.basis}",
        f"lowest class recall {lowest_recall['estimate']:.2f} "
        f"(95 % interval {lowest_recall['low']:.2f}–{lowest_recall['high']:.2f}), "
        f"mean recall {float(confusion.recall.mean()):.2f}",
    ]
    if confusion.abstained is not None:
        share = confusion.abstained
        lines.append(
            f"no answer for {float(confusion.abstain):.1%} of the rows, at most {float(share.max()):.0%} of a class; "
            f"with no answer counted as a miss, the lowest recall is {float(confusion.rates.diagonal().min()):.2f}"
        )
    constraints = intervals["constraints"]
    if constraints:
        units = objective.measure_units(confusion.prior)[1] or (1.0,) * len(constraints)
        place = min(range(len(constraints)), key=lambda place: constraints[place]["slack"] / units[place])
        tightest_constraint = constraints[place]
        is_met = tightest_constraint["slack"] >= 0
        word = "constraints met, with a slack of" if is_met else "constraints missed by"
        low, high = (
            (tightest_constraint["low"], tightest_constraint["high"])
            if is_met
            else (-tightest_constraint["high"], -tightest_constraint["low"])
        )
        ends = " to ".join(format_amount(end, units[place], digits=2) for end in (low, high))
        slack = format_amount(abs(tightest_constraint["slack"]), units[place])
        lines.append(f"{word} {slack} (95 % interval about {ends})")
    width = max(len(name) for name in [*class_names, "class"])
    lines.append(f"{'class':<{width}}  labeled  recall  95 % interval  coverage")
    for name, count, interval, class_coverage in zip(
        class_names, labeled, intervals["recall"], confusion.coverage.tolist(), strict=True
    ):
        ends = f"{interval['low']:.2f}–{interval['high']:.2f}"
        lines.append(f"{name:<{width}}  {count:>7}  {interval['estimate']:>6.2f}  {ends:>13}  {class_coverage:>8.3f}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def show_progress(runner: Any, record: Record) -> None:
    """Print a line of progress, ten times in a training."""
    steps = runner.settings.training.steps
    interval = runner.settings.steps_per_update
    if record.step % max(1, steps // 10) < interval:
        line = f"worst recall {min(record.recall):.3f}  objective {record.value:.3f}"
        print(f"{runner.method.name} step {record.step:>6}/{steps}  {line}", file=sys.stderr, flush=True)
