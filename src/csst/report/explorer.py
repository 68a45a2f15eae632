"""What the explorer of a page moves along: points of the frontier with classes, sentence and commands, as JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from csst.report.figures.svg import shorten
from csst.report.run_view import RunView
from csst.rules.class_trades import write_sentence

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
#: a number that grows by no more than this part of itself is not worth a slider
LEAST_GAIN = 0.01


class Explorer(NamedTuple):
    """What the template shows before the script runs, and what the script reads.

    basis: what the numbers are estimated from. ways: the names of the trades of mean recall. classes: the index and the
    name of those that have a trade of their own. content: JSON.
    """

    basis: str
    ways: list[str]
    classes: list[tuple[int, str]]
    content: str


def build_explorer(run: RunView) -> Explorer | None:
    """The explorer of a run with a trade to show; it begins at the run's own sentence.

    Ways on which there is nothing to gain are left out. Rates are in ten-thousandths, to be short.
    """
    stored = run.trades.get("ways") or {}
    ways = {name: points for name, points in stored.items() if name in GAINS and has_gain(points, GAINS[name])}
    class_trades = {int(k): points for k, points in (run.trades.get("classes") or {}).items() if len(points) > 1}
    if not (ways or class_trades) or len(run.class_names) > CLASSES:
        return None
    best = run.trades.get("best")
    own = None if best is None else pack_point(run, best)
    size = max((_size(points[0]) for points in ways.values()), default=1)
    budget = max(2, NUMBERS // (size * max(1, len(ways))))
    content = {
        "names": [shorten(name, 80) for name in run.class_names],
        "labeled": run.class_counts or [],
        "summary": list(SUMMARY.values()),
        "best": own,
        "ways": {
            name: {
                "gain": list(SUMMARY).index(GAINS[name]),
                **add_own([pack_point(run, point) for point in keep_some(points, budget)], own),
            }
            for name, points in ways.items()
        },
        "classes": {k: pack_class(run, k, points) for k, points in class_trades.items()},
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    classes = [(k, shorten(run.class_names[k], 80)) for k in class_trades]
    return Explorer(str(run.trades.get("basis", "")), list(ways), classes, text)


def has_gain(points: Sequence[dict[str, Any]], key: str) -> bool:
    """Whether a number grows along a way by more than a small part of itself."""
    values = [point[key] for point in points]
    return bool(values) and max(values) - min(values) > LEAST_GAIN * max(values)


def add_own(points: Sequence[dict[str, Any]], own: dict[str, Any] | None) -> dict[str, Any]:
    """Points from the highest first number down, that of the run's own sentence among them, and which one it is."""
    sentences = [point["sentence"] for point in points]
    if own is None:
        return {"points": points, "start": 0}
    if own["sentence"] in sentences:
        return {"points": points, "start": sentences.index(own["sentence"])}
    start = sum(point["numbers"][0] >= own["numbers"][0] for point in points)
    return {"points": [*points[:start], own, *points[start:]], "start": start}


def pack_class(run: RunView, class_index: int, points: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The trade of one class for the script: the numbers of a point are the class's recall, precision and coverage."""
    rates = ("recall", "precision", "coverage")

    def pack(sentence: str, numbers: list[float]) -> dict[str, Any]:
        commands = [shlex.join(command) for command in find_commands(run, sentence)]
        return {"sentence": sentence, "commands": commands, "numbers": numbers}

    name = run.class_names[class_index]
    packed = [pack(write_sentence(point["asked"], name), [point[rate] for rate in rates]) for point in points]
    best = run.trades.get("best")
    own = None if best is None else pack(str(best["sentence"]), [best[rate][class_index] for rate in rates])
    return {"gain": 1, **add_own(packed, own)}


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
