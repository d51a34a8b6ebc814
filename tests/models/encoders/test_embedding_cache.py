"""The embedding cache: damage, full disks, kills, two processes."""

import logging
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from helpers import TEXTS

from qwen3nb.models.encoders import embedding_cache as cache_module
from qwen3nb.models.encoders.embedding_cache import (
    EmbeddingCache,
    bytes_per_vector,
    connect,
    journal_mode,
    text_key,
)
from qwen3nb.models.load import load_encoder

KEYS = [text_key(str(i)) for i in range(300)]
ROWS = np.random.default_rng(0).standard_normal((300, 64), dtype=np.float32)


def stored(file, **options):
    cache = EmbeddingCache(file, **options)
    assert cache.put(dict(zip(KEYS, ROWS, strict=True)))
    return cache


def filled(cache, keys=KEYS):
    target = np.full((len(keys), ROWS.shape[1]), np.nan, dtype=np.float32)
    return cache.fill(keys, target), target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty embedding cache."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


@pytest.mark.parametrize("scan_from", [0, 2], ids=["scan", "lookup"])
def test_rows_land_where_their_keys_are(tmp_path, monkeypatch, scan_from):
    monkeypatch.setattr(cache_module, "_SCAN_FROM", scan_from)
    cache = stored(tmp_path / "x.sqlite")
    keys = [text_key("unknown"), *reversed(KEYS)]
    hits, target = filled(cache, keys)
    assert not hits[0]
    assert np.isnan(target[0]).all()
    assert hits[1:].all()
    np.testing.assert_array_equal(target[1:], ROWS[::-1])


def test_no_keys_and_another_dimension(tmp_path, caplog):
    cache = stored(tmp_path / "x.sqlite")
    assert cache.fill([], np.empty((0, 64), dtype=np.float32)).shape == (0,)
    assert not cache.fill(KEYS, np.empty((300, 32), dtype=np.float32)).any()
    assert "300 damaged vectors" in caplog.text


def test_vectors_of_the_first_layout_are_kept(tmp_path, caplog):
    file = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("create table vectors (k blob primary key, v blob, crc int) without rowid")
        new = stored(tmp_path / "new.sqlite")
        with closing(connect(new.file)) as other:
            database.executemany(
                "insert into vectors values (?, ?, ?)", other.execute("select * from e").fetchall()
            )
    hits, target = filled(EmbeddingCache(file))
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)
    assert "migrated to the current layout" in caplog.text
    caplog.clear()
    assert len(EmbeddingCache(file)) == 300
    assert not caplog.text


def test_a_newer_layout_is_left_alone(tmp_path, caplog):
    cache = stored(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(cache.file)) as database:
        database.execute("pragma user_version = 99")
    again = EmbeddingCache(cache.file)
    assert not filled(again)[0].any()
    assert not again.put({KEYS[0]: ROWS[0]})
    assert "layout 99, written by a newer qwen3nb" in caplog.text
    assert not list(tmp_path.glob("*.damaged"))


@pytest.mark.parametrize("seed", range(25))
def test_no_flipped_byte_is_ever_served(tmp_path, seed):
    cache = stored(tmp_path / "x.sqlite")
    data = bytearray(cache.file.read_bytes())
    dice = random.Random(seed)
    # Some in the header and the schema, the others anywhere.
    offset = dice.randrange(4096) if seed % 3 == 0 else dice.randrange(len(data))
    data[offset] ^= dice.randrange(1, 256)
    cache.file.write_bytes(data)
    again = EmbeddingCache(cache.file)
    hits, target = filled(again)
    np.testing.assert_array_equal(target[hits], ROWS[hits])
    missing = {KEYS[i]: ROWS[i] for i in np.flatnonzero(~hits)}
    if again.put(missing):
        hits, target = filled(EmbeddingCache(cache.file))
        np.testing.assert_array_equal(target[hits], ROWS[hits])


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
def test_a_truncated_file_loses_only_vectors(tmp_path, share):
    cache = stored(tmp_path / "x.sqlite")
    data = cache.file.read_bytes()
    cache.file.write_bytes(data[: int(len(data) * share)])
    again = EmbeddingCache(cache.file)
    hits, target = filled(again)
    np.testing.assert_array_equal(target[hits], ROWS[hits])
    assert again.put(dict(zip(KEYS, ROWS, strict=True)))
    assert filled(again)[0].all()


