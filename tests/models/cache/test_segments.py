"""The files of the embedding cache, against a dictionary."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.cache import segments
from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.cache.segments import find_segments

COUNT = 60
KEYS = [text_key(str(i)) for i in range(COUNT)]
ROWS = np.random.default_rng(0).standard_normal((COUNT, 3), dtype=np.float32)

texts = st.lists(st.integers(0, COUNT - 1), max_size=25, unique=True)
file, at = st.integers(0, 9), st.integers(0, 10_000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 1), texts),
        st.tuples(st.just("fill"), st.integers(0, 1), texts),
        st.tuples(st.just("begin"), st.integers(0, 1), st.none()),
        st.tuples(st.just("end"), st.integers(0, 1), st.none()),
        st.tuples(st.just("torn"), file, at),
        st.tuples(st.just("cut index"), file, at),
        st.tuples(st.just("flip index"), file, at),
        st.tuples(st.just("flip"), file, at),
    ),
    max_size=25,
)


def harm(folder, what, number, at):
    """Leave a file as a kill, a power failure or a bad disk may; return whether rows may go."""
    there = list(find_segments(folder))
    if not there:
        return False
    name = there[number % len(there)]
    if what == "torn":  # a row of which only the beginning was written
        with name.open("ab") as handle:
            handle.write(os.urandom(at % 47 + 1))
        return False
    target = name if what == "flip" else name.with_suffix(".index")
    if not target.is_file() or not (data := bytearray(target.read_bytes())):
        return False
    if what == "cut index":
        os.truncate(target, at % len(data))
    else:
        data[at % len(data)] ^= at % 255 + 1
        target.write_bytes(data)
    return what != "cut index"


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_what_is_served_is_what_was_stored(steps):
    """Rows may only be missing, and only after damage; never wrong, nor served unstored."""
    known, intact = set(), True
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "MOST_ROWS", 16)
        patch.setattr(segments, "_RUNS", 2)
        patch.setattr("os.fsync", lambda _: None)
        folder = Path(name) / "x"
        pair = [EmbeddingCache(folder), EmbeddingCache(folder)]
        for what, number, value in steps:
            if what == "put":
                assert pair[number].put({KEYS[i]: ROWS[i] for i in value})
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
    np.testing.assert_array_equal(target[hits], ROWS[wanted][hits])
    assert np.isnan(target[~hits]).all()
    if intact:
        assert hits.tolist() == [i in known for i in wanted]


def test_where_files_cannot_be_locked_each_process_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "lock", lambda _: None)
    first, second = EmbeddingCache(tmp_path / "x"), EmbeddingCache(tmp_path / "x")
    for i in range(10):
        assert first.put({KEYS[i]: ROWS[i]})
        assert second.put({KEYS[i + 10]: ROWS[i + 10]})
    assert len(find_segments(tmp_path / "x")) == 2
    check(EmbeddingCache(tmp_path / "x"), range(20), set(range(20)), intact=True)


def test_another_machines_segment_is_read_and_not_written(tmp_path, monkeypatch):
    assert EmbeddingCache(tmp_path / "x").put({KEYS[0]: ROWS[0]})
    (theirs,) = find_segments(tmp_path / "x")
    before = theirs.read_bytes()
    monkeypatch.setattr(segments, "_machine", lambda: "0123abcd")
    assert EmbeddingCache(tmp_path / "x").put({KEYS[1]: ROWS[1]})
    assert theirs.read_bytes() == before
    assert len(find_segments(tmp_path / "x")) == 2
    check(EmbeddingCache(tmp_path / "x"), [0, 1, 2], {0, 1}, intact=True)


def test_a_put_of_more_than_a_segment_holds_is_split(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_ROWS", 16)
    assert EmbeddingCache(tmp_path / "x").put(dict(zip(KEYS, ROWS, strict=True)))
    assert len(find_segments(tmp_path / "x")) == 4
    check(EmbeddingCache(tmp_path / "x"), range(COUNT), set(range(COUNT)), intact=True)
