"""Texts planted in every usual form of training data are found; what is not read is an error."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import zipfile

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from qwen3nb.datasets.rows import DataError
from qwen3nb.datasets.training_data import find_training_data, source_texts
from qwen3nb.evaluation.contamination import Texts, look_up

# Few words, many words, other scripts, and a text that a separator would cut.
PLANTED = [
    "Sort a list in place",
    "Why one two three four five six seven eight nine ten eleven twelve thirteen fourteen?",
    "如何查找最大值",
    "Straße, Größe; Überblick | alle Wörter",
    'She said "no" twice',
]
ROWS = [{"id": str(number), "text": text} for number, text in enumerate(PLANTED)]
ABSENT = "Nobody ever wrote this sentence"


def found_in(*given):
    """The planted texts that are found, by a look-up of them and of an absent one."""
    queries = {text: text for text in (*PLANTED, ABSENT)}
    training = find_training_data(given)
    found = look_up(training, [Texts("T", "queries", queries.items)])[0]
    return set(found.hits), training


def lines(rows=ROWS):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def separated(mark):
    rows = [["id", "text"], *([row["id"], row["text"]] for row in ROWS)]
    file = io.StringIO()
    import csv

    csv.writer(file, delimiter=mark).writerows(rows)
    return file.getvalue().encode()


def written(write, *arguments, **options):
    file = io.BytesIO()
    write(*arguments, file, **options)
    return file.getvalue()


def parquet(table):
    return written(pq.write_table, table)


def arrow(table, *, stream):
    file = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def tar(files, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def packed(content, codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


TABLE = pa.Table.from_pylist(ROWS)
NESTED = pa.table(
    {
        "tokens": [[1, 2]] * len(ROWS),
        "messages": [[{"role": "user", "content": text}] for text in PLANTED],
        "more": pa.array([[("k", None)]] * len(ROWS), pa.map_(pa.string(), pa.string())),
    }
)
SAMPLES = {
    f"{number:06}.{end}": content
    for number, text in enumerate(PLANTED)
    for end, content in (
        ("json", json.dumps({"caption": text}).encode()),
        ("jpg", b"\xff\xd8\xff"),
    )
}
CHATS = [
    {"messages": [{"role": "user", "content": text}], "score": float("nan")} for text in PLANTED
]


def cues(start=""):
    """Subtitles in which each text goes over two cues."""
    halves = [
        half for text in PLANTED for half in (text[: text.find(" ", 5)], text[text.find(" ", 5) :])
    ]
    times = "00:00:{0:02},000 --> 00:00:{0:02},900 align:start"
    shown = [f"{n}\n{times.format(n)}\n{half.strip()}\n" for n, half in enumerate(halves, start=1)]
    return (start + "\n".join(shown)).encode()


def broken(text, mark="-\n"):
    """The text with a longer word broken at the end of a line."""
    return re.sub(r"(\w{2})(\w{2})", rf"\1{mark}\2", text, count=1)


FORMS = {
    "a.jsonl": lines(),
    "a.srt": cues(),
    "a.vtt": cues("WEBVTT\n\n"),
    "utf16.txt": "\r\n".join(PLANTED).encode("utf-16"),
    "utf16.jsonl": lines().decode().encode("utf-16"),
    "utf16be.csv": ("\ufeff" + separated(",").decode()).encode("utf-16-be"),
    "utf32.json": json.dumps(ROWS).encode("utf-32"),
    "utf16.txt.gz": gzip.compress("\n".join(PLANTED).encode("utf-16")),
    "utf16.corpus": "\n".join(PLANTED).encode("utf-16"),
    "utf16.zip": zipped({"a.txt": "\n".join(PLANTED).encode("utf-16")}),
    "broken.txt": "\n\n".join(map(broken, PLANTED)).encode(),
    "broken.jsonl": lines([{"text": broken(text, "-\n  ")} for text in PLANTED]),
    "mail.eml": "\n\n".join(broken(text, "=\n") for text in PLANTED).encode(),
    "shy.html": "".join(f"<p>{broken(text, '&shy;')}</p>\n" for text in PLANTED).encode(),
    "wbr.html": "".join(f"<p>{broken(text, '<wbr/>')}</p>\n" for text in PLANTED).encode(),
    "soft.jsonl": lines([{"text": broken(text, "\u00ad")} for text in PLANTED]),
    "softer.txt": "\n\n".join(broken(text, "\u00ad\n") for text in PLANTED).encode(),
    "hyphen.html": "".join(
        f"<p>{broken(text, '‐' + chr(10))}</p>\n\n" for text in PLANTED
    ).encode(),
    "a.ndjson": lines(),
    "lists.jsonl": lines([[text, "b"] for text in PLANTED]),
    "texts.jsonl": lines(PLANTED),
    "nan.jsonl": lines(CHATS),
    "keys.jsonl": lines([{text: ["d1"]} for text in PLANTED]),
    "bom.jsonl": b"\xef\xbb\xbf" + lines(),
    "a.json": json.dumps(ROWS).encode(),
    "nested.json": json.dumps({"data": {"rows": CHATS}}, indent=1).encode(),
    "lines.json": lines(),
    "a.csv": separated(","),
    "semicolon.csv": separated(";"),
    "a.tsv": separated("\t"),
    "a.txt": "\n".join(PLANTED).encode(),
    "crlf.txt": "\r\n".join(PLANTED).encode(),
    "wrapped.txt": "\n\n".join(text.replace(" ", "\n") for text in PLANTED).encode(),
    "a.md": "\n".join(PLANTED).encode(),
    "a.parquet": parquet(TABLE),
    "bytes.parquet": parquet(pa.table({"text": [text.encode() for text in PLANTED]})),
    "nested.parquet": parquet(NESTED),
    "large.parquet": parquet(pa.table({"text": pa.array(PLANTED, pa.large_string())})),
    "a.arrow": arrow(TABLE, stream=True),
    "file.arrow": arrow(NESTED, stream=False),
    "dictionary.arrow": arrow(
        pa.table({"text": pa.array(PLANTED).dictionary_encode()}), stream=True
    ),
    "view.arrow": arrow(pa.table({"text": pa.array(PLANTED, pa.string_view())}), stream=False),
    "a.feather": written(pyarrow.feather.write_feather, TABLE),
    "a.tar": tar(SAMPLES),
    "a.tgz": gzip.compress(tar(SAMPLES)),
    "a.tar.zst": packed(tar(SAMPLES), "zstd"),
    "parts.tar": tar({"x/a.parquet": parquet(TABLE), "x/README.md": b"# Data"}),
    "parts.zip": zipped({"a.jsonl.gz": gzip.compress(lines()), "b.txt": b"other"}),
    "a.jsonl.gz": gzip.compress(lines()),
    "a.jsonl.bz2": bz2.compress(lines()),
    "a.jsonl.xz": lzma.compress(lines()),
    "a.jsonl.zst": packed(lines(), "zstd"),
    "a.jsonl.lz4": packed(lines(), "lz4"),
    "a.csv.br": packed(separated(","), "brotli"),
    "a.parquet.gz": gzip.compress(parquet(TABLE)),
    "part-00000": lines(),
    "part-00001": gzip.compress("\n".join(PLANTED).encode()),
    "part-00002": parquet(TABLE),
    "words.jsonl": lines([{"tokens": text.split()} for text in PLANTED]),
    "words.parquet": parquet(pa.table({"tokens": [text.split() for text in PLANTED]})),
    "strings.jsonl": lines([{"row": json.dumps({"text": text})} for text in PLANTED]),
    "page.html": "".join(f"<p>{text[:7]}<b>{text[7:]}</b></p>\n" for text in PLANTED).encode(
        "ascii", "xmlcharrefreplace"
    ),
    "pages.jsonl": lines(
        [{"html": f"<i>{text[0]}</i>{text[1:].replace(' ', '&nbsp;')}<br>"} for text in PLANTED]
    ),
    ".cache/a.jsonl": lines(),
    "train.src": "\n".join(PLANTED).encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_planted_texts_are_found_in_every_form(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(FORMS[name])
    for given in (tmp_path, tmp_path / name):
        found, training = found_in(given)
        assert found == {*PLANTED}
        assert len(training.sources) == 1
        assert training.texts >= len(PLANTED)


@pytest.mark.parametrize("form", [pd.DataFrame, datasets.Dataset.from_list, list])
def test_planted_texts_are_found_in_tables_in_memory(form):
    assert found_in(form(ROWS))[0] == {*PLANTED}
    assert found_in(PLANTED)[0] == {*PLANTED}


def test_data_sets_of_the_library_are_read(tmp_path):
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / "splits")
    rows.to_parquet(str(tmp_path / "p/a.parquet"))
    loaded = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "p/a.parquet"), cache_dir=str(tmp_path / "cache")
    )["train"]
    loaded.shuffle(seed=0)  # caches row numbers beside the table
    for folder in ("saved", "splits", "cache"):
        found, training = found_in(tmp_path / folder)
        assert found == {*PLANTED}
        assert training.rows == len(PLANTED)
        assert training.about
    assert training.without_text == {"files of row numbers": 1}
    found, training = found_in(tmp_path / "saved")
    assert training.summary() == (
        "Read: 1 file, 5 rows, 10 texts. "
        "Not read: 2 about the data (dataset_info.json, state.json)."
    )


def test_the_cache_of_the_hub_is_read_once_and_links_are_followed(tmp_path):
    top = tmp_path / "datasets--org--name"
    blob = top / "blobs/0123456789abcdef"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(lines())
    named = top / "snapshots/rev/data"
    named.mkdir(parents=True)
    (named / "train.jsonl").symlink_to(blob)
    (top / "refs").mkdir()
    (top / "refs/main").write_text("rev")
    found, training = found_in(top)
    assert found == {*PLANTED}
    assert [source.name for source in training.sources] == ["train.jsonl"]
    # A folder that is a link, and one that leads back to itself.
    other = tmp_path / "other"
    other.mkdir()
    (other / "linked").symlink_to(named)
    (other / "loop").symlink_to(other)
    assert found_in(other)[0] == {*PLANTED}


BROKEN = packed(lines(), "zstd")[:-1]
TOKENS = pa.table({"input_ids": [[1, 2, 3]], "labels": [0]})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.bin", b"\0\1\2\xff" * 9, "data.bin"),
        ("data.pkl", b"\x80\x04\x95\0\0", "data.pkl"),
        ("data.npy", b"\x93NUMPY\x01\0", "data.npy"),
        ("data.sqlite", b"SQLite format 3\0", "data.sqlite"),
        ("data.7z", b"7z\xbc\xaf\x27\x1c", "data.7z"),
        ("cut.jsonl.zst", BROKEN, "cannot be read (Truncated compressed stream)"),
        ("cut.tar", tar(SAMPLES)[:700], "cannot be read"),
        ("bad.jsonl", b'{"a": "b"}\nnot json\n', "bad.jsonl:2: not JSON"),
        ("bad.json", b'[{"a": "b"}', "bad.json: not JSON"),
        ("bad.parquet", b"PAR1", "cannot be read"),
        ("bad.arrow", b"0", "cannot be read"),
        ("latin.txt", "Größe".encode("latin-1"), "not UTF-8"),
        ("no mark.txt", "\n".join(PLANTED[:2]).encode("utf-16-le"), "has NUL bytes"),
        ("no mark.jsonl", lines().decode().encode("utf-16-be"), "has NUL bytes"),
        ("cut.txt", "Größe".encode("utf-16")[:-1], "cannot be read"),
        ("tokens.parquet", parquet(TOKENS), "columns: input_ids (list<element: int64>), labels"),
        ("tokens.arrow", arrow(TOKENS, stream=True), "no column of texts"),
        ("tokens.jsonl", b'{"input_ids": [1, 2]}\n' * 3, "3 rows without a text"),
        ("a.tar", tar({"a.pyd": b"\x80\x04\x95\0"}), "a.tar:a.pyd: expected texts"),
        ("a.pdf", b"%PDF-1.4\nascii", "a.pdf"),
        ("a.xlsx", zipped({"[Content_Types].xml": b"<a/>"}), "an office document"),
        ("a.conll", b"a\tO\nb\tO\n", "has a word per line"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
    ],
)
def test_what_cannot_be_read_is_named_even_beside_what_can(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "good.jsonl").write_bytes(lines())
    for given in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=re.escape(message)):
            found_in(given)


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl: not there"),
        ("train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl: not there"),
        ("train-00002-of-00002.jsonl", "train-00001-of-00002.jsonl: not there"),
    ],
)
def test_parts_that_are_not_there_are_named(tmp_path, there, missing):
    (tmp_path / there).write_bytes(lines())
    with pytest.raises(DataError, match=missing):
        found_in(tmp_path)
    assert found_in(tmp_path / there)[0] == {*PLANTED}
    (tmp_path / missing.removesuffix(": not there")).write_bytes(lines())
    assert found_in(tmp_path)[0] == {*PLANTED}


def test_a_link_to_nothing_and_a_folder_that_cannot_be_listed_are_named(tmp_path, monkeypatch):
    (tmp_path / "good.jsonl").write_bytes(lines())
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"1 of 2 files are not read.*gone.jsonl: a link to"):
        found_in(tmp_path)
    (tmp_path / "gone.jsonl").unlink()
    (tmp_path / "closed").mkdir()
    listing = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"closed: Permission denied"):
        found_in(tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": b"# Data", "state.json": b"{}", "dataset_info.json": b"{}"},
        {"a.jpg": b"\xff\xd8"},
        {},
    ],
)
def test_files_about_data_are_no_data(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"expected training data in files of type \.jsonl"):
        find_training_data([tmp_path])


def test_empty_files_are_counted_and_do_not_clear_anything_alone(tmp_path):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="hold no text"):
        found_in(tmp_path)
    (tmp_path / "good.jsonl").write_bytes(lines())
    _, training = found_in(tmp_path)
    assert training.without_text == {"empty files": 1}


def test_bytes_that_are_no_text_are_counted(tmp_path):
    images = pa.table({"image": [b"\xff\xd8\xff", None], "text": ["a cat", "b"]})
    (tmp_path / "a.parquet").write_bytes(parquet(images))
    _, training = found_in(tmp_path)
    assert training.without_text == {"values of bytes that are no text": 1}


def test_places_are_lines_and_rows(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo three\nfour\n")
    training = find_training_data([tmp_path])
    numbered = [
        (number, text.split()) for number, text in source_texts(training.sources[0], training)
    ]
    assert numbered == [
        (1, ["one"]),
        (2, []),
        (3, ["two", "three"]),
        (4, ["four"]),
        (4, ["two", "three", "four"]),
    ]


def _not_unicode():
    """A table whose only text is not UTF-8."""
    column = pa.array([b"\xff"]).view(pa.string())
    return parquet(pa.table({"text": column}))


def _often(text, *, rows=1000):
    """A small table with a text a thousand times, in as many rows or in lists."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array([text]))
    if rows < 1000:
        lists = pa.ListArray.from_arrays(range(0, 1001, 1000 // rows), column)
        column = pa.StructArray.from_arrays([lists], names=["turns"])
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column}), file, compression="zstd")
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.jsonl", None, "no such file"),
        ("big.parquet", _often("x" * (17 << 20)), "big.parquet:1: a text of more than 16 MiB"),
        ("odd.parquet", _not_unicode(), "odd.parquet: cannot be read after row 0"),
        ("much.parquet", _often("x" * (1 << 20)), "much.parquet:17: unpacks to more than"),
        (
            "chats.parquet",
            _often("x" * (1 << 20), rows=100),
            "chats.parquet:2: unpacks to more than 16 MiB",
        ),
        ("bad.jsonl.gz", b"plain", "cannot be read"),
        ("bomb.txt.gz", gzip.compress((b"x" * (1 << 20) + b"\n") * 40), "unpacks to more than"),
        ("bomb.json.gz", gzip.compress(b"[" + b" " * (300 << 20)), "the line is longer than"),
    ],
)
def test_a_file_that_is_too_large_or_damaged_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        found_in(tmp_path / name)