def test_a_file_another_process_renewed_is_not_moved_aside(tmp_path, caplog):
    """Both have the damaged file open; the second to notice finds a fresh one."""
    first, second = EmbeddingCache(tmp_path / "x.sqlite"), EmbeddingCache(tmp_path / "x.sqlite")
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 1000)
    opened = second._opened

    def after_the_first():
        second._inode = first.file.stat().st_ino if not list(tmp_path.glob("*.damaged")) else 0
        assert first.put(dict(zip(KEYS, ROWS, strict=True)))
        second._opened = opened
        error = sqlite3.DatabaseError("file is not a database")
        error.sqlite_errorcode = sqlite3.SQLITE_NOTADB
        raise error

    second._opened = after_the_first
    hits, target = filled(second)
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)
    assert caplog.text.count("moved aside") == 1


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_costs_no_run(folder, caplog, monkeypatch):
    """SQLite's own error: the file may not grow beyond so many pages."""
    real = connect

    def small(file):
        database = real(file)
        database.execute("pragma max_page_count = 8")
        return database

    monkeypatch.setattr(cache_module, "connect", small)
    monkeypatch.setattr("qwen3nb.models.encoders.base._CHUNK", 50)
    encoder = load_encoder("random:256", show_progress=False)
    texts = [f"text {i}" for i in range(1000)]
    vectors = encoder.encode(texts)
    np.testing.assert_array_equal(vectors, load_encoder("random:256", cache=False).encode(texts))
    assert caplog.text.count("cannot store vectors") == 1
    assert "full" in caplog.text
    # What was stored before is there, and sound.
    again = load_encoder("random:256", show_progress=False)
    np.testing.assert_array_equal(again.encode(texts), vectors)
    assert 0 < again.stats.cached < 1000


@pytest.mark.parametrize("what", ["mkdir", "connect", "write_json"])
def test_a_folder_that_cannot_be_written_costs_no_run(folder, caplog, monkeypatch, what):
    if what == "mkdir":
        monkeypatch.setattr("pathlib.Path.mkdir", full_disk)
    else:
        monkeypatch.setattr(cache_module, what, full_disk)
    encoder = load_encoder("random", show_progress=False)
    first = encoder.encode(list(TEXTS))
    np.testing.assert_array_equal(encoder.encode(list(TEXTS)), first)
    assert caplog.text.count("No space left on device") == 1
    assert encoder.stats.encoded == 2 * len(TEXTS)


def test_a_read_only_folder_is_still_read(folder, caplog, monkeypatch):
    load_encoder("random", show_progress=False).encode(list(TEXTS))
    monkeypatch.setattr("os.access", lambda *_: False)
    before = {file.name for file in folder.iterdir()}
    encoder = load_encoder("random", show_progress=False)
    encoder.encode([*TEXTS, "a new one"])
    encoder.encode(["another new one"])
    assert (encoder.stats.cached, encoder.stats.encoded) == (len(TEXTS), 2)
    assert caplog.text.count("cannot store vectors") == 1
    assert {file.name for file in folder.iterdir()} == before


def test_the_journal_mode_follows_the_file_system(tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path}/my\\040home nfs4 rw 0 0\n")
    (tmp_path / "my home" / "cache").mkdir(parents=True)
    assert journal_mode(tmp_path, mounts=mounts) == "wal"
    assert journal_mode(tmp_path / "my home" / "cache", mounts=mounts) == "delete"
    assert journal_mode(tmp_path, mounts=tmp_path / "none") == "wal"
    monkeypatch.setenv("QWEN3NB_CACHE_JOURNAL", "delete")
    assert journal_mode(tmp_path, mounts=mounts) == "delete"
    cache = stored(tmp_path / "x.sqlite")
    assert filled(cache)[0].all()
    with closing(sqlite3.connect(cache.file)) as database:
        assert database.execute("pragma journal_mode").fetchone() == ("delete",)
    monkeypatch.setenv("QWEN3NB_CACHE_JOURNAL", "of")
    with pytest.raises(ValueError, match="unknown QWEN3NB_CACHE_JOURNAL 'of'; choose one of: wal"):
        journal_mode(tmp_path)


WRITER = """
import sys, numpy as np
from pathlib import Path
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
with EmbeddingCache(Path(sys.argv[1]), about={"label": "writer"}) as cache:
    for i in range(int(sys.argv[3])):
        done = cache.put({text_key(f"{sys.argv[2]}-{i}"): np.full(64, i, dtype=np.float32)})
        print(i if done else "lost", flush=True)
"""


