"""The embedding cache: damage, full disks, kills, two processes."""

import errno
import logging
import os
import random
import resource
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import TEXTS
from helpers.flips import flipped, flips
from helpers.vector_cache import KEYS, ROWS, filled, segment, stored

from qwen3nb.models.cache import embedding_cache as cache_module
from qwen3nb.models.cache.cache_admin import list_caches, verify_cache
from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.cache.segments import bytes_per_vector
from qwen3nb.models.load import load_encoder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty embedding cache."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


@pytest.mark.parametrize("step", [1, 7, 100])
def test_rows_land_where_their_keys_are(tmp_path, step):
    cache = stored(tmp_path / "x")
    some = slice(None, None, -step)
    hits, target = filled(cache, [text_key("unknown"), *KEYS[some]])
    assert not hits[0]
    assert np.isnan(target[0]).all()
    assert hits[1:].all()
    np.testing.assert_array_equal(target[1:], ROWS[some])


def test_no_keys_and_another_dimension(tmp_path, caplog):
    cache = stored(tmp_path / "x")
    assert cache.fill([], np.empty((0, 64), dtype=np.float32)).shape == (0,)
    assert cache.put({})
    shorter = np.empty((300, 32), dtype=np.float32)
    assert not cache.fill(KEYS, shorter).any()
    assert cache.put({KEYS[0]: ROWS[0, :32]})
    assert cache.fill(KEYS, shorter).sum() == 1
    np.testing.assert_array_equal(shorter[0], ROWS[0, :32])
    assert filled(cache)[0].all()
    assert not caplog.text


def flip(file, dice):
    data = bytearray(file.read_bytes())
    data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
    file.write_bytes(data)


@pytest.mark.parametrize("seed", range(25))
def test_no_flipped_byte_is_ever_served(tmp_path, seed):
    cache = stored(tmp_path / "x")
    dice = random.Random(seed)
    flip(segment(cache) if seed % 3 else segment(cache).with_suffix(".index"), dice)
    again = EmbeddingCache(cache.folder)
    hits, target = filled(again)
    assert hits.sum() >= 299
    np.testing.assert_array_equal(target[hits], ROWS[hits])
    if missing := {KEYS[i]: ROWS[i] for i in np.flatnonzero(~hits)}:
        assert again.put(missing)
    hits, target = filled(EmbeddingCache(cache.folder))
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9])
@pytest.mark.parametrize("suffix", [".vectors", ".index"])
def test_a_truncated_file_loses_only_vectors(tmp_path, share, suffix):
    cache = stored(tmp_path / "x")
    file = segment(cache).with_suffix(suffix)
    os.truncate(file, int(file.stat().st_size * share))
    again = EmbeddingCache(cache.folder)
    hits, target = filled(again)
    assert hits.sum() == (300 if suffix == ".index" else int(300 * share))
    np.testing.assert_array_equal(target[hits], ROWS[hits])
    assert again.put(dict(zip(KEYS, ROWS, strict=True)))
    hits, target = filled(EmbeddingCache(cache.folder))
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)


def test_a_lost_index_is_made_again(tmp_path):
    cache = stored(tmp_path / "x")
    index = segment(cache).with_suffix(".index")
    before = index.read_bytes()
    index.unlink()
    again = EmbeddingCache(cache.folder)
    assert filled(again)[0].all()
    assert again.put({text_key("new"): ROWS[0]})
    assert index.read_bytes()[: len(before)] == before
    assert filled(EmbeddingCache(cache.folder), [*KEYS, text_key("new")])[0].all()


