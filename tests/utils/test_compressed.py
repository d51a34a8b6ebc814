"""Gzip files as programs write them, and those that are made to take hours."""

import gzip
import random
import zlib

import pytest

from qwen3nb.utils.compressed import open_unpacked

NAMED = b"\x1f\x8b\x08\x08\0\0\0\0\0\3"  # a header that is followed by a name


def content_of(file):
    """Return what a file unpacks to."""
    with open_unpacked(file, ".gz") as stream:
        return stream.read()


def test_every_gzip_file_is_read_as_by_the_standard_library(tmp_path):
    file = tmp_path / "a.gz"
    text = random.Random(1).randbytes(300_000)
    one, two = gzip.compress(text), gzip.compress(b"two\nlines\n")
    middle = gzip.compress(b"")
    for packed in (
        b"",
        middle,
        one,
        one + two,
        two + middle + one,
        one + b"\0" * 50_000,
        two * 999,
    ):
        file.write_bytes(packed)
        assert content_of(file) == gzip.decompress(packed)
    with open_unpacked(file, ".gz") as stream:
        assert [line for _, line in zip(range(3), stream, strict=False)] == [
            b"two\n",
            b"lines\n",
            b"two\n",
        ]


@pytest.mark.parametrize(
    ("packed", "error", "message"),
    [
        (gzip.compress(b"text")[:-3], EOFError, "ended before the end-of-stream marker"),
        (gzip.compress(b"text")[:5], EOFError, "ended before the end-of-stream marker"),
        (gzip.compress(b"text") + b"garbage", gzip.BadGzipFile, "incorrect header"),
        (b"plain", gzip.BadGzipFile, "Not a gzipped file"),
        (gzip.compress(b"text")[:-8] + b"\0" * 8, gzip.BadGzipFile, "incorrect data check"),
        (gzip.compress(b"") * 400_000, gzip.BadGzipFile, "more than 1,000 of its parts are empty"),
        (NAMED + b"n" * 60_000_000, EOFError, "ended before the end-of-stream marker"),
    ],
    ids=["cut", "cut header", "garbage", "plain", "sum", "empty parts", "long name"],
)
def test_a_damaged_or_hostile_gzip_file_is_refused_at_once(tmp_path, packed, error, message):
    file = tmp_path / "a.gz"
    file.write_bytes(packed)
    with pytest.raises(error, match=message):
        content_of(file)


def test_a_text_of_high_compression_is_unpacked_in_small_parts(tmp_path):
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(bytes(1 << 24)))
    with open_unpacked(file, ".gz") as stream:
        parts = iter(lambda: stream.read(1 << 20), b"")
        assert sum(map(len, parts)) == 1 << 24
    assert zlib.crc32(content_of(file)) == zlib.crc32(bytes(1 << 24))
