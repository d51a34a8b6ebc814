"""Vectors that are read several times are the same in memory and in a file."""

import os

import numpy as np
import pytest

from qwen3nb.models.load import load_encoder
from qwen3nb.vectors import encode_file
from qwen3nb.vectors.block_file import (
    read_blocks,
    read_manifest_fields,
    write_manifest_fields,
)
from qwen3nb.vectors.vector_store import stored_vectors

DOCUMENTS = [f"document {n % 17}" for n in range(40)] + [""]


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    return load_encoder("random:24", cache=False, show_progress=False)


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_stored_vectors_are_the_same_in_memory_and_in_a_file(encoder, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(encode_file, "_MOST", 7)
    expected = encoder.encode(DOCUMENTS)
    with stored_vectors(encoder, iter(DOCUMENTS), total=41, limit=limit) as store:
        assert (store.shape, len(store)) == ((41, 24), 41)
        for size in (1, 10, 99):
            np.testing.assert_array_equal(np.concatenate(list(store.blocks(size))), expected)
        order = np.array([40, 3, 3, 0])
        np.testing.assert_array_equal(store.everything(), expected)
        half = store.mapped(lambda part: part[:, :12] / 2)
        np.testing.assert_array_equal(half.rows(order), expected[order, :12] / 2)
        # The file has no name, so that nothing can stay behind.
        assert [*tmp_path.rglob("*.*")] == []
        assert (tmp_path / "cache").exists() == (limit == 0)
    for total in (40, 42):
        store = stored_vectors(encoder, iter(DOCUMENTS), total=total, limit=limit)
        with pytest.raises(ValueError, match=f"expected {total} texts; got 41"), store:
            pass


def test_a_file_that_is_cut_is_refused_by_name_also_while_it_is_read(tmp_path):
    file, rows = tmp_path / "x.npy", np.arange(15, dtype=np.float32).reshape(5, 3)
    np.save(file, rows)
    np.testing.assert_array_equal(np.concatenate(list(read_blocks(file, 2))), rows)
    blocks, message = read_blocks(file, 2), "x.npy is truncated: expected 5 rows of 3 float32"
    np.testing.assert_array_equal(next(blocks), rows[:2])
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(ValueError, match=message):
        list(blocks)
    with pytest.raises(ValueError, match=message):  # before any row is given
        next(read_blocks(file, 2))


def test_a_manifest_that_is_there_stays_unless_it_may_be_replaced(tmp_path):
    file = tmp_path / "plan.json"
    for number, replace in ((1, False), (2, False), (3, True)):
        write_manifest_fields(file, {"number": number}, replace=replace)
        assert read_manifest_fields(file) == {"number": 3 if replace else 1}
