"""What runs came to, in sentences and in the cells of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from csst.report.shown import ShownRun
from csst.report.svg import shortened
from csst.training.evaluation import constraints_met

COLUMNS = ["run", "measured on", "mean recall", "min recall", "min coverage", "objective", "constraints", "seconds"]


def run_sentence(run: ShownRun) -> str:
    """One run in a sentence or two."""
    who = f"{run.method} for '{shortened(run.objective, 300)}' on {run.data}"
    if not run.finished:
        return f"{who} has not finished: {_so_far(run)} It continues with csst train … --resume."
    found, names = run.result, run.class_names
    worst = found["recall"].index(min(found["recall"]))
    counted = f", {run.counts[worst]:,} labeled" if run.counts else ""
    text = (
        f"{who}: on {run.part} the classes are recalled at {found['mean_recall']:.3f} on average and the worst one "
        f"({shortened(names[worst], 60)}{counted}) at {found['min_recall']:.3f}"
    )
    interval = run.intervals.get("min_recall")
    if interval:
        text += f" ({interval['low']:.2f} to {interval['high']:.2f} with {run.intervals['level']:.0%} confidence)"
    if found["constraint_slack"]:
        text += f"; the constraints are {constraints(found)}{_how_surely(run)}"
    if run.finish:
        text += (
            f". After post-hoc adjustment the mean is {run.finish['mean_recall']:.3f} and the worst class is at "
            f"{run.finish['min_recall']:.3f}"
        )
        if run.finish.get("constraint_slack"):
            text += f", constraints {constraints(run.finish)}"
    return text + "."


def runs_sentence(runs: Sequence[ShownRun]) -> str:
    """Several runs in a sentence or two: which is highest in what, and what is not comparable."""
    done = [run for run in runs if run.finished]
    parts = []
    if done:
        low = max(done, key=lambda run: run.result["min_recall"])
        mean = max(done, key=lambda run: run.result["mean_recall"])
        worst, average = f"({low.result['min_recall']:.3f})", f"({mean.result['mean_recall']:.3f})"
        both = f" and mean recall {average}" if low is mean else f" and {mean.name} the highest mean recall {average}"
        parts.append(
            f"Of {len(done)} finished runs, {low.name} has the highest min recall {worst}{both}, as trained, "
            f"on {done[0].part}."
        )
    after = [run for run in done if run.finish]
    if after:
        best = max(after, key=lambda run: run.finish["min_recall"])
        parts.append(
            f"After post-hoc adjustment the highest min recall is {best.finish['min_recall']:.3f}: {best.name}."
        )
    if len(done) < len(runs):
        parts.append(f"{len(runs) - len(done)} of {len(runs)} have not finished.")
    splits = len({(run.data, run.metrics.get("split_hash")) for run in done})
    if splits > 1:
        parts.append(f"The runs are on {splits} different splits or datasets: compare only those on the same.")
    if len({run.part for run in done}) > 1:
        parts.append("Some runs have no test set and show validation numbers, which are optimistic.")
    return " ".join(parts)


def numbers_table(runs: Sequence[ShownRun]) -> list[list[str]]:
    """The table of methods: test numbers, as trained and after post-hoc adjustment; of a single run validation too.

    Columns that say nothing, or the same of all runs, are left out.
    """
    rows = [COLUMNS]
    for run in runs:
        name = shortened(run.name, 120)
        if not run.finished:
            rows.append([name, "unfinished", *["–"] * 6])
            continue
        seconds = f"{run.metrics['seconds']:,.1f}" if "seconds" in run.metrics else "–"
        parts = ("validation", "test") if len(runs) == 1 else (run.part,)
        rows += [[name, part, *_cells(run.metrics[part]), seconds] for part in parts if part in run.metrics]
        if run.finish:
            rows.append([f"{name}, post-hoc", run.part, *_cells(run.finish), "–"])
    same = len({row[1] for row in rows[1:]}) == 1
    used = [n for n in range(len(COLUMNS)) if not (n == 1 and same) and any(row[n] != "–" for row in rows[1:])]
    return [[row[n] for n in used] for row in rows]


def class_table(run: ShownRun, most: int) -> list[list[str]]:
    """The classes with their numbers; of very many the `most` with the lowest recall."""
    found, columns = run.result, ("recall", "precision", "coverage")
    shown = [column for column in columns if column in found]
    order = list(range(len(run.class_names)))
    if len(order) > most:
        order = sorted(order, key=lambda c: (found["recall"][c], c))[:most]
    rows = [["class", *(["labeled"] if run.counts else []), *shown]]
    for c in order:
        count = [f"{run.counts[c]:,}"] if run.counts else []
        rows.append([shortened(run.class_names[c], 80), *count, *(number(found[column][c]) for column in shown)])
    return rows


def constraint_table(run: ShownRun, most: int) -> list[list[str]]:
    """The constraints with their slack and its interval, the tightest first; empty where there are none."""
    found = sorted(run.intervals.get("constraints") or [], key=lambda one: one["slack"])[:most]
    rows = [
        [shortened(one["constraint"], 80), _signed(one["slack"]), f"{_signed(one['low'])} to {_signed(one['high'])}"]
        for one in found
    ]
    return [["constraint", "slack", f"{run.intervals['level']:.0%} confidence"], *rows] if rows else []


def differing_settings(runs: Sequence[ShownRun], most: int = 60) -> list[list[str]]:
    """The settings that are not the same in all runs, one row each; empty where there are none."""
    flat = [_flat(run.recipe) for run in runs]
    names = sorted({name for settings in flat for name in settings})
    rows = [
        [name, *cells]
        for name in names
        if len(set(cells := [shortened(settings.get(name, "–"), 60) for settings in flat])) > 1
    ]
    return [["setting", *(shortened(run.name, 60) for run in runs)], *rows[:most]] if rows else []


def constraints(found: dict[str, Any]) -> str:
    """met, missed by …, or – without constraints."""
    slack = found.get("constraint_slack")
    if not slack:
        return "–"
    return "met" if constraints_met(slack) else f"missed by {number(-min(slack))}"


def number(value: float | None) -> str:
    """Three decimals; of a small number, as coverages of many classes are, two digits."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"


def _cells(found: dict[str, Any]) -> list[str]:
    keys = ("mean_recall", "min_recall", "min_coverage", "objective_value")
    return [*(number(found.get(key)) for key in keys), constraints(found)]


def _how_surely(run: ShownRun) -> str:
    """The interval of the least slack, where the run has it."""
    found = run.intervals.get("constraints")
    if not found:
        return ""
    low, high = (min(one[end] for one in found) for end in ("low", "high"))
    return f" (the tightest by {_signed(low)} to {_signed(high)} with {run.intervals['level']:.0%} confidence)"


def _signed(value: float) -> str:
    return f"{value:+.3f}"


def _so_far(run: ShownRun) -> str:
    steps = (run.recipe.get("training") or {}).get("steps", "?")
    if not run.journal:
        return f"none of its {steps} steps is in the journal."
    last = run.journal[-1]
    worst = min(last["recall"])
    return (
        f"{last['step']} of {steps} steps so far, where on validation the worst class ({last['recall'].index(worst)}) "
        f"is recalled at {worst:.3f}; these are not test numbers."
    )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
