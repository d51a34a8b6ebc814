"""The embedding cache: damage, kills, full disks, two processes, its limit and its commands."""

import errno
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from helpers import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.bm25 import kept_index
from qwen3nb.models.search.words import ENGLISH_WORDS
from qwen3nb.vectors import block_file
from qwen3nb.vectors import cache as cache_module
from qwen3nb.vectors.cache import (
    LIMIT,
    EmbeddingCache,
    bytes_per_vector,
    find_segments,
    list_caches,
    shrink,
    text_key,
    verify_cache,
)

KEYS = [text_key(str(i)) for i in range(300)]
ROWS = np.random.default_rng(0).standard_normal((300, 64), dtype=np.float32)
SIZE = 300 * bytes_per_vector(64)  # of one model's vectors
DAY = 86_400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of an empty embedding cache."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "embeddings"


def put(cache, rows=range(300)):
    """Store some of the 300 random vectors; return whether that worked."""
    return cache.put({KEYS[row]: ROWS[row] for row in rows})


def stored(folder, **options):
    """A cache that holds all of them."""
    cache = EmbeddingCache(folder, **options)
    assert put(cache)
    return cache


def filled(cache, keys=KEYS):
    """Which keys are there, and their vectors; NaN for the others."""
    target = np.full((len(keys), ROWS.shape[1]), np.nan, dtype=np.float32)
    return cache.fill(keys, target), target


def segment(cache):
    """The only segment of a cache."""
    (file,) = cache.folder.glob("*.npy")
    return file


def total_bytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def assert_all_there(folder, keys=KEYS, rows=ROWS):
    hits, target = filled(EmbeddingCache(folder), keys)
    assert hits.all()
    np.testing.assert_array_equal(target, rows)


def test_dimensions_are_kept_apart(tmp_path):
    cache = stored(tmp_path / "x")
    shorter = np.empty((300, 32), dtype=np.float32)
    assert not cache.fill(KEYS, shorter).any()
    assert cache.put({KEYS[0]: ROWS[0, :32]})
    assert np.flatnonzero(cache.fill(KEYS, shorter)).tolist() == [0]
    np.testing.assert_array_equal(shorter[0], ROWS[0, :32])
    assert filled(cache)[0].all()
    assert total_bytes(tmp_path) == SIZE + 128 + bytes_per_vector(32) + 128
    whole = max(cache.folder.glob("*.npy"), key=lambda file: file.stat().st_size)
    np.testing.assert_array_equal(np.load(whole), ROWS)  # a file like others


@pytest.mark.parametrize("suffix", [".npy", ".keys"])
@pytest.mark.parametrize("lost", [True, False])
def test_lost_files_and_those_of_another_model_lose_only_vectors_which_are_stored_again(
    tmp_path, suffix, lost
):
    cache, other = stored(tmp_path / "x"), EmbeddingCache(tmp_path / "other")
    other.put(dict(zip(KEYS, ROWS[::-1], strict=True)))  # under the same keys
    file = segment(cache).with_suffix(suffix)
    file.unlink() if lost else shutil.copy(segment(other).with_suffix(suffix), file)
    assert not filled(EmbeddingCache(cache.folder))[0].any()
    assert put(EmbeddingCache(cache.folder))
    assert_all_there(cache.folder)


@pytest.mark.parametrize("text", ["{", '{"label": "foreign", "schema": 1, "check": "0"}'])
def test_a_damaged_or_foreign_manifest_is_written_again(tmp_path, text):
    """What the vectors are of is in their checksums, not in it."""
    cache = stored(tmp_path / "x", about={"label": "x"})
    good = cache.manifest.read_bytes()
    cache.manifest.write_text(text)
    again = EmbeddingCache(cache.folder, about={"label": "x"})
    assert filled(again)[0].all()
    again.touch()
    assert again.manifest.read_bytes() == good


COUNT = 60
FEW = np.random.default_rng(0).standard_normal((COUNT, 3), dtype=np.float32)
texts = st.lists(st.integers(0, COUNT - 1), max_size=25, unique=True)
HARMS = ("torn .npy", "torn .keys", "cut .keys", "flip .keys", "flip .npy")
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "fill"]), st.integers(0, 1), texts)
    | st.tuples(st.sampled_from(["begin", "end"]), st.integers(0, 1), st.none())
    | st.tuples(st.sampled_from(HARMS), st.integers(0, 9), st.integers(0, 10_000)),
    max_size=25,
)


