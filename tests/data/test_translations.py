"""The cache of translations: resumable, of one kind only, and never silently wrong."""

from __future__ import annotations

import sqlite3

import pytest

from csst.data.text.translations import Translations, TranslationWriter, hash_text
from csst.errors import InputError

MADE_BY = {"via": "hf:a,hf:b", "temperature": 0.9, "seed": 0}
TEXTS = ["", "one", "très bien 😀", "你好", "x" * 10_000, "line\nline"]


def rows(texts, copies=(0, 1)):
    return [(text, copy, f"{text}<{copy}>") for text in texts for copy in copies]


def write(path, *parts, made_by=MADE_BY):
    with TranslationWriter(path, made_by) as cache:
        for part in parts:
            cache.add(part)
        cache.save()
        return len(cache)


def read_all(path):
    connection = sqlite3.connect(path)
    tables = [connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in ("content", "setting")]
    connection.close()
    return tables


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new folder" / "cache.sqlite"
    assert write(path, rows(TEXTS)) == 12
    assert [p.name for p in path.parent.iterdir()] == ["cache.sqlite"]
    cache = Translations(path)
    assert len(cache) == 6
    for text in TEXTS:
        assert text in cache
        assert cache[text] == [f"{text}<0>", f"{text}<1>"]
    assert "two" not in cache
    assert cache["two"] == []
    # printf one | sha256sum
    assert hash_text("one").hex() == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"


def test_copies_are_in_their_order(tmp_path):
    write(tmp_path / "cache", rows(["a"], reversed(range(300))))
    assert Translations(tmp_path / "cache")["a"] == [f"a<{copy}>" for copy in range(300)]


def test_the_content_does_not_depend_on_the_way_there(tmp_path):
    write(tmp_path / "a", rows(TEXTS))
    write(tmp_path / "b", rows(TEXTS[3:], [1]), rows(TEXTS[3:], [0]))
    write(tmp_path / "b", rows(TEXTS[:3]))
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


def test_what_was_saved_is_there_and_the_rest_is_not(tmp_path):
    path = tmp_path / "cache"
    with TranslationWriter(path, MADE_BY) as cache:
        cache.add(rows(["a"]))
        cache.save()
        cache.add(rows(["lost"]))  # never saved
    with TranslationWriter(path, MADE_BY) as cache:
        assert ("a", 1) in cache
        assert ("a", 2) not in cache
        assert ("lost", 0) not in cache
        assert (len(cache), cache.damaged) == (2, 0)


def test_a_run_that_saved_nothing_leaves_nothing_behind_that_matters(tmp_path):
    with TranslationWriter(tmp_path / "cache", MADE_BY) as cache:
        cache.add(rows(["lost"]))
    assert len(Translations(tmp_path / "cache")) == 0
    assert write(tmp_path / "cache", rows(["a"]), made_by={**MADE_BY, "seed": 1}) == 2  # other settings are welcome


def test_an_empty_cache(tmp_path):
    assert write(tmp_path / "cache") == 0
    assert len(Translations(tmp_path / "cache")) == 0


def test_damaged_translations_are_dropped_and_counted_by_a_writer_and_refused_by_a_reader(tmp_path):
    path = tmp_path / "cache"
    write(path, rows(["a", "unlikely", "c"], [0]))
    content = path.read_bytes()
    assert content.count(b"unlikely<0>") == 1
    path.write_bytes(content.replace(b"unlikely<0>", b"unlikely<8>"))
    with pytest.raises(InputError, match=r"cannot be read as a file of back-translations: .*; move it away"):
        Translations(path)
    with TranslationWriter(path, MADE_BY) as cache:
        assert (len(cache), cache.damaged) == (2, 1)
        assert ("unlikely", 0) not in cache
        cache.add(rows(["unlikely"], [0]))
        cache.save()
    assert Translations(path)["unlikely"] == ["unlikely<0>"]


@pytest.mark.parametrize("harm", [lambda data: data[:-9], lambda data: b"text,label\na,b\n"])
def test_a_damaged_file_is_never_replaced(tmp_path, harm):
    path = tmp_path / "cache"
    write(path, rows(TEXTS))
    path.write_bytes(harm(path.read_bytes()))
    before = path.read_bytes()
    for use in (lambda: write(path, rows(["b"])), lambda: Translations(path)):
        with pytest.raises(InputError, match=r"cannot be read as a file of back-translations: .*; move it away"):
            use()
    assert path.read_bytes() == before


def test_a_cache_holds_one_kind_of_translation(tmp_path):
    path = tmp_path / "cache"
    write(path, rows(["a"]))
    before = read_all(path)
    with pytest.raises(InputError, match=r"was made with temperature 0\.9, not 0\.5: .* another file"):
        write(path, rows(["b"]), made_by={**MADE_BY, "temperature": 0.5})
    with pytest.raises(InputError, match="was made with via 'hf:a,hf:b', not 'hf:a,hf:c'"):
        write(path, rows(["b"]), made_by={**MADE_BY, "via": "hf:a,hf:c"})
    assert read_all(path) == before  # a refusal changes nothing
    assert write(path, rows(["b"])) == 4


def test_one_writer_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("csst.data.content_store._PATIENCE", 0.01)
    with TranslationWriter(tmp_path / "cache", MADE_BY) as first:
        first.save()
        with pytest.raises(InputError, match="another csst augment is writing"):
            write(tmp_path / "cache", rows(["a"]))
        first.add(rows(["b"]))
        first.save()
        assert len(Translations(tmp_path / "cache")) == 1  # what is saved can be read meanwhile
    assert write(tmp_path / "cache", rows(["a"])) == 4


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written \(.*\): free some space, or name another file with -o"):
        write(tmp_path / "file" / "cache", rows(["a"]))
