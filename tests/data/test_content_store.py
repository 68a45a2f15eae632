"""The content store: complete or absent, shared by processes, and never silently wrong."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from csst.data.content_store import ContentStore
from csst.errors import InputError

ENTRIES = {b"a": b"one", b"b": b"", b"c": b"three" * 1000}


def open_store(path: Path | None, kind: str = "numbers", create: bool = True) -> ContentStore:
    return ContentStore(path, kind, "delete it", "name another", create)


def put(store: ContentStore, entries: dict[bytes, bytes]) -> ContentStore:
    with store.transaction():
        store.put(entries.items())
    return store


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "new folder" / "store.sqlite"


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_is_put_is_found_again(path, in_memory):
    store = put(open_store(None if in_memory else path), ENTRIES)
    for opened in [store] if in_memory else [store, open_store(path), open_store(path, create=False)]:
        assert opened.get([b"c", b"a", b"c"]) == [ENTRIES[b"c"], b"one", ENTRIES[b"c"]]
        assert list(opened.entries()) == sorted(ENTRIES.items())
        assert len(opened) == 3
        assert b"b" in opened
        assert b"d" not in opened
    assert path.exists() != in_memory


def test_a_closed_store_is_a_single_file(path):
    put(open_store(path), ENTRIES).close()
    assert os.listdir(path.parent) == [path.name]
    before = path.read_bytes()
    assert len(open_store(path)) == 3
    assert path.read_bytes() == before


def test_a_key_keeps_its_first_value(path):
    store = put(put(open_store(path), {b"a": b"old"}), {b"a": b"new", b"b": b"2"})
    assert list(store.entries()) == [(b"a", b"old"), (b"b", b"2")]


def test_a_failed_transaction_leaves_nothing(path):
    store = put(open_store(path), {b"a": b"1"})

    def write_and_fail() -> None:
        with store.transaction():
            store.put([(b"b", b"2")])
            store.keep_setting("width", 3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert b"b" not in store
    with store.transaction():
        assert store.keep_setting("width", 4) == 4
        assert store.keep_setting("width", 5) == 4


def test_only_one_writes_at_a_time_while_others_read(path, monkeypatch):
    monkeypatch.setattr("csst.data.content_store._PATIENCE", 0.01)
    first, second = put(open_store(path), {b"a": b"1"}), open_store(path)
    with first.transaction():
        first.put([(b"b", b"2")])
        assert not second.begin(wait=False)
        assert b"a" in second
        assert b"b" not in second
    assert b"b" in second
    assert second.begin(wait=False)


def _write_range(path: Path, start: int) -> None:
    for number in range(start, 200, 2):
        put(open_store(path), {b"%d" % number: b"x" * number})


def test_processes_write_to_one_file_from_its_first_moment_on(path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write_range, args=(path, start)) for start in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert dict(open_store(path).entries()) == {b"%d" % number: b"x" * number for number in range(200)}


def test_a_file_that_another_process_begins_while_it_is_opened_is_ours(path, monkeypatch):
    query = ContentStore._query

    def begin_elsewhere(store, sql, *parameters):
        rows = query(store, sql, *parameters)
        monkeypatch.undo()
        put(open_store(path), {b"a": b"1"})  # by now the first answer is old
        return rows

    monkeypatch.setattr(ContentStore, "_query", begin_elsewhere)
    assert b"a" in open_store(path)


def _write_forever(path, batch):
    store = open_store(path)
    while True:
        with store.transaction():
            for row in range(50):
                store.put([(f"{batch.value:06d}{row:02d}".encode(), bytes(1000))])
        batch.value += 1


def test_a_killed_writer_leaves_whole_transactions_only(path):
    context = multiprocessing.get_context("fork")
    batch = context.Value("q", 0, lock=False)
    process = context.Process(target=_write_forever, args=(path, batch))
    process.start()
    while batch.value < 20 and process.is_alive():
        time.sleep(0.001)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    batches = batch.value
    assert batches >= 20
    store = open_store(path)
    assert len(store) % 50 == 0
    assert len(store) // 50 in (batches, batches + 1)  # killed between a commit and its count
    assert all(value == bytes(1000) for _, value in store.entries())
    assert len(put(store, {b"a": b"1"})) % 50 == 1


def test_a_full_disk_is_one_sentence_and_costs_the_last_transaction_only(path):
    store = put(open_store(path), ENTRIES)
    store._connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(
        InputError, match=r"store\.sqlite cannot be written \(database or disk is full\): name another$"
    ):
        put(store, {b"big": bytes(10**6)})
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert dict(put(store, {b"d": b"4"}).entries()) == {**ENTRIES, b"d": b"4"}


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for wrong in (tmp_path / "file" / "store.sqlite", tmp_path / "folder"):
        with pytest.raises(InputError, match=r"cannot be written \(.*\): name another$"):
            open_store(wrong)


def test_a_store_in_a_folder_that_cannot_be_written_is_read(path, monkeypatch):
    put(open_store(path), ENTRIES).close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may write everywhere
    for create in (True, False):
        store = open_store(path, create=create)
        assert dict(store.entries()) == ENTRIES
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(InputError, match=r"cannot be written \(attempt to write a readonly database\): name another$"):
        put(store, {b"d": b"4"})


def flip_last_byte(path: Path, value: bytes) -> None:
    content = path.read_bytes()
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, value[:-1] + bytes([value[-1] ^ 64])))


def test_a_flipped_bit_is_not_used(path):
    put(open_store(path), {b"a": b"a whole value", b"b": b"another value"}).close()
    flip_last_byte(path, b"another value")
    store = open_store(path)
    assert store.get([b"a"]) == [b"a whole value"]
    for use in (lambda: store.get([b"a", b"b"]), lambda: list(store.entries())):
        with pytest.raises(
            InputError, match=r"read as a file of numbers: a value does not match its checksum; delete it$"
        ):
            use()
    with store.transaction():
        assert store.drop_damaged() == 1
    assert list(store.entries()) == [(b"a", b"a whole value")]
    with store.transaction():
        assert store.drop_damaged() == 0


def write_other_database(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()


def write_other_kind(path: Path) -> None:
    path.unlink()
    open_store(path, "words").close()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: os.truncate(path, 5000), "malformed"),
        (lambda path: path.write_bytes(bytes(4096) + path.read_bytes()[4096:]), "not a database"),
        (lambda path: path.write_text("text,label\na,b\n"), "not a database"),
        (write_other_database, "it was not written by csst"),
        (write_other_kind, "it holds words"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_damaged_or_foreign_file_is_one_sentence_and_never_replaced(path, harm, reason, create):
    put(open_store(path), ENTRIES).close()
    harm(path)
    before = path.read_bytes()
    with pytest.raises(
        InputError, match=r"store\.sqlite cannot be read as a file of numbers: .*; delete it$"
    ) as caught:
        list(open_store(path, create=create).entries())
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_an_empty_file_is_begun_by_a_writer_and_refused_by_a_reader(path):
    path.parent.mkdir()
    path.write_bytes(b"")
    with pytest.raises(InputError, match="it was not written by csst; delete it"):
        open_store(path, create=False)
    assert len(put(open_store(path), ENTRIES)) == 3