def harm(folder, what, number, at):
    """Leave a file as a kill, a power failure or a bad disk may; return whether rows may go."""
    there = [each.file for each in find_segments(folder)]
    if not there:
        return False
    what, suffix = what.split()
    file = there[number % len(there)].with_suffix(suffix)
    data = bytearray(file.read_bytes())
    if what == "torn":  # a row of which only the beginning was written
        data += os.urandom(at % 35 + 1 if suffix == ".keys" else at % 11 + 1)
    elif data and what == "cut":
        data = data[: at % len(data)]
    elif data:
        data[at % len(data)] ^= at % 255 + 1
    file.write_bytes(data)
    return what != "torn"


@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_what_is_served_is_what_was_stored(steps):
    """Against a set: rows may only be missing after damage; never wrong, nor served unstored."""
    known, intact = set(), True
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "MOST_ROWS", 16)
        patch.setattr("os.fsync", lambda _: None)
        folder = Path(name) / "x"
        pair = [EmbeddingCache(folder), EmbeddingCache(folder)]
        for what, number, value in steps:
            if what == "put":
                assert pair[number].put({KEYS[i]: FEW[i] for i in value})
                known |= set(value)
            elif what == "fill":
                check(pair[number], value, known, intact=intact)
            elif what in ("begin", "end"):
                pair[number].__enter__() if what == "begin" else pair[number].__exit__()
            elif not any(cache._writer for cache in pair):  # what is open is not yet torn
                intact = not harm(folder, what, number, value) and intact
                pair = [EmbeddingCache(folder), EmbeddingCache(folder)]
        check(EmbeddingCache(folder), range(COUNT), known, intact=intact)
        for cache in pair:
            cache.__exit__()


def check(cache, wanted, known, *, intact):
    wanted = list(wanted)
    target = np.full((len(wanted), 3), np.nan, dtype=np.float32)
    hits = cache.fill([KEYS[i] for i in wanted], target)
    assert {i for i, hit in zip(wanted, hits, strict=True) if hit} <= known
    np.testing.assert_array_equal(target[hits], FEW[wanted][hits])
    assert np.isnan(target[~hits]).all()
    if intact:
        assert hits.tolist() == [i in known for i in wanted]


def test_who_may_continue_a_segment(tmp_path, monkeypatch):
    def count():
        return len(find_segments(tmp_path / "x"))

    with EmbeddingCache(tmp_path / "x") as first, EmbeddingCache(tmp_path / "x") as second:
        assert put(first, range(100))
        assert put(second, range(100, 200))
    assert count() == 2  # both were open at once
    assert put(EmbeddingCache(tmp_path / "x"), range(200, 250))
    assert count() == 2
    monkeypatch.setattr(cache_module, "lock", lambda _: None)  # a file system without locks
    with EmbeddingCache(tmp_path / "x") as third:
        assert put(third, range(250, 260))
        assert put(third, range(260, 270))
    assert count() == 3
    monkeypatch.undo()
    monkeypatch.setattr(cache_module, "_BOOT", tmp_path / "another machine")
    before = {each.file: each.file.read_bytes() for each in find_segments(tmp_path / "x")}
    assert put(EmbeddingCache(tmp_path / "x"), range(270, 300))
    assert count() == 4
    assert all(file.read_bytes() == data for file, data in before.items())
    assert_all_there(tmp_path / "x")


