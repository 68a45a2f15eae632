"""The roads through the rooms: along each of them, no two rooms of the package call each other both ways."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import contextmanager
from functools import cache
from types import FrameType

import numpy as np
import pytest
from sklearn.datasets import load_iris

from csst import CSSTClassifier
from csst.cli import main
from csst.fitting.fitted_model import FittedModel
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

#: modules outside the rooms, which all rooms may call
SHARED = ("errors", "settings", "setting_checks", "plugins")
TOY = ["toy", "--data.test", "40", "--data.validation", "30", "--data.labeled", "40", "--data.unlabeled", "60"]
TOY += ["--training.steps", "8", "--training.labeled_batch", "8", "--training.unlabeled_batch", "16"]


@cache
def find_room_of_module(module: str) -> str:
    package, _, name = module.partition(".")
    room = name.partition(".")[0]
    return room if package == "csst" and room not in SHARED else ""


def find_room(frame: FrameType) -> str:
    """The room of the function that runs in a frame; "" outside the package."""
    return find_room_of_module(frame.f_globals.get("__name__", ""))


@contextmanager
def tracing():
    """Collect calls from room to room; what a library calls counts as called by the room that called the library."""
    calls = defaultdict(set)

    def record(frame, event, _):
        room = find_room(frame) if event == "call" else ""
        if not room or frame.f_code.co_name == "<module>":
            return
        caller = frame.f_back
        while caller is not None and not find_room(caller):
            caller = caller.f_back
        if caller is not None and find_room(caller) != room:
            place = f"{caller.f_globals['__name__']}:{caller.f_lineno} calls {frame.f_code.co_name}"
            calls[find_room(caller), room].add(place)

    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def find_mutual_calls(calls) -> dict[tuple[str, str], list[str]]:
    """Pairs of rooms that call each other both ways, with the places of the rarer direction."""
    pairs = {pair: pair[::-1] for pair in calls if pair[::-1] in calls}
    return {pair: sorted(calls[pair]) for pair, back in pairs.items() if len(calls[pair]) <= len(calls[back])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pages):
    """Rows with few labels as a file, and two runs: a network and other learners."""
    place = tmp_path_factory.mktemp("journeys")
    x, y = load_iris(return_X_y=True)
    y[np.arange(len(y)) % 4 > 0] = -1
    np.savez(place / "iris.npz", x=x.astype(np.float32), y=y)
    np.savez(place / "new.npz", x=x[:20].astype(np.float32))
    return place


def fit_estimator(folder):
    data = np.load(folder / "iris.npz")
    CSSTClassifier("max min(recall)", learner="linear").fit(data["x"], data["y"]).predict(data["x"])


def fit_network_estimator(folder):
    data = np.load(folder / "iris.npz")
    settings = {"training": {"steps": 6}, "rule": "fit", "folds": 2}
    CSSTClassifier("max min(recall)", learner="network", settings=settings).fit(data["x"], data["y"]).predict(data["x"])


def train_table(folder):
    path = str(folder / "iris.npz")
    assert main(["train", "array", "--data.path", path, "--learner", "linear", "--out", str(folder / "table")]) == 0


def train_network(folder):
    assert main(["train", *TOY, "--rule", "fit", "--out", str(folder / "network")]) == 0


def compare_rows(folder):
    rows = "csst,linear,logistic-regression"
    where = ["--methods", rows, "--seeds", "1", "--jobs", "1", "--out", str(folder / "rows")]
    assert main(["compare", *TOY, *where]) == 0


def use_model(folder):
    """Load both runs, predict and export."""
    new = str(folder / "new.npz")
    assert main(["predict", str(folder / "table"), new, "-o", str(folder / "answers.csv")]) == 0
    for name in ("table", "network"):
        FittedModel.load(folder / name).export(folder / f"{name}.safetensors", "safetensors")


JOURNEYS = (fit_estimator, fit_network_estimator, train_table, train_network, compare_rows, use_model)


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.__name__)
def test_no_two_rooms_call_each_other(journey, folder):
    if journey is use_model:
        # Another process may have written the runs of the journeys before.
        for name, train in (("table", train_table), ("network", train_network)):
            if not (folder / name).exists():
                train(folder)
    with tracing() as calls:
        journey(folder)
    assert len(calls) > 10
    assert not find_mutual_calls(calls)


def test_a_call_back_is_seen():
    """The check itself can fail: a function of a lower room that calls what an upper room hands to it."""
    from csst.maths.language.tree import Negative, Number, rebuild

    call_back = eval("lambda node: node", {"__name__": "csst.rules.invented"})
    with tracing() as calls:
        eval(
            "rebuild(node, call_back)",
            {
                "__name__": "csst.rules.invented",
                "rebuild": rebuild,
                "call_back": call_back,
                "node": Negative(Number(1.0)),
            },
        )
    assert set(find_mutual_calls(calls)) == {("maths", "rules"), ("rules", "maths")}
