"""The cache of translations: complete or absent, resumable, and never silently wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from csst.data.text.translations import Translations, TranslationWriter, key_of
from csst.errors import InputError

MADE_BY = {"via": "hf:a,hf:b", "temperature": 0.9, "seed": 0}
TEXTS = ["", "one", "très bien 😀", "你好", "x" * 10_000, "line\nline"]


@pytest.fixture(autouse=True)
def _pyarrow():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install csst-learn[hf])")


def rows(texts, copies=(0, 1)):
    return [(key_of(text), copy, f"{text}<{copy}>") for text in texts for copy in copies]


def write(path, *parts, made_by=MADE_BY, finish=True):
    with TranslationWriter(path, made_by) as cache:
        for part in parts:
            cache.add(part)
            cache.save()
        return cache.finish() if finish else 0


def test_what_is_written_is_read(tmp_path):
    import pyarrow.parquet as parquet

    path = tmp_path / "new folder" / "cache.parquet"
    assert write(path, rows(TEXTS)) == 12
    assert [p.name for p in path.parent.iterdir()] == ["cache.parquet"]
    cache = Translations(path)
    assert len(cache) == 6
    for text in TEXTS:
        assert text in cache
        assert cache[text] == [f"{text}<0>", f"{text}<1>"]
    assert "two" not in cache
    assert cache["two"] == []
    table = parquet.read_table(path)
    assert table.schema.names == ["key", "copy", "translation", "via"]
    assert set(table["via"].to_pylist()) == {"hf:a,hf:b"}
    assert key_of("one") == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"  # printf one | sha256sum


def test_the_file_does_not_depend_on_the_way_there(tmp_path):
    write(tmp_path / "a", rows(TEXTS))
    write(tmp_path / "b", rows(TEXTS[3:], [1]), rows(TEXTS[3:], [0]), finish=False)
    write(tmp_path / "b", rows(TEXTS[:3]))
    write(tmp_path / "c", rows(TEXTS[:1]))
    write(tmp_path / "c", rows(TEXTS[1:]))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_what_was_saved_is_finished(tmp_path):
    path = tmp_path / "cache"
    write(path, rows(["a"]))
    write(path, rows(["b"]), rows(["c"]), finish=False)
    with TranslationWriter(path, MADE_BY) as cache:
        cache.add(rows(["lost"]))  # never saved
    with TranslationWriter(path, MADE_BY) as cache:
        assert cache.finished == {(key_of(text), copy) for text in "abc" for copy in (0, 1)}
        assert cache.damaged == 0
        assert cache.finish() == 6


def test_a_run_that_saved_nothing_leaves_nothing(tmp_path):
    with TranslationWriter(tmp_path / "cache", MADE_BY) as cache:
        cache.add(rows(["lost"]))
    assert not list(tmp_path.iterdir())


def test_an_empty_cache(tmp_path):
    assert write(tmp_path / "cache") == 0
    assert len(Translations(tmp_path / "cache")) == 0


@pytest.mark.parametrize("harm", ["cut", "empty", "flip", "other"])
def test_a_damaged_part_is_dropped_and_counted(tmp_path, harm):
    import pyarrow.parquet as parquet

    path = tmp_path / "cache"
    write(path, rows(["a"]), rows(["b" * 300]), rows(["c"]), finish=False)
    part = sorted((tmp_path / "cache.parts").glob("*.parquet"))[1]
    data = bytearray(part.read_bytes())
    stored = parquet.read_metadata(part).row_group(0).column(2)
    data[stored.dictionary_page_offset + stored.total_compressed_size - 1] ^= 1  # the last byte of the translations
    part.write_bytes({"cut": data[:-20], "empty": b"", "flip": bytes(data), "other": b"PAR1 nothing PAR1"}[harm])
    (tmp_path / "cache.parts" / "00000009.parquet.partial").write_bytes(b"half")
    with TranslationWriter(path, MADE_BY) as cache:
        assert cache.damaged == 1
        assert {key for key, _ in cache.finished} == {key_of("a"), key_of("c")}
        cache.add(rows(["b" * 300]))
        assert cache.finish() == 6
    assert Translations(path)["b" * 300] == ["b" * 300 + "<0>", "b" * 300 + "<1>"]
    assert not (tmp_path / "cache.parts").exists()


@pytest.mark.parametrize("harm", [lambda data: data[:-9], lambda data: b"", lambda data: b"text,label\na,b\n"])
def test_a_damaged_file_is_never_replaced(tmp_path, harm):
    path = tmp_path / "cache"
    write(path, rows(["a"]))
    path.write_bytes(harm(path.read_bytes()))
    before = path.read_bytes()
    for use in (lambda: write(path, rows(["b"])), lambda: Translations(path)):
        with pytest.raises(InputError, match=r"cannot be read as a cache of translations: .*; move it away"):
            use()
    assert path.read_bytes() == before


def test_a_table_of_texts_is_not_taken_for_a_cache(tmp_path):
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.table({"text": ["a"], "label": [0]}), tmp_path / "texts.parquet")
    with pytest.raises(InputError, match="its columns are text, label, not key, copy, translation, via"):
        write(tmp_path / "texts.parquet", rows(["a"]))


def test_a_run_killed_while_merging_loses_and_doubles_nothing(tmp_path, monkeypatch):
    def killed(self):
        raise OSError("killed")

    path = tmp_path / "cache"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(InputError, match="cannot be written: killed"):
            write(path, rows(["a"]), rows(["b"]))
    assert len(list((tmp_path / "cache.parts").glob("*.parquet"))) == 2
    assert len(Translations(path)) == 2
    assert write(path, rows(["c"])) == 6
    assert Translations(path)["a"] == ["a<0>", "a<1>"]


@pytest.mark.parametrize("merged", [True, False])
def test_a_cache_holds_one_kind_of_translation(tmp_path, merged):
    path = tmp_path / "cache"
    write(path, rows(["a"]), finish=merged)
    with pytest.raises(InputError, match=r"was made with temperature 0\.9, not 0\.5: .* another file"):
        write(path, rows(["b"]), made_by={**MADE_BY, "temperature": 0.5})
    with pytest.raises(InputError, match="was made with via 'hf:a,hf:b', not 'hf:a,hf:c'"):
        write(path, rows(["b"]), made_by={**MADE_BY, "via": "hf:a,hf:c"})
    assert (tmp_path / "cache.parts").exists() != merged  # a refusal changes nothing
    assert write(path, rows(["b"])) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="the lock is of POSIX")
def test_one_writer_at_a_time(tmp_path):
    with TranslationWriter(tmp_path / "cache", MADE_BY) as first:
        with pytest.raises(InputError, match="another csst augment is writing"):
            write(tmp_path / "cache", rows(["a"]))
        first.add(rows(["b"]))
        assert first.finish() == 2
    assert write(tmp_path / "cache", rows(["a"])) == 4


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "file" / "cache", rows(["a"]))


def test_without_pyarrow_the_sentence_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs the package pyarrow .*: pip install csst-learn\[hf\]"):
        TranslationWriter(tmp_path / "cache", MADE_BY).__enter__()