def test_a_full_disk_costs_no_run(folder, caplog, monkeypatch):
    """The kernel's own error, in the middle of a row: a file may not grow beyond so many bytes."""
    monkeypatch.setattr("qwen3nb.models.encoders.base._CHUNK", 50)
    texts = [f"text {i}" for i in range(1000)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
    try:
        vectors = load_encoder("random:256", show_progress=False).encode(texts)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    np.testing.assert_array_equal(vectors, load_encoder("random:256", cache=False).encode(texts))
    assert caplog.text.count("cannot store vectors") == 1
    assert "File too large" in caplog.text
    again = load_encoder("random:256", show_progress=False)
    np.testing.assert_array_equal(again.encode(texts), vectors)
    assert 400 <= again.stats.cached < 1000
    assert again.stats.damaged == 0


def test_a_read_only_cache_is_still_read(folder, caplog, monkeypatch):
    load_encoder("random", show_progress=False).encode(list(TEXTS))
    real = Path.open

    def read_only(file, mode="r", *rest, **options):
        if mode not in ("r", "rb"):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(file, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr("os.utime", lambda *_: read_only(folder, "w"))
    monkeypatch.setattr(cache_module, "_RECENT", -1.0)
    encoder = load_encoder("random", show_progress=False)
    encoder.encode([*TEXTS, "a new one"])
    encoder.encode(["another new one"])
    assert (encoder.stats.cached, encoder.stats.encoded) == (len(TEXTS), 2)
    assert caplog.text.count("cannot store vectors") == 1


WRITER = """
import sys, numpy as np
from pathlib import Path
from qwen3nb.vectors.cache import EmbeddingCache, text_key
with EmbeddingCache(Path(sys.argv[1]), about={"label": "writer"}) as cache:
    for i in range(100_000):
        done = cache.put({text_key(f"{sys.argv[2]}-{i}"): np.full(64, i, dtype=np.float32)})
        print(i if done else "lost", flush=True)
"""


def writer(file, name):
    command = [sys.executable, "-c", WRITER, str(file), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.integration
def test_kills_and_two_writers_cost_no_acknowledged_vector(tmp_path):
    file = tmp_path / "x"
    acknowledged = {}
    for round_ in range(3):
        names = [f"{name}{round_}" for name in "ab"]
        pair = [(name, writer(file, name)) for name in names]
        first = [[process.stdout.readline() for _ in range(5)] for _, process in pair]
        time.sleep(0.05 * round_)
        for (name, process), seen in zip(pair, first, strict=True):
            process.kill()
            with process.stdout as rest:
                seen += rest.read().splitlines()
            process.wait()
            assert "lost" not in seen
            # A truncated last line may name an earlier number, which is stored too.
            numbers = (int(line) for line in seen if line.strip().isdigit())
            acknowledged |= {text_key(f"{name}-{number}"): number for number in numbers}
    keys = list(acknowledged)
    vectors = np.empty((len(keys), 64), dtype=np.float32)
    assert EmbeddingCache(file).fill(keys, vectors).all()
    np.testing.assert_array_equal(vectors[:, 0], [acknowledged[key] for key in keys])
    assert (vectors == vectors[:, :1]).all()
    (cache,) = list_caches(tmp_path)
    assert verify_cache(cache) == (len(EmbeddingCache(file)), [])
    # Each process took over what the one before left: no more segments than writers at once.
    assert len(find_segments(file)) == 2


def test_the_vectors_of_all_segments_are_verified(tmp_path):
    first = stored(tmp_path / "x")
    put(EmbeddingCache(tmp_path / "x"), rows=range(100))
    (cache,) = list_caches(tmp_path)
    segments = find_segments(first.folder)
    rows = sum(len(segment) for segment in segments)
    assert verify_cache(cache) == (rows, [])
    # One bit of the last row of a segment.
    content = bytearray(segments[0].file.read_bytes())
    content[-1] ^= 1
    segments[0].file.write_bytes(content)
    intact, problems = verify_cache(cache)
    assert intact == rows - 1
    assert [problem.split(" vectors")[0] for problem in problems] == [f"{segments[0].file.name}: 1"]


def test_a_segment_without_rows_has_no_sound_ones(tmp_path):
    (segment,) = find_segments(stored(tmp_path / "x").folder)
    segment.keys_file.write_bytes(b"")
    (empty,) = find_segments(tmp_path / "x")
    assert (len(empty), empty.sound()) == (0, 0)


def test_a_second_run_reads_the_cache_of_the_same_model_and_prompt_only(encoder_folder, folder):
    vectors = load_encoder(encoder_folder).encode(list(TEXTS))
    second = load_encoder(encoder_folder)
    np.testing.assert_array_equal(second.encode([*TEXTS, "new", "new"])[:4], vectors)
    assert (second.stats.texts, second.stats.encoded, second.stats.cached) == (6, 1, 4)
    for options in ({"pooling": "last"}, {"prompts": {"query": "query: "}}):
        other = load_encoder(encoder_folder, **options)
        other.encode(list(TEXTS), role="query")
        assert other.stats.cached == 0
    shutil.rmtree(folder)  # in use, which costs no run
    np.testing.assert_array_equal(second.encode(list(TEXTS)), vectors)
    assert second.stats.encoded == 1 + len(TEXTS)


def unused(cache, days):
    """Make it look as if the vectors were last used some days ago."""
    for file in cache.folder.iterdir():
        os.utime(file, (time.time() - days * DAY,) * 2)
    return cache


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


def test_what_is_left_after_removing_is_counted_with_its_keys(tmp_path):
    unused(stored(tmp_path / "a"), days=9)
    stored(tmp_path / "b")
    assert shrink(tmp_path, to=int(1.5 * SIZE)) == total_bytes(tmp_path) < 1.1 * SIZE


def test_the_default_limit_is_half_of_what_is_free_or_has_vectors(tmp_path, monkeypatch, caplog):
    other = unused(stored(tmp_path / "other"), days=1)
    held, usage = total_bytes(tmp_path), namedtuple("usage", "total used free")
    monkeypatch.setattr(cache_module, "RESERVE", 0)
    for free, limit in ((3 * held, 2 * held), (held // 2, held * 3 // 4)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage(0, 0, free))
        assert cache_module.cache_limit(tmp_path) == limit
        assert EmbeddingCache(tmp_path / "x").limit == limit
    assert put(EmbeddingCache(tmp_path / "x"), range(10))
    assert len(other) == 0  # it alone was over the limit
    assert not caplog.text


def test_vectors_in_float16_take_half_the_disk(tmp_path):
    cache = stored(tmp_path / "x", half=True)
    assert segment(cache).stat().st_size == 128 + 300 * 2 * 64
    assert np.load(segment(cache)).dtype == np.float16
    hits, target = filled(EmbeddingCache(tmp_path / "x", half=True))
    assert hits.all()
    np.testing.assert_array_equal(target, ROWS.astype(np.float16))
    file = segment(cache)
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert filled(EmbeddingCache(tmp_path / "x", half=True))[0].sum() == 299


def test_an_encoder_that_stores_float16_returns_it_stored_or_not(folder):
    plain = load_encoder("random:64", show_progress=False)
    half = load_encoder("random:64", cache_dtype="float16", show_progress=False)
    assert half.label == "random-64-float16-vectors"
    assert half.identity != plain.identity
    expected = plain.encode(list(TEXTS)).astype(np.float16)
    for _ in range(2):  # computed, then stored
        np.testing.assert_array_equal(half.encode(list(TEXTS)), expected)
    assert half.stats.cached == len(set(TEXTS))
    assert not np.array_equal(plain.encode(list(TEXTS)), expected)
    with pytest.raises(ValueError, match="float16"):
        load_encoder("random:64", cache_dtype="int8")


def test_a_run_does_not_displace_its_own_vectors(tmp_path, monkeypatch, caplog):
    other = unused(stored(tmp_path / "other"), days=1)
    monkeypatch.setenv(LIMIT, f"{SIZE}B")
    with EmbeddingCache(tmp_path / "x") as cache:
        done = [put(cache, range(at, at + 20)) for at in range(0, 300, 20)]
    assert all(done[:10])
    assert not done[-1]
    assert caplog.text.count("the vectors of this run fill the limit") == 1
    assert "QWEN3NB_CACHE_LIMIT, --cache-limit" in caplog.text
    assert len(other) == 0
    assert total_bytes(tmp_path) <= SIZE
    hits, target = filled(EmbeddingCache(tmp_path / "x"))
    assert hits[:200].all()  # what was stored first serves the next run
    np.testing.assert_array_equal(target[hits], ROWS[hits])


def test_what_is_being_written_stays_and_what_was_removed_is_stored_again(tmp_path):
    with EmbeddingCache(tmp_path / "x") as cache:
        assert put(cache, range(100))
        (tmp_path / "x" / "0-0-64.vectors").write_bytes(b"of an older release")
        unused(cache, days=9)
        assert shrink(tmp_path, to=0) == 100 * bytes_per_vector(64) + 128
        assert put(cache, range(100, 300))
    assert_all_there(tmp_path / "x")
    assert shrink(tmp_path, to=0) == 0
    with EmbeddingCache(tmp_path / "x") as cache:
        assert put(cache, range(100))
        segment(cache).unlink()  # by a person, while a process has it open
        assert put(cache, range(100, 300))
        assert filled(EmbeddingCache(tmp_path / "x"))[0].sum() == 200


def test_the_disk_is_not_filled(tmp_path, monkeypatch, caplog):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, 10**9 + 10_000))
    cache = EmbeddingCache(tmp_path / "x")
    assert put(cache, range(10))
    assert not put(cache, range(10, 300))
    assert not put(cache, range(10, 20))
    assert caplog.text.count("the disk is nearly full: 1.00 GB are free") == 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 0, 10**8))
    assert put(EmbeddingCache(tmp_path / "x"), range(10, 300))  # a small disk keeps a share free


def test_info_names_the_model_of_each_file(cli, folder):
    assert "0 models" in cli("cache", "info").output
    encoder = load_encoder("random:64", show_progress=False)
    encoder.encode(list(TEXTS))
    manifest = encoder.cache.manifest
    assert json.loads(manifest.read_text())["identity"] == encoder.identity
    assert "random-64  4 texts" in cli("cache", "info").output
    manifest.unlink()
    assert "unknown  4 texts" in cli("cache", "info").output
    manifest.write_text("{")
    assert "its description is damaged" in cli("cache", "info").output
    assert "(half of the free disk; --cache-limit)" in cli("cache", "info").output


def test_info_lists_indexes_of_bm25(cli, folder):
    texts = [f"word{i} common" for i in range(30)]
    settings = load_model("bm25").settings
    kept_index(lambda: texts, words=ENGLISH_WORDS, settings=settings)
    (index,) = (folder.parent / "bm25").iterdir()
    shown = cli("cache", "info").output
    assert f"index of BM25  30 documents  {total_bytes(index) / 1000:.1f} kB  {index}" in shown


def test_a_cache_whose_description_cannot_be_looked_at_stops_nothing(tmp_path, caplog):
    EmbeddingCache(tmp_path / ("x" * 300)).touch()
    assert "cannot store vectors" in caplog.text


def test_a_cache_whose_time_of_use_cannot_be_set_is_named_once(tmp_path, caplog, monkeypatch):
    folder = stored(tmp_path / "x", about={"label": "x"}).folder
    cache = EmbeddingCache(folder, about={"label": "x"})
    monkeypatch.setattr("os.utime", lambda *_: os.close(-1))  # an OSError
    for _ in range(2):
        cache.touch()
    assert caplog.text.count(f"{folder}: cannot store vectors") == 1
    assert filled(cache)[0].all()


def test_verify_finds_damaged_vectors(cli, folder, caplog):
    stored(folder / "good")
    bad = stored(folder / "bad")
    damaged = segment(bad)
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = cli("cache", "verify")
    assert done.exit_code == 1
    assert f"{damaged.name}: 1 vectors fail their checksum" in done.output
    assert "599 vectors; 1 problems" in done.output
    reader = EmbeddingCache(bad.folder)
    assert filled(reader)[0].sum() == 299
    assert reader.damaged == 1
    assert "1 damaged vectors will be computed again" in caplog.text


class Trickle(io.BytesIO):
    """A file that gives at most seven bytes a read, as a network disk may."""

    def readinto(self, target):
        return super().readinto(target[:7])


def test_rows_are_read_in_as_many_steps_as_it_takes():
    rows = np.zeros((4, 3), dtype=np.float32)
    assert block_file.fill(rows, Trickle(ROWS[:4, :3].tobytes()))
    np.testing.assert_array_equal(rows, ROWS[:4, :3])
    assert not block_file.fill(rows, Trickle(ROWS[:4, :3].tobytes()[:-1]))


def test_prune_removes_vectors_of_a_malformed_description(cli, folder):
    stored(folder / "bad")
    block_file.write_manifest_fields(
        folder / "bad" / "manifest.json", {"label": 5, "settings": 0.5}
    )
    assert "\n5  300 texts" in cli("cache", "info").output
    assert "kB freed" in cli("cache", "prune", "--to", "0").output
    assert not list(folder.iterdir())


def test_prune_removes_what_it_lists_and_nothing_else(cli, folder):
    for spec in ("random:64", "random:32"):
        load_encoder(spec, show_progress=False).encode(list(TEXTS))
    everything = sorted(folder.rglob("*"))
    assert "nothing was removed" in cli("cache", "prune", "--all", "--dry-run").output
    for wrong in ([], ["--all", "--to", "1GB"]):
        assert "expected --model LABEL, --to SIZE or --all" in cli("cache", "prune", *wrong).output
    assert sorted(folder.rglob("*")) == everything
    assert "kB freed" in cli("cache", "prune", "--model", "random-32").output
    (left,) = list_caches()
    assert (left.label, list(folder.iterdir())) == ("random-64", [left.path])
    assert "0 bytes freed" in cli("cache", "prune", "--to", "1GB").output
    assert "kB freed" in cli("cache", "prune", "--all").output
    assert not list(folder.iterdir())
