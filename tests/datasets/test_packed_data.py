"""Packed files that unpack to far more than they have, and those that everybody has."""

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qwen3nb.datasets.mirror import MirrorError, load_data, local_data
from qwen3nb.datasets.packed_data import refuse_too_large
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.mteb.select import choose_tasks

ZEROS = bytes(17 << 20)  # one MiB above what any file may unpack to
ROWS = b"\n".join(b'{"text": "row %d"}' % number for number in range(10_000))


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tar(content, *, size=None, holes=False):
    """A tar of one file; with ``holes``, as GNU tar writes a file of ``size`` bytes of them."""
    member = tarfile.TarInfo("a.jsonl")
    member.size = len(content)
    if holes:
        member.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "a.jsonl",
            "GNU.sparse.realsize": str(size),
        }
        content = b"0\n".ljust(512, b"\0")  # no part of the file is written
        member.size = len(content)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def table(texts, **options):
    out = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), out, **options)
    return out.getvalue()


def arrow(values, *, new=pa.ipc.new_stream, compression="zstd"):
    rows = pa.table({"text": values})
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(out, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return out.getvalue()


TOO_LARGE = {
    "a.jsonl.gz": gzip.compress(ZEROS),
    "two-parts.jsonl": gzip.compress(ZEROS[: 9 << 20]) * 2,
    "a.jsonl.bz2": bz2.compress(ZEROS),
    "a.jsonl.xz": lzma.compress(ZEROS),
    "a.csv.zst": pa.compress(ZEROS, codec="zstd", asbytes=True),
    "a.zip": zipped({"a.jsonl": ZEROS}),
    "many.zip": zipped({f"{number}.jsonl": b"" for number in range(10_001)}),
    "no-suffix": zipped({"a.jsonl": ZEROS}),
    "text-and.zip": b"text\n" + zipped({"a.jsonl": ZEROS}),
    "holes.tar": tar(b"", size=1 << 40, holes=True),
    "holes.tar.gz": gzip.compress(tar(b"", size=1 << 40, holes=True)),
    "one-text.parquet": table(["x" * 20_000] * 1000),
    "nothing.parquet": table([None] * (17 << 20)),
    "stream.arrow": arrow(["x" * 20_000] * 1000),
    "file.arrow": arrow(["x" * 20_000] * 1000, new=pa.ipc.new_file),
    "one-text.arrow": arrow(pa.array(["x" * 20_000] * 1000).dictionary_encode()),
    "plain.parquet": table(["x" * 20_000] * 1000, use_dictionary=False, compression="zstd"),
}
HONEST = {
    "a.jsonl": ROWS,
    "a.jsonl.gz": gzip.compress(ROWS),
    "a.jsonl.bz2": bz2.compress(ROWS),
    "a.zip": zipped({"a.jsonl": ROWS}),
    "a.tar": tar(ROWS),
    "a.parquet": table(ROWS.decode().splitlines()),
    "small.gz": gzip.compress(ZEROS[: 15 << 20]),
    "empty": b"",
    "as-many-as-may.zip": zipped({f"{number}.jsonl": b"" for number in range(10_000)}),
    "a.arrow": arrow(ROWS.decode().splitlines()),
    "plain.arrow": arrow(ROWS.decode().splitlines(), compression=None),
    "a.tar.gz": gzip.compress(tar(ROWS)),
    "no.tar": b"text",
    "no.zip": b"PK\3\4 text",
}
PACKED_TWICE = {
    "a.csv.gz.gz": gzip.compress(gzip.compress(ROWS)),
    "a.csv": gzip.compress(bz2.compress(ROWS)),
    "zip.gz": gzip.compress(zipped({"a.csv": ROWS})),
    "gz.zip": zipped({"a.csv.gz": gzip.compress(ROWS)}),
    "by-name.zip": zipped({"a.jsonl": ROWS, "a.csv.xz": lzma.compress(ROWS, lzma.FORMAT_ALONE)}),
    "by-content.zip": zipped({"a.csv": gzip.compress(ROWS)}),
    "zip.zip": zipped({"a": zipped({"a.csv": ROWS})}),
    "tar.zip": zipped({"a": tar(ROWS)}),
    "gz.tar": tar(gzip.compress(ROWS)),
}
DAMAGED = {
    "cut.jsonl.gz": gzip.compress(ROWS)[:-20],
    "no.jsonl.gz": ROWS,
    "empty-parts.gz": gzip.compress(b"") * 1001 + gzip.compress(ZEROS),
    "changed.zip": zipped({"a.jsonl": ROWS}).replace(b"PK\3\4", b"PK\3\5"),
    "cut.parquet": table(ROWS.decode().splitlines())[:-20],
    "cut.arrow": arrow(ROWS.decode().splitlines())[:-2000],
    "no.arrow": b"text",
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_file_that_unpacks_to_too_much_is_refused(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(TOO_LARGE[name])
    assert file.stat().st_size < 2 << 20
    with pytest.raises(DataError, match=f"{re.escape(name)}: .* (unpacks to|has) more than"):
        refuse_too_large(file)


@pytest.mark.parametrize("name", PACKED_TWICE)
def test_what_is_packed_in_a_packed_file_is_refused(name, tmp_path):
    (tmp_path / name).write_bytes(PACKED_TWICE[name])
    with pytest.raises(DataError, match="packed twice|which is packed, too"):
        refuse_too_large(tmp_path / name)


@pytest.mark.parametrize("name", DAMAGED)
def test_what_cannot_be_unpacked_is_named(name, tmp_path):
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(DataError, match=f"{re.escape(name)}: cannot be unpacked .*; fetch it"):
        refuse_too_large(tmp_path / name)


def test_a_batch_of_arrow_is_not_unpacked_beyond_the_limit(tmp_path):
    """It has nearly 2 GiB, which the process that reads it may not use."""
    file = tmp_path / "a.arrow"
    file.write_bytes(arrow(pa.array(["x" * (1 << 26)] * 31)))
    with pytest.raises(DataError, match="it needs more than"):
        refuse_too_large(file)


@pytest.mark.parametrize("name", HONEST)
def test_other_files_pass(name, tmp_path):
    file = tmp_path / name
    file.write_bytes(HONEST[name])
    refuse_too_large(file)


def test_the_limit_is_200_times_the_size_and_can_be_raised(tmp_path, monkeypatch):
    file = tmp_path / "a.gz"
    content = gzip.compress(ZEROS * 2)
    # Zeros may follow.
    padding = len(ZEROS) * 2 // 200 - len(content)
    file.write_bytes(content + bytes(padding))
    with pytest.raises(DataError, match="200 times"):
        refuse_too_large(file)
    file.write_bytes(content + bytes(padding + 1))
    refuse_too_large(file)
    file.write_bytes(content)
    monkeypatch.setenv("QWEN3NB_READ_LIMIT", "40MB")
    refuse_too_large(file)


def test_pages_that_state_other_sizes_are_refused(tmp_path):
    content = table(["x"], use_dictionary=False, compression="none")
    file = tmp_path / "a.parquet"
    file.write_bytes(content[:4] + b"\xff" + content[5:])  # of the first page's header
    with pytest.raises(DataError, match="cannot be unpacked .*page"):
        refuse_too_large(file)


@pytest.mark.integration
def test_a_task_whose_copy_would_fill_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path))
    folder = tmp_path / "mteb" / "stsbenchmark-sts"
    folder.mkdir(parents=True)
    row = {"sentence1": "x" * (17 << 20), "sentence2": "b", "score": 1.0}
    (folder / "test.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    (task,) = choose_tasks(tasks=["STSBenchmark"])
    with local_data(task), pytest.raises(MirrorError, match="STSBenchmark: .*test.jsonl.gz: "):
        load_data(task)