def writer(file, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(file), name, str(count)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.integration
def test_kills_and_two_writers_cost_no_acknowledged_vector(tmp_path):
    file = tmp_path / "x.sqlite"
    acknowledged = {}
    for round_ in range(5):
        pair = [writer(file, f"{name}{round_}", 100_000) for name in "ab"]
        lines = [[], []]
        for process, seen in zip(pair, lines, strict=True):
            seen += [process.stdout.readline() for _ in range(5)]
        time.sleep(0.05 * round_)
        for process, seen, name in zip(pair, lines, "ab", strict=True):
            process.kill()
            seen += process.stdout.read().splitlines()
            process.wait()
            process.stdout.close()
            assert "lost" not in seen
            for line in seen:
                if line.strip().isdigit():
                    # A truncated last line may name an earlier number, which is stored too.
                    acknowledged[text_key(f"{name}{round_}-{int(line)}")] = int(line)
    vectors = EmbeddingCache(file).get(acknowledged)
    assert vectors.keys() == acknowledged.keys()
    assert all((vectors[key] == value).all() for key, value in acknowledged.items())
    with closing(connect(file)) as database:
        assert database.execute("pragma integrity_check").fetchone() == (b"ok",)


@pytest.mark.integration
def test_two_processes_make_one_file_at_once(tmp_path):
    pair = [writer(tmp_path / "x.sqlite", name, 30) for name in "ab"]
    assert ["lost" in process.communicate(timeout=300)[0] for process in pair] == [False, False]
    assert [process.returncode for process in pair] == [0, 0]
    assert len(EmbeddingCache(tmp_path / "x.sqlite")) == 60


def test_hits_and_misses_are_counted_and_logged(folder, caplog, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.encoders.base._LONG", 0.0)
    load_encoder("random", show_progress=False).encode(list(TEXTS))
    encoder = load_encoder("random", show_progress=False)
    with caplog.at_level(logging.INFO):
        encoder.encode([*TEXTS, "new", "new"])
    assert (encoder.stats.texts, encoder.stats.cached, encoder.stats.encoded) == (6, 4, 1)
    assert "random: 4 vectors from the cache, 1 computed" in caplog.text


def test_a_query_is_never_served_for_a_passage(folder, monkeypatch):
    encoder = load_encoder("random", show_progress=False)
    monkeypatch.setattr(encoder, "prompts", {"query": "query: "})
    query = encoder.encode("x", role="query")
    passage = encoder.encode("x", role="passage")
    assert encoder.stats.cached == 0
    assert np.abs(query - passage).max() > 1e-3


def test_a_cache_pruned_while_in_use_costs_no_run(folder):
    encoder = load_encoder("random", show_progress=False)
    first = encoder.encode(list(TEXTS))
    shutil.rmtree(folder)
    np.testing.assert_array_equal(encoder.encode(list(TEXTS)), first)
    assert encoder.stats.encoded == 2 * len(TEXTS)


def test_a_second_run_reads_the_cache(encoder_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    first = load_encoder(encoder_folder)
    vectors = first.encode(list(TEXTS))
    second = load_encoder(encoder_folder)
    np.testing.assert_array_equal(second.encode(list(TEXTS)), vectors)
    assert (second.stats.encoded, second.stats.cached) == (0, len(TEXTS))
    other = load_encoder(encoder_folder, pooling="last")
    other.encode(list(TEXTS))
    assert other.stats.cached == 0


VECTORS = {text_key(text): np.arange(4, dtype=np.float32) + i for i, text in enumerate("abc")}


def same(vectors, expected=VECTORS):
    assert vectors.keys() == expected.keys()
    for key, vector in expected.items():
        np.testing.assert_array_equal(vectors[key], vector)


def test_the_cache_gives_back_what_it_was_given(tmp_path):
    cache = EmbeddingCache(tmp_path / "a" / "x.sqlite")
    assert cache.get(VECTORS) == {}
    cache.put(VECTORS)
    same(cache.get([*VECTORS, text_key("unknown")]))
    assert len(cache) == 3


def test_a_flipped_byte_is_detected_and_repaired(tmp_path):
    cache = EmbeddingCache(tmp_path / "x.sqlite")
    cache.put(VECTORS)
    key = text_key("b")
    with sqlite3.connect(cache.file) as database:
        (value,) = database.execute("select v from e where k = ?", [key]).fetchone()
        broken = bytes([value[0] ^ 1]) + value[1:]
        database.execute("update e set v = ? where k = ?", [broken, key])
    database.close()
    vectors = cache.get(VECTORS)
    assert key not in vectors
    assert cache.damaged == 1
    cache.put({key: VECTORS[key]})
    same(cache.get(VECTORS))


def test_a_file_that_is_not_a_database_is_moved_aside(tmp_path, caplog):
    file = tmp_path / "x.sqlite"
    file.write_bytes(b"not a database at all" * 500)
    cache = EmbeddingCache(file)
    assert cache.get(VECTORS) == {}
    assert "moved aside" in caplog.text
    assert (tmp_path / "x.sqlite.damaged").is_file()
    cache.put(VECTORS)
    same(cache.get(VECTORS))


def test_a_truncated_file_never_returns_a_wrong_vector(tmp_path):
    file = tmp_path / "x.sqlite"
    many = {text_key(str(i)): np.full(2000, i, dtype=np.float32) for i in range(60)}
    cache = EmbeddingCache(file)
    cache.put(many)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    vectors = cache.get(many)
    same(vectors, {key: many[key] for key in vectors})
    cache.put(many)
    same(cache.get(many), many)


@pytest.mark.parametrize("dimension", [128, 1024, 4096])
def test_the_size_of_a_file_is_known_before(tmp_path, dimension):
    count = 2_000_000 // dimension
    cache = EmbeddingCache(tmp_path / "x.sqlite")
    vectors = np.ones((count, dimension), dtype=np.float32)
    cache.put({text_key(str(i)): vectors[i] for i in range(count)})
    with closing(connect(cache.file)) as database:
        database.execute("pragma wal_checkpoint(truncate)")
    size = cache.file.stat().st_size
    assert bytes_per_vector(dimension) * count == pytest.approx(size, rel=0.05)
