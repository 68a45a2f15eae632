"""Files that are not what was written: noticed, named, and the way out taken or told."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import warnings
from dataclasses import replace

import pytest
import torch
import yaml

import csst
from csst.cli import main
from csst.data import Toy
from csst.fitting.fitted_model import FittedModel
from csst.fitting.model_file import MODEL
from csst.recipes import from_dict
from csst.runs.execute import execute
from csst.runs.folder import CHECKPOINT, CHECKSUM_MAGIC, CHECKSUM_SIZE, PREVIOUS, Run
from tests.helpers.runs import QUICK, Stop, compared, same
from tests.helpers.short_runs import SHORT_RUN

pytestmark = SHORT_RUN


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that stopped after step 40, and the same uninterrupted."""
    place = tmp_path_factory.mktemp("runs")

    def stop(trainer, record):
        if record.step == 40:
            raise Stop

    execute(QUICK, place / "whole")
    with pytest.raises(Stop):
        execute(QUICK, place / "cut", on_record=stop, checkpoint_seconds=0)
    return place


@pytest.fixture
def cut(stopped, tmp_path):
    return shutil.copytree(stopped / "cut", tmp_path / "cut")


def test_two_checkpoints_are_kept_each_with_a_checksum(cut):
    newest, before = (Run(cut).load(name)["trainer"]["step"] for name in (CHECKPOINT, PREVIOUS))
    assert (newest, before) == (40, 30)
    for name in (CHECKPOINT, PREVIOUS):
        assert (cut / name).read_bytes()[-CHECKSUM_SIZE:].startswith(CHECKSUM_MAGIC)


def damages(data):
    yield data[:0]
    yield data[: len(data) // 2]
    yield data[:-1]
    yield data[:-CHECKSUM_SIZE]
    for at in (0, 100, len(data) // 2, len(data) - CHECKSUM_SIZE - 1, len(data) - CHECKSUM_SIZE, len(data) - 1):
        yield data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(stopped, cut):
    good = (cut / CHECKPOINT).read_bytes()
    for data in damages(good):
        (cut / CHECKPOINT).write_bytes(data)
        with pytest.warns(UserWarning, match=r"checkpoint\.pt (is damaged|cannot be read).*checkpoint\.previous\.pt"):
            assert Run(cut).checkpoint()["trainer"]["step"] == 30
    with pytest.warns(UserWarning, match="is damaged"):
        execute(QUICK, cut, resume=True, checkpoint_seconds=0)
    assert same(compared(stopped / "whole"), compared(cut))
    assert Run(cut).load(PREVIOUS)["trainer"]["step"] == 50  # the damaged one never took the place of a good one


def test_the_good_checkpoint_survives_the_first_write_after_a_damaged_one(cut):
    (cut / CHECKPOINT).write_bytes(b"")
    run = Run(cut)
    with pytest.warns(UserWarning, match="cannot be read"):
        state = run.checkpoint()
    run.save(CHECKPOINT, state)
    assert run.load(PREVIOUS)["trainer"]["step"] == 30
    run.save(CHECKPOINT, {**state, "more": 1})
    assert run.load(CHECKPOINT)["more"] == 1
    assert "more" not in run.load(PREVIOUS)


def test_a_kill_between_the_two_renames_leaves_the_one_before(stopped, cut):
    (cut / CHECKPOINT).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Run(cut).checkpoint()["trainer"]["step"] == 30
    execute(QUICK, cut, resume=True)
    assert same(compared(stopped / "whole"), compared(cut))


def test_no_good_checkpoint_left_is_a_sentence_with_the_way_out(stopped, cut):
    for name in (CHECKPOINT, PREVIOUS):
        (cut / name).write_bytes(b"nonsense")
    with pytest.raises(csst.InputError, match=r"no other checkpoint: restore it, or delete it to train from the start"):
        execute(QUICK, cut, resume=True)
    for name in (CHECKPOINT, PREVIOUS):
        (cut / name).unlink()
    execute(QUICK, cut, resume=True)
    assert same(compared(stopped / "whole"), compared(cut))


def test_a_damaged_model_is_written_anew_from_the_checkpoint(stopped, tmp_path):
    folder = shutil.copytree(stopped / "whole", tmp_path / "whole")
    good = (folder / MODEL).read_bytes()
    (folder / MODEL).write_bytes(good[:-200] + b"\x00\x01" + good[-198:])
    with pytest.raises(csst.InputError, match=r"model\.safetensors.*delete metrics\.json and continue with --resume"):
        FittedModel.load(folder)
    (folder / "metrics.json").unlink()
    execute(QUICK, folder, resume=True)
    assert (folder / MODEL).read_bytes() == good


def test_a_hostile_checkpoint_runs_no_code_even_with_a_checksum(cut, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "boom"),))

    whole = Run(cut).load(CHECKPOINT)
    (cut / PREVIOUS).unlink()
    Run(cut).save(CHECKPOINT, {**whole, "trainer": Bomb()})
    (cut / PREVIOUS).unlink()
    assert (cut / CHECKPOINT).read_bytes()[-CHECKSUM_SIZE:].startswith(CHECKSUM_MAGIC)
    with pytest.raises(csst.InputError, match="cannot be read as a checkpoint"):
        execute(QUICK, cut, resume=True)
    (cut / PREVIOUS).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(csst.InputError, match="cannot be read"):
        Run(cut).load(PREVIOUS)
    assert not (tmp_path / "boom").exists()


