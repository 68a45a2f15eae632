"""What TensorBoard shows is what the journal says."""

from __future__ import annotations

import json
import sys

import pytest

from csst import InputError, execute, recipe
from csst.cli import main
from csst.recipes import with_overrides
from csst.training.tracking import TensorBoard
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN

SHORT = {"training": {"steps": 60}, "dual": {"steps_per_update": 20}}


def read_events(folder) -> dict[str, dict[int, float]]:
    """Tag → step → value, as TensorBoard itself reads the folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def check(events, journal, names, labels):
    assert sorted(events["recall/lowest"]) == [record["step"] for record in journal]
    for record in journal:
        step = record["step"]
        assert events["recall/lowest"][step] == pytest.approx(min(record["recall"]))
        assert events["objective/value"][step] == pytest.approx(record["value"])
        for key, tag in (
            ("labeled_loss", "loss/labeled"),
            ("unlabeled_loss", "loss/unlabeled"),
            ("used", "unlabeled/used"),
        ):
            if record[key] is None:
                assert step not in events[tag]
            else:
                assert events[tag][step] == pytest.approx(record[key])
        for name, value in zip(names, record["recall"], strict=True):
            assert events[f"recall/{name}"][step] == pytest.approx(value)
        for label, value in zip(labels, record["multipliers"], strict=True):
            assert events[f"multipliers/{label}"][step] == pytest.approx(value, rel=1e-6)


def test_the_command_writes_all_records_and_says_where_to_look(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "toy", "--training.steps", "60", "--log", "tensorboard", "--out", "my run"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "tensorboard --logdir 'my run/tensorboard'" in printed.err
    assert "curves: tensorboard --logdir 'my run/tensorboard'" in printed.out
    journal = [json.loads(line) for line in (tmp_path / "my run/journal.jsonl").read_text().splitlines()]
    metrics = json.loads((tmp_path / "my run/metrics.json").read_text())
    assert len(journal) > 2
    check(read_events("my run/tensorboard"), journal, metrics["class_names"], list(metrics["multipliers"]))


def test_an_interrupted_training_leaves_no_second_curve(tmp_path):
    """Records that are lost with the last checkpoint are written again, once."""
    toy = with_overrides(recipe("toy"), SHORT)

    class Stop(Exception):
        pass

    with TensorBoard(tmp_path / "log") as log:

        def stop(trainer, record):
            log(trainer, record)
            if record.step == 40:
                raise Stop

        with pytest.raises(Stop):
            execute(toy, tmp_path / "run", on_record=stop, checkpoint_seconds=1e9)
    with TensorBoard(tmp_path / "log") as log:
        metrics = execute(toy, tmp_path / "run", resume=True, on_record=log)
    journal = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    check(read_events(tmp_path / "log"), journal, metrics["class_names"], list(metrics["multipliers"]))


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(InputError, match=r"pip install csst-learn\[tracking\]"), TensorBoard(tmp_path):
        pass


def test_nothing_to_log_is_said(capsys, tmp_path):
    words = ["train", "digits", "--learner", "linear", "--log", "tensorboard", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "learner linear has none" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