def full_disk(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_costs_no_run(folder, caplog, monkeypatch):
    """The kernel's own error, in the middle of a row: a file may not grow beyond so many bytes."""
    monkeypatch.setattr("qwen3nb.models.encoders.base._CHUNK", 50)
    encoder = load_encoder("random:256", show_progress=False)
    texts = [f"text {i}" for i in range(1000)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        vectors = encoder.encode(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    np.testing.assert_array_equal(vectors, load_encoder("random:256", cache=False).encode(texts))
    assert caplog.text.count("cannot store vectors") == 1
    assert "File too large" in caplog.text
    # What was stored before is there, and sound.
    again = load_encoder("random:256", show_progress=False)
    np.testing.assert_array_equal(again.encode(texts), vectors)
    assert again.stats.cached == 450


@pytest.mark.parametrize("what", ["mkdir", "SegmentWriter.open", "write_json"])
def test_a_folder_that_cannot_be_written_costs_no_run(folder, caplog, monkeypatch, what):
    if what == "mkdir":
        monkeypatch.setattr("pathlib.Path.mkdir", full_disk)
    else:
        monkeypatch.setattr(f"{cache_module.__name__}.{what}", full_disk)
    encoder = load_encoder("random", show_progress=False)
    first = encoder.encode(list(TEXTS))
    np.testing.assert_array_equal(encoder.encode(list(TEXTS)), first)
    assert caplog.text.count("No space left on device") == 1
    assert encoder.stats.encoded == 2 * len(TEXTS)


def test_a_read_only_folder_is_still_read(folder, caplog, monkeypatch):
    load_encoder("random", show_progress=False).encode(list(TEXTS))
    (cache,) = folder.iterdir()
    for file in cache.iterdir():
        os.utime(file, (0, 0))
    real = os.open

    def read_only(file, flags, *rest, **options):
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(file, flags, *rest, **options)

    def unwritable(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("os.open", read_only)
    monkeypatch.setattr("os.utime", unwritable)
    before = {file.name: file.stat().st_mtime for file in cache.iterdir()}
    encoder = load_encoder("random", show_progress=False)
    encoder.encode([*TEXTS, "a new one"])
    encoder.encode(["another new one"])
    assert (encoder.stats.cached, encoder.stats.encoded) == (len(TEXTS), 2)
    assert caplog.text.count("cannot store vectors") == 1
    assert {file.name: file.stat().st_mtime for file in cache.iterdir()} == before


WRITER = """
import sys, numpy as np
from pathlib import Path
from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key
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
    file = tmp_path / "x"
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
    keys = list(acknowledged)
    vectors = np.empty((len(keys), 64), dtype=np.float32)
    assert EmbeddingCache(file).fill(keys, vectors).all()
    np.testing.assert_array_equal(vectors[:, 0], [acknowledged[key] for key in keys])
    assert (vectors == vectors[:, :1]).all()
    (cache,) = list_caches(tmp_path)
    assert verify_cache(cache) == (len(EmbeddingCache(file)), [])
    # Each process took over what the one before left: no more segments than writers at once.
    assert len(list(file.glob("*.vectors"))) == 2


@pytest.mark.integration
def test_two_processes_make_one_file_at_once(tmp_path):
    pair = [writer(tmp_path / "x", name, 30) for name in "ab"]
    assert ["lost" in process.communicate(timeout=300)[0] for process in pair] == [False, False]
    assert [process.returncode for process in pair] == [0, 0]
    assert len(EmbeddingCache(tmp_path / "x")) == 60


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


def test_a_damaged_vector_is_counted_and_stored_again(tmp_path, caplog):
    cache = stored(tmp_path / "x")
    file = segment(cache)
    data = bytearray(file.read_bytes())
    row = len(data) // 300
    data[7 * row + 100] ^= 1  # in a vector
    data[9 * row + 10] ^= 1  # in a key
    file.write_bytes(data)
    hits, _ = filled(cache)
    assert np.flatnonzero(~hits).tolist() == [7, 9]
    assert cache.damaged == 2
    assert "2 damaged vectors, which will be computed again" in caplog.text
    cache.put({KEYS[i]: ROWS[i] for i in (7, 9)})
    hits, target = filled(cache)
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS)
    assert cache.damaged == 2
    assert caplog.text.count("damaged vectors") == 1


def test_what_another_process_stores_is_seen(tmp_path):
    reader, other = EmbeddingCache(tmp_path / "x"), EmbeddingCache(tmp_path / "x")
    for start in range(0, 300, 10):
        part = slice(start, start + 10)
        assert not filled(reader, KEYS[part])[0].any()
        assert other.put(dict(zip(KEYS[part], ROWS[part], strict=True)))
        hits, target = filled(reader)
        assert hits.sum() == start + 10
        np.testing.assert_array_equal(target[hits], ROWS[hits])


def test_two_caches_of_one_folder_write_two_files(tmp_path):
    with EmbeddingCache(tmp_path / "x") as first, EmbeddingCache(tmp_path / "x") as second:
        for cache, part in ((first, slice(0, 100)), (second, slice(100, 300))):
            assert cache.put(dict(zip(KEYS[part], ROWS[part], strict=True)))
    assert len(list((tmp_path / "x").glob("*.vectors"))) == 2
    third = stored(tmp_path / "x")  # continues one of them
    assert len(list((tmp_path / "x").glob("*.vectors"))) == 2
    assert len(third) == 600
    assert filled(third)[0].all()


@pytest.mark.parametrize("dimension", [128, 1024, 4096])
def test_the_size_of_a_file_is_known_before(tmp_path, dimension):
    count = 2_000_000 // dimension
    cache = EmbeddingCache(tmp_path / "x")
    vectors = np.ones((count, dimension), dtype=np.float32)
    cache.put({text_key(str(i)): vectors[i] for i in range(count)})
    size = sum(file.stat().st_size for file in (tmp_path / "x").iterdir())
    assert bytes_per_vector(dimension) * count == size


def test_a_flipped_byte_never_gives_a_wrong_vector(tmp_path):
    stored(tmp_path / "c", about={"label": "x"})
    for flip in flips(tmp_path / "c", count=400):
        with flipped(*flip):
            there, vectors = filled(EmbeddingCache(tmp_path / "c"))
            assert there.sum() >= 299
            np.testing.assert_array_equal(vectors[there], ROWS[there])
    assert filled(EmbeddingCache(tmp_path / "c"))[0].all()