def test_another_version_is_said(cut):
    old = io.BytesIO()
    torch.save({"version": 2, "trainer": {}}, old)
    (cut / CHECKPOINT).write_bytes(old.getvalue())
    with pytest.raises(csst.InputError, match=r"has format 2, and csst .* reads format 5: use the csst that"):
        execute(QUICK, cut, resume=True)


def test_an_edited_recipe_is_said_even_if_the_command_was_edited_alike(cut):
    edited = replace(QUICK, training=replace(QUICK.training, lr=0.5))
    (cut / "recipe.yaml").write_text(yaml.safe_dump(edited.as_dict()))
    with pytest.raises(csst.InputError, match=r"training\.lr: 0\.5 → 0\.03.*use the same settings, or another --out"):
        execute(QUICK, cut, resume=True)
    with pytest.raises(csst.InputError, match=r"checkpoint in .* other settings.*training\.lr: 0\.03 → 0\.5"):
        execute(edited, cut, resume=True)


def test_other_data_and_another_number_of_classes_are_said(cut, monkeypatch):
    state = Run(cut).load(CHECKPOINT)
    Run(cut).save(CHECKPOINT, {**state, "classes": 4})
    with pytest.raises(csst.InputError, match="has 4 classes, but the data now has 3"):
        execute(QUICK, cut, resume=True)
    Run(cut).save(CHECKPOINT, state)
    plain = Toy.load
    monkeypatch.setattr(Toy, "load", lambda *args: replace(plain(*args), split_hash="another"))
    with pytest.raises(csst.InputError, match="data has changed since"):
        execute(QUICK, cut, resume=True)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("recipe.yaml", "!!python/object/apply:os.mkdir [boom]", "recipe.yaml cannot be read"),
        ("recipe.yaml", "name: [", "recipe.yaml cannot be read"),
        ("recipe.yaml", "- 1", "recipe.yaml holds no settings"),
        ("recipe.yaml", "\x00", "recipe.yaml cannot be read"),
        ("metrics.json", "{", "metrics.json cannot be read"),
    ],
)
def test_other_files_of_a_run(cut, monkeypatch, name, content, says):
    monkeypatch.chdir(cut)
    (cut / name).write_text(content)
    with pytest.raises(csst.InputError, match=says):
        execute(QUICK, cut, resume=True)
    assert not (cut / "boom").exists()


def test_yaml_that_asks_for_python_is_refused_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text('name: toy\nmethod: !!python/object/apply:os.mkdir ["boom"]\n')
    assert main(["train", "--config", "evil.yaml"]) == 2
    assert main(["train", "toy", "--config", "evil.yaml"]) == 2
    assert capsys.readouterr().err.count("csst:") == 2
    assert not (tmp_path / "boom").exists()


def test_torn_and_damaged_journals(cut, stopped):
    path = cut / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + lines[-1][:40])
    assert len(Run(cut).journal()) == 5
    path.write_bytes(b"".join([*lines[:2], b"\x00" * 50 + b"\n", *lines[3:]]))
    with pytest.raises(csst.InputError, match=r"line 3 of .*journal\.jsonl is damaged: delete this line"):
        execute(QUICK, cut, resume=True)
    path.write_bytes(b"".join(lines[:3]))
    with pytest.warns(UserWarning, match="ends at step 20, the checkpoint at 40: some records are lost"):
        execute(QUICK, cut, resume=True)
    assert [record["step"] for record in Run(cut).journal()] == [0, 10, 20, 50, 60]


def test_a_recipe_of_wrong_types_gets_a_sentence(cut):
    for wrong in (None, 3, [], {}, {"name": 3}, {"name": "toy", "training": 3}, {"name": "toy", "training": {1: 2}}):
        with pytest.raises(csst.InputError):
            from_dict(wrong)
    assert json.loads(json.dumps(from_dict(QUICK.as_dict()).as_dict())) == json.loads(json.dumps(QUICK.as_dict()))


@pytest.mark.parametrize("members", [None, 0.5, {"a": 1}, [["cat"]]])
def test_groups_that_are_no_classes_are_refused(members):
    with pytest.raises(csst.InputError, match=r"groups\.mine must be classes such as 0,1,2 or cat,dog; found"):
        from_dict({"name": "toy", "groups": {"mine": members}})
    with pytest.raises(csst.InputError, match=r"groups must be names with their classes"):
        from_dict({"name": "toy", "groups": 0.5})


def test_groups_that_hold_themselves_are_refused():
    """As a YAML anchor can make them."""
    endless: dict = {}
    endless["again"] = endless
    with pytest.raises(csst.InputError, match=r"groups\.again must be classes"):
        from_dict({"name": "toy", "groups": endless})
