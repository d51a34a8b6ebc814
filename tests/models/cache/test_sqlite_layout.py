"""Caches of older releases, each an SQLite file."""

import sqlite3
from contextlib import closing
from zlib import crc32

import numpy as np
import pytest
from helpers.vector_cache import KEYS, ROWS, filled

from qwen3nb.models.cache import sqlite_layout
from qwen3nb.models.cache.cache_admin import list_caches, to_prune, verify_cache
from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key

TABLES = {
    1: "create table vectors (k blob primary key, v blob, crc int) without rowid",
    2: "create table e (k blob primary key, v blob, crc int)",
}
INSERT = {1: "insert into vectors values (?, ?, ?)", 2: "insert into e values (?, ?, ?)"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(sqlite_layout, "_ROWS", 64)


def old_cache(folder, *, layout=2, version=None):
    """Write the file that an older release would have beside ``folder``."""
    file = folder.with_name("x.sqlite")
    rows = [
        (key, row.tobytes(), crc32(row.tobytes(), crc32(key)))
        for key, row in zip(KEYS, ROWS, strict=True)
    ]
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("pragma journal_mode = wal")
        database.execute(TABLES[layout])
        database.executemany(INSERT[layout], rows)
        database.execute(f"pragma user_version = {layout if version is None else version}")
    file.with_suffix(".json").write_text('{"label": "old"}')
    return file


@pytest.mark.parametrize("layout", [1, 2])
def test_vectors_of_older_releases_are_moved_once(tmp_path, caplog, layout):
    old_cache(tmp_path / "x", layout=layout)
    (before,) = list_caches(tmp_path)
    assert (before.label, before.texts(), verify_cache(before)) == ("old", None, (0, []))
    hits, target = filled(EmbeddingCache(tmp_path / "x"))
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)
    assert "300 vectors moved to the current layout" in caplog.text
    assert [path.name for path in tmp_path.glob("x*")] == ["x"]
    caplog.clear()
    assert len(EmbeddingCache(tmp_path / "x")) == 300
    assert filled(EmbeddingCache(tmp_path / "x"))[0].all()
    assert not caplog.text


def test_a_move_that_was_interrupted_is_continued(tmp_path, monkeypatch):
    file = old_cache(tmp_path / "x")
    store, calls = EmbeddingCache._store, []

    def killed(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return store(*arguments)

    monkeypatch.setattr(EmbeddingCache, "_store", killed)
    with pytest.raises(KeyboardInterrupt):
        filled(EmbeddingCache(tmp_path / "x"))
    assert file.is_file()
    assert filled(EmbeddingCache(tmp_path / "x"))[0].all()
    assert len(EmbeddingCache(tmp_path / "x")) == 300  # none of them twice
    assert not file.exists()


def test_damaged_vectors_are_not_moved(tmp_path):
    file = old_cache(tmp_path / "x")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("update e set v = zeroblob(256) where k = ?", [KEYS[7]])
        database.execute("update e set v = 'text' where k = ?", [KEYS[8]])
    hits, target = filled(EmbeddingCache(tmp_path / "x"))
    assert np.flatnonzero(~hits).tolist() == [7, 8]
    np.testing.assert_array_equal(target[hits], ROWS[hits])


@pytest.mark.parametrize("damage", ["no database", "cut"])
def test_a_damaged_file_is_moved_aside(tmp_path, caplog, damage):
    file = old_cache(tmp_path / "x")
    data = file.read_bytes()
    file.write_bytes(b"no database" * 1000 if damage == "no database" else data[: len(data) // 2])
    cache = EmbeddingCache(tmp_path / "x")
    hits, target = filled(cache)
    np.testing.assert_array_equal(target[hits], ROWS[hits])
    assert "moved aside" in caplog.text
    assert not file.exists()
    aside = [each for each in list_caches(tmp_path) if each.aside]
    assert to_prune(list_caches(tmp_path), damaged=True) == aside
    assert cache.put(dict(zip(KEYS, ROWS, strict=True)))
    assert filled(cache)[0].all()


def test_a_newer_layout_is_left_alone(tmp_path, caplog):
    file = old_cache(tmp_path / "x", version=99)
    cache = EmbeddingCache(tmp_path / "x")
    assert not filled(cache)[0].any()
    assert "layout 99, written by a newer qwen3nb" in caplog.text
    assert file.is_file()
    assert cache.put({text_key("new"): ROWS[0]})


def test_a_file_that_another_process_moves_is_left_to_it(tmp_path, caplog, monkeypatch):
    file = old_cache(tmp_path / "x")
    monkeypatch.setattr(sqlite_layout, "_WAIT", 0.01)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        assert not filled(EmbeddingCache(tmp_path / "x"))[0].any()
    assert "is not read (database is locked)" in caplog.text
    assert filled(EmbeddingCache(tmp_path / "x"))[0].all()


def test_without_the_space_for_both_the_old_one_is_not_read(tmp_path, caplog, monkeypatch):
    file = old_cache(tmp_path / "x")
    monkeypatch.setattr(sqlite_layout, "_SPARE", 1 << 60)
    assert not filled(EmbeddingCache(tmp_path / "x"))[0].any()
    assert "GB are free; they are computed again" in caplog.text
    assert file.is_file()
