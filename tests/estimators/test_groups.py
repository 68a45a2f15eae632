"""Groups of rows from `fit` to the exported model, and on the command line."""

from __future__ import annotations

import csv
import json
import warnings
from functools import cache

import numpy as np
import pytest

from csst import CSSTClassifier, FittedModel
from csst.cli import main
from csst.errors import InputError
from csst.fitting import deciding
from csst.rules import Frontier

SENTENCE = "max min(recall by sex)"


@cache
def draw(rows=1500):
    """Rows, classes and groups; classes of the second group are nearer to each other."""
    rng = np.random.default_rng(0)
    g = rng.integers(0, 2, rows)
    y = rng.choice(2, rows, p=[0.7, 0.3])
    x = rng.normal(size=(rows, 2)) + 2 * np.eye(2)[y] * (1 - 0.5 * g[:, None]) + g[:, None]
    return x, y, np.array(["f", "m"])[g]


@cache
def fit(per_group):
    x, y, g = draw()
    target = np.where(np.arange(1500) < 600, y, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CSSTClassifier(SENTENCE, learner="linear", per_group=per_group).fit(
            x[:1000], target[:1000], group=g[:1000]
        )


def count_recalls(answers, y, g):
    return np.array([[(answers[(y == k) & (g == a)] == k).mean() for k in range(2)] for a in ("f", "m")])


@pytest.mark.parametrize("per_group", [False, True])
def test_a_fit_for_groups_is_measured_stored_and_exported(per_group, tmp_path):
    model = fit(per_group)
    x, y, g = (values[1000:] for values in draw())
    answers = model.predict(x, g if per_group else None)
    recalls = count_recalls(answers, y, g)
    assert recalls.min() > 0.5
    assert model.score(x, y, group=g) == pytest.approx(recalls.min())
    evaluation = model.evaluate(x, y, group=g)
    assert evaluation.numbers["objective_value"] == pytest.approx(recalls.min())
    assert np.array(evaluation.numbers["groups"]["recall"])[:, :, 0] == pytest.approx(recalls)
    assert "recall by sex" in str(evaluation)
    assert f"'{SENTENCE}'" in evaluation.sentence
    model.fit_.save(tmp_path / "run")
    again = FittedModel.load(tmp_path / "run")
    assert str(again.stated) == SENTENCE
    assert (again.predict(x, g).numpy() == answers).all()
    if not per_group:
        return
    runtime = pytest.importorskip("onnxruntime")
    model.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    inputs = {"x": x.astype(np.float32), "group": (g == "m").astype(np.int64)}
    assert (session.run(["label"], inputs)[0] == answers).all()


def test_another_sentence_about_the_same_groups():
    model = fit(True).decide("max mean(recall) s.t. recall by sex - min(recall by sex) <= 0.1", per_group=False)
    x, y, g = (values[1000:] for values in draw())
    assert np.ptp(count_recalls(model.predict(x), y, g), axis=0).max() < 0.25
    assert str(model.fit_.stated).startswith("max mean(recall) s.t. recall by sex")


def test_a_network_is_trained_for_groups():
    x, y, g = draw()
    target = np.where(np.arange(1500) < 600, y, -1)
    model = CSSTClassifier(SENTENCE, learner="network", per_group=True, validation=0.5)
    model.set_params(settings__training__steps=40, settings__dual__steps_per_update=10, settings__model__start="random")
    model.fit(x[:1000], target[:1000], group=g[:1000])
    updates = model.fit_.full_details.state["averaged_gain"]["by_group"]["entries"]
    assert not np.allclose(*updates.numpy())
    recalls = count_recalls(model.predict(x[1000:], g[1000:]), y[1000:], g[1000:])
    assert recalls.min() > 0.6
    assert "one rule for each group" in model.summary()


def test_the_frontier_says_what_the_worst_group_costs(monkeypatch):
    # The frontier of all rows has tests of its own and takes seconds.
    monkeypatch.setattr(deciding, "trace_frontier", lambda *arguments: Frontier((), None, None, None, ""))
    for per_group in (False, True):
        model = fit(per_group)
        frontier = model.frontier("max accuracy s.t. recall by sex >= 0.6")
        assert frontier.feasible
        assert "recall by sex >= 0.6' can be met" in frontier.sentence
        means = [point.mean_recall for point in frontier.groups]
        lowest = [point.lowest_recall for point in frontier.groups]
        assert means == sorted(means, reverse=True)
        assert lowest == sorted(lowest)
        again = model.decide(frontier.groups[-1].sentence).fit_.groups["lowest_recall"]["estimate"]
        assert again == pytest.approx(lowest[-1], abs=0.05)
    frontier = model.frontier("max accuracy s.t. recall by sex >= 0.95")
    assert not frontier.feasible
    assert "by sex['m'] >= 0.95 cannot be met" in frontier.sentence


def test_bounds_of_groups_are_promised_and_proved_by_fresh_labels(tmp_path):
    x, y, g = draw()
    target = np.where(np.arange(1500) < 700, y, -1)
    model = CSSTClassifier("max accuracy s.t. recall by sex >= 0.55 with confidence 0.9", learner="linear")
    model.fit(x[:1000], target[:1000], group=g[:1000])
    assert model.certificate_.is_certified
    assert len(model.certificate_.bounds) == 4
    model.fit_.save(tmp_path / "model")
    assert FittedModel.load(tmp_path / "model").certificate == model.certificate_
    assert model.certify(None, x[1000:], y[1000:], group=g[1000:]).verdict == "certified"
    result = model.certify("recall by sex >= 0.9", x[1000:], y[1000:], group=g[1000:])
    assert result.verdict == "refuted"
    assert "by sex['m']" in result.sentence


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x, y, g: CSSTClassifier(SENTENCE).fit(x, y), "needs the sex of every row"),
        (lambda x, y, g: CSSTClassifier("max min(recall)").fit(x, y, group=g), "names none"),
        (lambda x, y, g: CSSTClassifier(SENTENCE).fit(x, y, group=g[:9]), "one value for each row"),
        (lambda x, y, g: CSSTClassifier(SENTENCE, learner="linear").fit(x, y, group=0 * y), "at least 2 values"),
        (lambda x, y, g: CSSTClassifier(SENTENCE, learner="network").fit(x, y), "needs the sex of every row"),
        (lambda x, y, g: fit(True).predict(x), "pass group"),
        (lambda x, y, g: fit(False).evaluate(x, y), "needs the sex"),
        (lambda x, y, g: fit(False).monitor(x), "cannot be watched"),
        (lambda x, y, g: fit(False).certify("recall by sex >= 0.5", x, y), "needs the sex"),
        (
            lambda x, y, g: fit(False).certify("recall by sex - min(recall by sex) <= 0.1", x, y, group=g),
            "compares groups",
        ),
    ],
)
def test_bad_groups_get_a_sentence(call, reason):
    with pytest.raises(InputError, match=reason):
        call(*draw())


