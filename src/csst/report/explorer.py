"""What the explorer of a page moves along: points of the frontier with classes, sentence and commands, as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from csst.report.figures.svg import shorten
from csst.report.run_view import RunView

#: numbers in the page at most: points in the middle of a way are left out, its ends stay
NUMBERS = 150_000
#: classes above which there is no explorer
CLASSES = 10_000
#: the numbers of a point that are shown, and their names
SUMMARY = {
    "mean_recall": "mean recall",
    "min_recall": "lowest recall",
    "min_coverage": "lowest coverage",
    "min_precision": "lowest precision",
    "accuracy": "accuracy",
}
#: what each way gains, of the numbers above
GAINS = {"lowest recall": "min_recall", "coverage": "min_coverage", "precision": "min_precision"}


class Explorer(NamedTuple):
    """What the template shows before the script runs, and what the script reads.

    basis: what the numbers are estimated from. ways: the names of the trades. content: JSON.
    """

    basis: str
    ways: list[str]
    content: str


def build_explorer(run: RunView) -> Explorer | None:
    """The explorer of a run that has more than one point to show; rates are in ten-thousandths, to be short."""
    ways = {name: points for name, points in (run.trades.get("ways") or {}).items() if name in GAINS and points}
    classes = len(run.class_names)
    if not any(len(points) > 1 for points in ways.values()) or classes > CLASSES:
        return None
    best = run.trades.get("best")
    size = max(_size(points[0]) for points in ways.values())
    budget = max(2, NUMBERS // (size * len(ways)))
    content = {
        "names": [shorten(name, 80) for name in run.class_names],
        "labeled": run.class_counts or [],
        "summary": list(SUMMARY.values()),
        "best": None if best is None else pack_point(run, best),
        "ways": {
            name: {
                "gain": list(SUMMARY).index(GAINS[name]),
                "points": [pack_point(run, point) for point in keep_some(points, budget)],
            }
            for name, points in ways.items()
        },
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Explorer(str(run.trades.get("basis", "")), list(ways), text)


def pack_point(run: RunView, point: dict[str, Any]) -> dict[str, Any]:
    """One point for the script: the sentence, commands that give it, its numbers and those of the classes."""
    sentence = str(point["sentence"])
    packed = {
        "sentence": sentence,
        "commands": [shlex.join(command) for command in find_commands(run, sentence)],
        "numbers": [point[key] for key in SUMMARY],
        **{key: _scale(point[key]) for key in ("recall", "precision", "coverage")},
    }
    if "rates" in point:
        return {**packed, "rates": [_scale(row) for row in point["rates"]]}
    return {**packed, "taken_for": point["taken_for"], "taken_for_rate": _scale(point["taken_for_rate"])}


def find_commands(run: RunView, sentence: str) -> list[list[str]]:
    """New decisions of the same model for a sentence and, where the run was trained by a command, training for it."""
    commands = [["csst", "predict", run.folder, "NEW", "-o", "out.csv", "--objective", sentence]] if run.folder else []
    argv = [str(word) for word in run.environment.get("command") or ()]
    if "train" not in argv[:3]:
        return commands
    kept, words = [], iter(argv[argv.index("train") :])
    for word in words:
        if word in ("--objective", "--out", "--rule"):
            next(words, None)
        elif not word.startswith(("--objective=", "--out=", "--rule=")) and word != "--resume":
            kept.append(word)
    return [*commands, ["csst", *kept, "--objective", sentence, "--rule", "fit", "--out", f"{run.folder}-other"]]


def keep_some(points: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many points, evenly spaced, both ends among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(n * (len(points) - 1) / (most - 1))] for n in range(most)]


def _size(point: dict[str, Any]) -> int:
    classes = len(point["recall"])
    return 3 * classes + (classes**2 if "rates" in point else 2 * classes)


def _scale(values: Sequence[float]) -> list[int]:
    return [round(10_000 * value) for value in values]
