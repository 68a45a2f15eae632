"""csst augment from files of texts to a cache that a view reads, with tiny models; also killed in the middle."""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from csst.cli import augment
from csst.data.text.translations import Translations, hash_text
from csst.data.text.views import TextViews
from csst.errors import InputError
from csst.models.huggingface.translation import RoundTrip
from tests.models.tiny_translators import TEXTS, save_model

transformers = pytest.importorskip("transformers", reason="transformers is not installed (pip install csst-learn[hf])")


@pytest.fixture(scope="module")
def via(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return ",".join(save_model(transformers, folder / name, seed=seed) for seed, name in enumerate(("there", "back")))


def table(path: Path, texts: list[str], column: str = "text") -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["label", column])
        out.writerows([row % 2, text] for row, text in enumerate(texts))
    return str(path)


@pytest.fixture
def calls(monkeypatch) -> list[tuple[str, int]]:
    """The texts and copies that are really translated."""
    seen: list[tuple[str, int]] = []
    real = RoundTrip.translate

    def noted(self, texts, copies):
        seen.extend(zip(texts, copies, strict=True))
        return real(self, texts, copies)

    monkeypatch.setattr(RoundTrip, "translate", noted)
    return seen


def test_texts_become_a_cache_and_a_view(tmp_path, via, calls, capsys):
    texts = [*TEXTS, "", "  ", "😀 🎵", TEXTS[0], TEXTS[0], "long text " * 400]
    file, cache = table(tmp_path / "texts.csv", texts), str(tmp_path / "cache.sqlite")
    words = [file, "-o", cache, "--via", via, "--max_characters", "40"]
    assert augment.main(words) == 0
    different = [text for text in dict.fromkeys(texts) if text.strip()]
    assert calls == [(text, copy) for text in different for copy in (0, 1)]  # each once, blank ones never
    shown = capsys.readouterr()
    assert "11 rows, 7 different texts with words, 2 translation(s) of each" in shown.out
    assert "translated now 14, found in the cache 0" in shown.out
    assert "1 texts are longer than 40 characters" in shown.out
    assert f"14 translations in {cache}" in shown.out
    assert "translations 14/14  0 s left" in shown.err
    stored = Translations(cache)
    assert all(len(stored[text]) == 2 and "" not in stored[text] for text in different)
    assert stored["😀 🎵"] == ["😀 🎵"] * 2
    assert all(len(new) < 1000 for new in stored["long text " * 400])
    view = TextViews("backtranslation", cache=cache).build(texts)
    out = view(texts, torch.Generator().manual_seed(0))
    assert out[5:8] == ["", "  ", "😀 🎵"]
    assert all(new in stored[text] for text, new in zip(texts, out, strict=True) if text.strip())
    # again: nothing to do, not even models to load
    calls.clear()
    before = Path(cache).read_bytes()
    assert augment.main(words) == 0
    assert not calls
    assert "translated now 0, found in the cache 14" in capsys.readouterr().out
    assert Path(cache).read_bytes() == before


def test_more_copies_and_more_texts_are_added(tmp_path, via, calls):
    cache = str(tmp_path / "cache.sqlite")
    options = ["-o", cache, "--via", via, "--batch", "4"]
    augment.main([table(tmp_path / "a.csv", TEXTS[:2]), *options, "--copies", "1"])
    first = {text: Translations(cache)[text] for text in TEXTS[:2]}
    calls.clear()
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"review": text}) + "\n" for text in TEXTS[:3]), encoding="utf-8"
    )
    augment.main([str(tmp_path / "b.jsonl"), *options, "--text_column", "review"])
    assert set(calls) == {(TEXTS[0], 1), (TEXTS[1], 1), (TEXTS[2], 0), (TEXTS[2], 1)}
    stored = Translations(cache)
    assert all(stored[text][:1] == first[text] for text in first)
    assert all(len(stored[text]) == 2 for text in TEXTS[:3])


