"""The limit of the embedding cache, and the free space that it leaves."""

import os
import shutil
import time
from collections import namedtuple

import numpy as np
import pytest
from helpers import REPOSITORY
from helpers.vector_cache import KEYS, ROWS, filled, segment, stored

from qwen3nb.models.cache import cache_limit
from qwen3nb.models.cache.cache_limit import LIMIT, shrink, total_bytes
from qwen3nb.models.cache.embedding_cache import EmbeddingCache
from qwen3nb.models.cache.segments import bytes_per_vector

SIZE = 300 * bytes_per_vector(64)  # of one model's vectors
DAY = 86_400


def unused(cache, days):
    """Make it look as if the vectors were last used some days ago."""
    for file in cache.folder.iterdir():
        os.utime(file, (time.time() - days * DAY,) * 2)
    return cache


def part(cache, start, end):
    return cache.put(dict(zip(KEYS[start:end], ROWS[start:end], strict=True)))


def test_the_least_recently_used_go_first(tmp_path, monkeypatch, caplog):
    oldest = unused(stored(tmp_path / "a"), days=9)
    older = unused(stored(tmp_path / "b"), days=12)
    assert filled(EmbeddingCache(older.folder))[0].all()  # so it was used just now
    newer = unused(stored(tmp_path / "c"), days=3)
    monkeypatch.setenv(LIMIT, str(int(3.2 * SIZE)))
    assert len(stored(tmp_path / "d")) == 300
    assert [len(each) for each in (oldest, older, newer)] == [0, 300, 300]
    assert total_bytes(tmp_path) <= 3.2 * SIZE
    assert not caplog.text


def test_a_run_does_not_displace_its_own_vectors(tmp_path, monkeypatch, caplog):
    other = unused(stored(tmp_path / "other"), days=1)
    monkeypatch.setenv(LIMIT, f"{SIZE}B")
    done = [part(EmbeddingCache(tmp_path / "x"), at, at + 20) for at in range(0, 300, 20)]
    assert all(done[:10])
    cache = EmbeddingCache(tmp_path / "x")
    with cache:
        for at in range(0, 300, 20):
            part(cache, at, at + 20)
    assert caplog.text.count("what this run uses fills the limit") >= 1
    assert "QWEN3NB_CACHE_LIMIT, --cache-limit" in caplog.text
    assert len(other) == 0
    assert total_bytes(tmp_path) <= SIZE
    hits, target = filled(EmbeddingCache(tmp_path / "x"))
    assert hits[:200].all()  # what was stored first serves the next run
    np.testing.assert_array_equal(target[hits], ROWS[hits])


def test_one_warning_when_the_limit_is_reached(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(LIMIT, str(SIZE // 2))
    cache = EmbeddingCache(tmp_path / "x")
    assert [part(cache, at, at + 10) for at in range(0, 300, 10)].count(False) > 10
    assert caplog.text.count("cannot store vectors") == 1
    assert total_bytes(tmp_path) <= SIZE // 2


def test_a_limit_makes_smaller_segments_which_go_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, str(2 * SIZE))
    cache = EmbeddingCache(tmp_path / "x")
    for at in range(0, 300, 10):
        assert part(cache, at, at + 10)
    segments = sorted((tmp_path / "x").glob("*.vectors"), key=lambda file: file.stat().st_mtime_ns)
    assert len(segments) >= 7
    unused(cache, days=1)
    os.utime(segments[0])
    left = shrink(tmp_path, to=SIZE // 2)
    assert SIZE // 3 < left <= SIZE // 2
    assert segments[0].exists()
    assert total_bytes(tmp_path) == left


def test_what_is_being_written_stays(tmp_path):
    with EmbeddingCache(tmp_path / "x") as cache:
        assert part(cache, 0, 100)
        unused(cache, days=9)
        shrink(tmp_path, to=0)
        assert part(cache, 100, 300)
    assert filled(EmbeddingCache(tmp_path / "x"))[0].all()
    assert shrink(tmp_path, to=0) == 0


def test_vectors_that_were_removed_are_stored_again(tmp_path):
    """A person may remove a file while a process has it open."""
    with EmbeddingCache(tmp_path / "x") as cache:
        assert part(cache, 0, 100)
        segment(cache).unlink()
        assert part(cache, 100, 300)
        assert filled(EmbeddingCache(tmp_path / "x"))[0].sum() == 200


def test_the_disk_is_not_filled(tmp_path, monkeypatch, caplog):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, 10**9 + 10_000))
    cache = EmbeddingCache(tmp_path / "x")
    assert part(cache, 0, 10)
    assert not part(cache, 10, 300)
    assert not part(cache, 10, 20)
    assert caplog.text.count("the disk is nearly full: 1.00 GB are free") == 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 10**8))
    assert part(EmbeddingCache(tmp_path / "x"), 10, 300)  # a small disk keeps a share free


@pytest.mark.parametrize("text", ["5 apples", "GB", "-1GB", "1e9"])
def test_a_size_that_is_none_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(ValueError, match="QWEN3NB_CACHE_LIMIT: expected a size such as 500MB"):
        EmbeddingCache(tmp_path / "x")


def test_commands_take_the_limit(cli, tmp_path, monkeypatch):
    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    seen = []
    real = cache_limit._limit
    monkeypatch.setattr(cache_limit, "_limit", lambda: seen.append(real()))
    texts, output = tmp_path / "t.jsonl", tmp_path / "v.npy"
    texts.write_text('{"text": "one"}\n')
    options = ("--model", "random", "--input", texts, "--output", output)
    done = cli("encode", *options, "--cache-limit", "1.5GB")
    assert done.exit_code == 0, done.output
    assert seen == [1_500_000_000]
    assert LIMIT not in os.environ
    wrong = cli("encode", *options, "--cache-limit", "much")
    assert "expected a size such as 500MB, 50GB or 1.5TB; got 'much'" in wrong.output
    monkeypatch.setenv("QWEN3NB_HOME", str(REPOSITORY))
    for command in (["eval"], ["run", "leaderboard"], ["sweep"], ["quick"]):
        assert "--cache-limit SIZE" in cli(*command, "--help").output