def test_groups_on_the_command_line(tmp_path, capsys):
    x, y, g = draw()
    for name, part in (("train", slice(0, 700)), ("new", slice(700, 1500))):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["a", "b", "sex", "label"])
            is_blank = name == "train"
            rows = zip(x[part, 0], x[part, 1], g[part], y[part], strict=True)
            table.writerows([*row[:3], "" if is_blank and n >= 500 else row[3]] for n, row in enumerate(rows))
    run = str(tmp_path / "run")
    options = ["--data.group", "sex", "--data.drop", "sex", "--objective", SENTENCE, "--learner", "linear"]
    paths = ["--data.path", str(tmp_path / "train.csv"), "--data.test_path", str(tmp_path / "new.csv"), "--out", run]
    assert main(["train", "array", *paths, *options, "--per_group"]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["objective"] == SENTENCE
    assert metrics["adjusted"]["groups"]["names"] == ["f", "m"]
    capsys.readouterr()
    assert main(["predict", run, str(tmp_path / "new.csv")]) == 0
    answers = [row["prediction"] for row in csv.DictReader(capsys.readouterr().out.splitlines())]
    worst = count_recalls(np.array(answers, dtype=int), y[700:], g[700:]).min()
    assert metrics["adjusted"]["test"]["objective_value"] == pytest.approx(worst)
    assert main(["evaluate", run, str(tmp_path / "new.csv")]) == 0
    assert f"'{SENTENCE}' is {worst:.3f}" in capsys.readouterr().out.replace("\n", " ")
    assert main(["certify", run, str(tmp_path / "new.csv"), "recall by sex >= 0.3"]) == 0
    assert "certified with confidence 0.95" in capsys.readouterr().out
    assert main(["report", run]) == 0
    assert "recall by sex" in (tmp_path / "run" / "report.html").read_text()
