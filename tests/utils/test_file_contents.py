"""A secret is found in files of any kind, where they can be unpacked."""

import gzip
import io
import lzma
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from qwen3nb.utils import file_contents
from qwen3nb.utils.secrets import secret_files

HIDDEN = "a1B2c3D4e5F6g7"


def packed_text(name, text):
    """A PNG image that has only a text."""
    content = b"key\0" + name + text
    chunk = struct.pack(">I4s", len(content), b"zTXt") + content + b"\0" * 4
    return b"\x89PNG\r\n\x1a\n" + chunk


def arrays():
    stream = io.BytesIO()
    np.savez_compressed(stream, text=np.array([HIDDEN, "x" * 99]))
    return stream.getvalue()


def table():
    stream = io.BytesIO()
    rows = [{"q": {"texts": ["a", f"it is {HIDDEN}, or"]}, "n": 1}]
    parquet.write_table(pa.Table.from_pylist(rows), stream, compression="zstd")
    return stream.getvalue()


def member():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", f"here {HIDDEN}")
    return stream.getvalue()


BINARY = {
    "a.bin": b"\0\xff" + HIDDEN.encode() + b"\xfe",
    "wide.bin": HIDDEN.encode("utf-16"),
    "hex.dat": HIDDEN.encode().hex().encode(),
    "far.bin": bytes(3 << 20) + HIDDEN.encode(),
    "vectors.npz": arrays(),
    "t.parquet": table(),
    "t.zip": member(),
    "t.gz": gzip.compress(b"a" + HIDDEN.encode()),
    "t.xz": lzma.compress(b"a" + HIDDEN.encode()),
    "picture.png": packed_text(b"\0", zlib.compress(HIDDEN.encode())),
    "plain.png": packed_text(b"", HIDDEN.encode()),
}


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", HIDDEN)


@pytest.mark.parametrize("name", BINARY)
def test_a_secret_in_a_file_of_any_kind_is_found(name, monkeypatch, tmp_path):
    (tmp_path / name).write_bytes(BINARY[name])
    assert secret_files(tmp_path) == [(name, ["the value of MY_TOKEN"])]
    monkeypatch.setenv("MY_TOKEN", "another-one-1234")
    assert secret_files(tmp_path) == []


@pytest.mark.parametrize("name", ["t.zip", "t.gz", "t.xz", "t.parquet", "vectors.npz", "a.png"])
def test_a_damaged_file_is_looked_at_as_far_as_it_goes(name, tmp_path):
    content = BINARY.get(name, BINARY["picture.png"])
    for length in range(0, len(content), 7):
        (tmp_path / name).write_bytes(content[:length])
        secret_files(tmp_path)


def test_a_secret_across_two_blocks_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(file_contents, "_BLOCK", 16)
    (tmp_path / "a.bin").write_bytes(b"x" * 9 + HIDDEN.encode() + b"x" * 99)
    assert len(secret_files(tmp_path)) == 1


def test_of_a_bomb_a_gibibyte_at_most_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(file_contents, "_MOST_UNPACKED", 1 << 20)
    monkeypatch.setattr(file_contents, "_BLOCK", 1 << 16)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1 << 24) + HIDDEN.encode()))
    assert sum(map(len, file_contents.contents(tmp_path / "a.gz"))) < 3 << 20