@pytest.mark.slow  # small: the interrupted run below
def test_killed_in_the_middle_and_started_again(tmp_path, via, calls, capsys):
    texts = [f"good {n}" for n in range(32)]
    file = table(tmp_path / "texts.csv", texts)
    options = ["--via", via, "--copies", "1", "--batch", "4", "--save_every", "0"]
    augment.main([file, "-o", str(tmp_path / "whole"), *options])
    calls.clear()
    cache = tmp_path / "cache"
    code = "import sys, torch; torch.set_num_threads(1); from csst.cli.augment import main; main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, file, "-o", str(cache), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("translations  8/32"):  # the first two groups are made, and at least the first is saved
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    saved = len(Translations(cache))
    assert saved % 4 == 0
    assert 4 <= saved < 32
    capsys.readouterr()
    assert augment.main([file, "-o", str(cache), *options]) == 0
    assert calls == [(text, 0) for text in texts[saved:]]
    assert f"translated now {32 - saved}, found in the cache {saved}" in capsys.readouterr().out
    stored, whole = Translations(cache), Translations(tmp_path / "whole")
    assert [stored[text] for text in texts] == [whole[text] for text in texts]
    assert not cache.with_name("cache-wal").exists()


def test_damaged_translations_are_made_again_with_a_warning(tmp_path, via, calls, capsys):
    words = [table(tmp_path / "a.csv", TEXTS), "-o", str(tmp_path / "cache"), "--via", via, "--copies", "1"]
    augment.main(words)
    before = [Translations(tmp_path / "cache")[text] for text in TEXTS]
    connection = sqlite3.connect(tmp_path / "cache")
    connection.execute("UPDATE content SET value = x'00' WHERE key = ?", [hash_text(TEXTS[1]) + bytes(4)])
    connection.commit()
    connection.close()
    calls.clear()
    augment.main(words)
    assert calls == [(TEXTS[1], 0)]
    assert "1 damaged translations are made again" in capsys.readouterr().err
    assert [len(stored) for stored in before] == [len(Translations(tmp_path / "cache")[text]) for text in TEXTS]


def test_an_interrupted_run_saves_what_it_has(tmp_path, via, monkeypatch, capsys):
    real, done = RoundTrip.translate, []

    def interrupted(self, texts, copies):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(texts)
        return real(self, texts, copies)

    monkeypatch.setattr(RoundTrip, "translate", interrupted)
    words = [
        table(tmp_path / "a.csv", TEXTS),
        "-o",
        str(tmp_path / "cache"),
        "--via",
        via,
        "--batch",
        "1",
        "--copies",
        "1",
    ]
    assert augment.main(words) == 130
    assert "run the same command to continue" in capsys.readouterr().err
    monkeypatch.setattr(RoundTrip, "translate", real)
    assert augment.main(words) == 0
    assert "translated now 3, found in the cache 2" in capsys.readouterr().out


def test_an_empty_translation_keeps_the_text(tmp_path, via, monkeypatch, capsys):
    monkeypatch.setattr(RoundTrip, "translate", lambda self, texts, copies: ["" for _ in texts])
    augment.main([table(tmp_path / "a.csv", TEXTS), "-o", str(tmp_path / "cache"), "--via", via])
    assert "10 translations came out empty: the text itself is kept for them" in capsys.readouterr().out
    assert Translations(tmp_path / "cache")[TEXTS[1]] == [TEXTS[1]] * 2


def test_what_cannot_be_done_is_one_sentence(tmp_path, via, monkeypatch):
    file, cache = table(tmp_path / "a.csv", TEXTS), str(tmp_path / "cache")
    augment.main([file, "-o", cache, "--via", via, "--copies", "1"])
    for more, sentence in (
        (["--temperature", "0.5"], r"was made with temperature 0\.9, not 0\.5"),
        (["--temperature", "-1"], "temperature must be"),
        (["--text_column", "txt"], "has no column 'txt'; did you mean 'text'"),
        (["--device", "mps"], "there is no mps device here"),
    ):
        with pytest.raises(InputError, match=sentence) as caught:
            augment.main([file, "-o", cache, "--via", via, "--copies", "2", *more])
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="two models"):
        augment.main([file, "-o", cache, "--via", "hf:one"])
    with pytest.raises(InputError, match=r"there is no file 'nothing\.csv'"):
        augment.main(["nothing.csv", "-o", cache, "--via", via])
    with pytest.raises(SystemExit):
        augment.main([file, "-o", cache, "--via", via, "--copies", "0"])
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(InputError, match="the Hugging Face hub is out of reach") as caught:
        augment.main([file, "-o", str(tmp_path / "new"), "--via", "hf:some/en-fr,hf:some/fr-en"])
    assert "\n" not in str(caught.value)
