"""The explorer of a page: points of the frontier with classes, sentence and commands, as JSON for its script."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from csst.report.figures.svg import shorten
from csst.report.run_view import RunView
from csst.rules.trades import write_sentence

#: the largest amount of numbers in a page; beyond it, points between the ends of a trade are left out
MOST_NUMBERS = 150_000
#: the largest number of classes with an explorer
MOST_CLASSES = 10_000
#: the numbers of a point on the page, and their names
SUMMARY = {
    "mean_recall": "mean recall",
    "min_recall": "lowest recall",
    "min_coverage": "lowest coverage",
    "min_precision": "lowest precision",
    "accuracy": "accuracy",
}
#: the number that each trade gains
GAINS = {"lowest recall": "min_recall", "coverage": "min_coverage", "precision": "min_precision"}
#: a number that grows by no more than this fraction of itself is not worth a slider
LEAST_GAIN = 0.01


class Explorer(NamedTuple):
    """The content of the template, and the data of the script.

    basis: the data behind the estimates, as a phrase. ways: the names of the trades of mean recall. classes: index and
    name of the classes with their own trade. content: JSON.
    """

    basis: str
    ways: list[str]
    classes: list[tuple[int, str]]
    content: str


def build_explorer(run: RunView) -> Explorer | None:
    """Return the explorer of a run, beginning at the run's own sentence; None without a trade.

    Trades without a gain are left out. Rates are in ten-thousandths, to be short.
    """
    trades = run.rule.trades
    ways = {
        name: points
        for name, points in (trades.get("ways") or {}).items()
        if name in GAINS and has_gain(points, GAINS[name])
    }
    class_trades = {int(k): points for k, points in (trades.get("classes") or {}).items() if len(points) > 1}
    if not (ways or class_trades) or len(run.class_names) > MOST_CLASSES:
        return None
    best_point = trades.get("best")
    run_point = None if best_point is None else pack_point(run, best_point)
    size = max((_count_numbers(points[0]) for points in ways.values()), default=1)
    budget = max(2, MOST_NUMBERS // (size * max(1, len(ways))))
    content = {
        "names": [shorten(name, 80) for name in run.class_names],
        "labeled": run.class_counts or [],
        "summary": list(SUMMARY.values()),
        "best": run_point,
        "ways": {
            name: {
                "gain": list(SUMMARY).index(GAINS[name]),
                **add_run_point([pack_point(run, point) for point in select_evenly(points, budget)], run_point),
            }
            for name, points in ways.items()
        },
        "classes": {k: pack_class(run, k, points) for k, points in class_trades.items()},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    classes = [(k, shorten(run.class_names[k], 80)) for k in class_trades]
    return Explorer(str(trades.get("basis", "")), list(ways), classes, text)


def has_gain(points: Sequence[dict[str, Any]], key: str) -> bool:
    """Return whether a number grows along a trade by more than a small fraction of itself."""
    values = [point[key] for point in points]
    return bool(values) and max(values) - min(values) > LEAST_GAIN * max(values)


def add_run_point(points: Sequence[dict[str, Any]], run_point: dict[str, Any] | None) -> dict[str, Any]:
    """Insert the point of the run's sentence into points of descending first number, and return its index, too."""
    if run_point is None:
        return {"points": points, "start": 0}
    sentences = [point["sentence"] for point in points]
    if run_point["sentence"] in sentences:
        return {"points": points, "start": sentences.index(run_point["sentence"])}
    start = sum(point["numbers"][0] >= run_point["numbers"][0] for point in points)
    return {"points": [*points[:start], run_point, *points[start:]], "start": start}


def pack_class(run: RunView, class_index: int, points: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the trade of one class for the script; a point has the class's recall, precision and coverage."""
    rates = ("recall", "precision", "coverage")

    name = run.class_names[class_index]
    class_points = [
        _pack(run, write_sentence(point["asked"], name), [point[rate] for rate in rates]) for point in points
    ]
    run_point = None
    best_point = run.rule.trades.get("best")
    if best_point is not None:
        run_point = _pack(run, str(best_point["sentence"]), [best_point[rate][class_index] for rate in rates])
    return {"gain": 1, **add_run_point(class_points, run_point)}


def pack_point(run: RunView, point: dict[str, Any]) -> dict[str, Any]:
    """Return one point for the script: its sentence and commands, its numbers and the rates of the classes."""
    content = _pack(run, str(point["sentence"]), [point[key] for key in SUMMARY])
    content |= {key: _scale(point[key]) for key in ("recall", "precision", "coverage")}
    if "rates" in point:
        return {**content, "rates": [_scale(row) for row in point["rates"]]}
    return {**content, "taken_for": point["taken_for"], "taken_for_rate": _scale(point["taken_for_rate"])}


def _pack(run: RunView, sentence: str, numbers: list[float]) -> dict[str, Any]:
    commands = [shlex.join(command) for command in find_commands(run, sentence)]
    return {"sentence": sentence, "commands": commands, "numbers": numbers}


def find_commands(run: RunView, sentence: str) -> list[list[str]]:
    """Return the command for new decisions of the same model and, if the run was trained by a command, for training."""
    commands = [["csst", "predict", run.folder, "NEW", "-o", "out.csv", "--objective", sentence]] if run.folder else []
    argv = [str(word) for word in run.environment.get("command") or ()]
    if "train" not in argv[:3]:
        return commands
    command = ["csst"]
    words = iter(argv[argv.index("train") :])
    for word in words:
        if word in ("--objective", "--out", "--rule"):
            next(words, None)  # skip its value
        elif not word.startswith(("--objective=", "--out=", "--rule=")) and word != "--resume":
            command.append(word)
    return [*commands, [*command, "--objective", sentence, "--rule", "fit", "--out", f"{run.folder}-other"]]


def select_evenly(points: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return at most `limit` evenly spaced points, both ends among them."""
    if len(points) <= limit:
        return list(points)
    return [points[round(n * (len(points) - 1) / (limit - 1))] for n in range(limit)]


def _count_numbers(point: dict[str, Any]) -> int:
    """Return how many numbers a point has."""
    classes = len(point["recall"])
    return 3 * classes + (classes**2 if "rates" in point else 2 * classes)


def _scale(values: Sequence[float]) -> list[int]:
    return [round(10_000 * value) for value in values]
