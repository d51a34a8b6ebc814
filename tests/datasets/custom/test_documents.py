import gzip
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import date, datetime

import duckdb
import pytest

from qwen3nb.datasets.custom import documents as sources
from qwen3nb.datasets.custom.documents import find_layout, read_documents
from qwen3nb.datasets.rows import DataError

STARS = find_layout("gh-star-search")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def test_the_same_rows_in_every_format_are_the_same_documents(tmp_path, write):
    rows = [("a", "one, “two”"), ("b", 'quo"te\nline'), ("7", "x")]
    lines = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows)
    cells = "\ufeffid,text\r\n" + "".join(f'{i},"{t.replace(chr(34), chr(34) * 2)}"\r\n'
                                          for i, t in rows)  # fmt: skip
    files = [
        write("d.jsonl", lines), write("d.jsonl.gz", gzip.compress(lines.encode())),
        write("d.csv", cells), write("d.csv.gz", gzip.compress(cells.encode())),
    ]  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "any.name")) as base, base:
        base.execute("CREATE TABLE docs (id TEXT, text TEXT)")
        base.executemany("INSERT INTO docs VALUES (?, ?)", rows)
    with closing(duckdb.connect(str(tmp_path / "other.name"))) as base:
        base.execute("CREATE TABLE docs (id TEXT, text TEXT)")
        base.executemany("INSERT INTO docs VALUES (?, ?)", rows)
    for file in [*files, tmp_path / "any.name", tmp_path / "other.name"]:
        assert dict(read_documents(file).texts) == dict(rows), file


GOOD = '{"id": "a", "text": "x"}\n'


MALFORMED_JSONL = [
    ("", "no documents"),
    (GOOD + '{"id": "b", "te', ":2: not JSON"),
    (GOOD + '["a"]\n', ":2: expected an object; got list"),
    (GOOD + '{"id": NaN, "text": "x"}\n', ":2: not JSON .NaN"),
    ("[" * 100_000 + "\n", ":1: not JSON"),
    (GOOD + "\n" + GOOD, ":3: duplicate id 'a', first at .*:1"),
    (GOOD + '{"text": "x"}\n', ":2: no field 'id'; fields: text"),
    ('{"id": "a", "body": "x"}\n', "no line has the field 'text'"),
    ('{"id": "b", "text": null}\n', "documents with a text; all are empty"),
    (GOOD + '{"id": "b", "text": 1.5}\n', ":2: field 'text' is float 1.5, expected a text"),
    (GOOD + '{"id": "b", "text": true}\n', ":2: field 'text' is bool"),
    (GOOD + '{"id": "b", "text": {"a": 1}}\n', ":2: field 'text' is dict"),
    (GOOD + '{"id": "b", "text": ["x", 1]}\n', ":2: field 'text' is list"),
    (GOOD + '{"id": "b", "text": "\\ud800"}\n', ":2: the text is not valid Unicode"),
    ('{"id": "\\ud800", "text": "x"}\n', ":1: .*id .* unprintable characters"),
    ('{"id": "a\\u0000", "text": "x"}\n', ":1: .*id .* unprintable"),
    ('{"id": "", "text": "x"}\n', ":1: field 'id': the id is ''"),
    ('{"id": null, "text": "x"}\n', ":1: field 'id': the id is None"),
    ('{"id": true, "text": "x"}\n', ":1: field 'id': the id is True"),
    (b"\xff\xfe\n", "cannot be read"),
    ("version https://git-lfs.github.com/spec/v1\n", ":1: not JSON"),
]


ROW = '{"id": "r", "name": "n", "purpose": "p", "note": "-"}\n'


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ('{"id": "s", "name": "n", "purpos": "p"}', ":3: no field 'purpose', but 'purpos'"),
        ('{"id": "s", "name": "n", "Purpose": "p"}', ":3: no field 'purpose', but 'Purpose'"),
        ('{"id": "s", "nmae": "n", "purpose": "p"}', ":3: no field 'name', but 'nmae'"),
        ('{"id": "s", "note": "-", "content": "p"}', ":3: no field 'name', but 'content'"),
        ('{"id": "s", "name": "n", "star": 3}', ":3: no field 'stars', but 'star'"),
        ('{"id": "s", "name": "n", "purpos\\u001b": "p"}', ":3: no field 'purpose', but 'purpos"),
        ('{"id": "s", "name": "n", "purpose": null}', None),
        ('{"id": "s", "name": "n", "note": "-"}', None),
        ('{"id": "s", "name": "n", "url": "x"}', None),  # one more key, and a part that is absent
        ('{"id": "s", "note": "-"}', None),
        ('{"id": "s"}', None),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_key_in_the_place_of_another_is_refused_with_its_line(write, odd, message, first):
    """Absent or null parts are fine; a part that is misspelt in one line is not an absent one."""
    layout = find_layout(text="{name}. {purpose}", stars="stars")
    rows = [ROW.replace('"r"', '"q"')[:-2] + ', "stars": 1}\n', ROW]
    rows.insert(0 if first else 2, odd + "\n")
    file = write("d.jsonl", "".join(rows))
    if message is None:
        assert len(read_documents(file, layout).texts) == 3
        return
    with pytest.raises(DataError, match=message.replace(":3:", ":1:") if first else message) as got:
        read_documents(file, layout)
    assert str(got.value).isprintable()


def test_a_column_that_resembles_another_is_one_of_its_own(write):
    """Lines have ``title`` or not, whatever ``titles`` says."""
    rows = [{"id": "a", "title": "x", "titles": 2}, {"id": "b", "titles": 3, "text": "y"}]
    file = write("d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert dict(read_documents(file, find_layout(text="{title} {text}")).texts) == {
        "a": "x", "b": "y",
    }  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MALFORMED_JSONL)
def test_malformed_jsonl_is_refused_with_the_line(write, text, message):
    with pytest.raises(DataError, match=message):
        read_documents(write("d.jsonl", text))


MALFORMED_CSV = [
    ("id,name\na,x\n", ":1: no column 'text'; columns: id, name"),
    ("id,text,id\na,x,b\n", ":1: duplicate column 'id'"),
    ("id,text\na,x\nb,y,z\n", ":3: 3 cells, expected 2"),
    ("id,text\na,x\nb\n", ":3: 1 cells, expected 2"),
    ('id,text\na,"x\n', "invalid CSV"),
    ('id,text\na,"x"y\n', ":2: invalid CSV"),
    ("id,text\na,\n", "all are empty"),
    ("id,text\na,x\na,y\n", ":3: duplicate id 'a', first at .*:2"),
    ("id,text\n" + "a" * 200_000 + ",x\n", ":2: invalid CSV .*field larger"),
    ("id,text\n", "no documents"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED_CSV)
def test_malformed_csv_is_refused_with_the_line(write, text, message):
    with pytest.raises(DataError, match=message):
        read_documents(write("d.csv", text))


@pytest.mark.integration
def test_a_gzip_bomb_is_stopped_early_and_cheaply(write):
    """Blank lines packed a thousandfold; and a line that does not end."""
    bomb = write("d.jsonl.gz", gzip.compress(b"\n" * (64 << 20), 9))
    with pytest.raises(DataError, match="MiB unpacked from .* bytes"):
        read_documents(bomb)
    line = write("e.jsonl.gz", gzip.compress(b"x" * (32 << 20), 9))
    with pytest.raises(DataError, match=":1: .*longer than 16 MiB"):
        read_documents(line)


def test_broken_gzip_no_file_a_pipe_and_an_unknown_format_are_refused(write, tmp_path, monkeypatch):
    whole = gzip.compress(GOOD.encode() * 50)
    for name, content in (("cut.jsonl.gz", whole[:30]), ("no.jsonl.gz", b"text")):
        with pytest.raises(DataError, match="cannot be read"):
            read_documents(write(name, content))
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("nothing.jsonl", "pipe.jsonl"):
        with pytest.raises(DataError, match="no such file, or not a regular file"):
            read_documents(tmp_path / name)
    with pytest.raises(DataError, match="expected SQLite, DuckDB"):
        read_documents(write("d.txt", "x"))
    monkeypatch.setattr(sources, "MOST", 3)
    with pytest.raises(DataError, match="MiB"):
        read_documents(write("d.jsonl", GOOD))


def test_control_characters_are_not_shown(write):
    with pytest.raises(DataError) as error:
        read_documents(write("d.jsonl", '{"\\u001b[2J": 1}\n'))
    assert "\x1b" not in str(error.value)


def star_row(**changes):
    row = {"full_name": "a/b", "purpose": None, "description": "d", "topics_array": '["t", "u"]',
           "stargazers_count": 3, "updated_at": "2025-06-15 00:00:00", "content_hash": None,
           **changes}  # fmt: skip
    return json.dumps(row) + "\n"


def test_what_the_original_tool_crashes_on_is_read(write):
    documents = read_documents(
        write("d.jsonl", star_row() + star_row(full_name="c/d", stargazers_count=None,
                                               updated_at=None, topics_array=["t"])),
        STARS,
    )  # fmt: skip
    assert documents.texts == {"a/b": "a/b. d. t u", "c/d": "c/d. d. t"}
    assert documents.stars == {"a/b": 3, "c/d": None}
    assert documents.updated == {"a/b": date(2025, 6, 15), "c/d": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stargazers_count": -1}, "'stargazers_count' is -1, expected a count"),
        ({"stargazers_count": 1.5}, "expected a count"),
        ({"stargazers_count": 10**30}, "expected a count"),
        ({"updated_at": "yesterday"}, "'updated_at' is 'yesterday', expected a date"),
        ({"updated_at": 5}, "expected a date such as 2026-01-31"),
        ({"updated_at": "0001-01-01T00:00:00+14:00"}, "expected a date"),
        ({"topics_array": "rust, go"}, "expected a JSON list"),
        ({"topics_array": '{"a": 1}'}, "is dict .*, expected a list of texts"),
        ({"topics_array": "[1]"}, "expected a list of texts"),
    ],
)
def test_malformed_stars_days_and_lists_are_refused(write, changes, message):
    with pytest.raises(DataError, match=rf":1: .*{message}"):
        read_documents(write("d.jsonl", star_row(**changes)), STARS)


def test_days_are_of_utc():
    day = sources._day
    assert day("x", "c", "2026-01-01T00:30:00+02:00") == date(2025, 12, 31)
    assert day("x", "c", "2026-01-01T00:30:00Z") == date(2026, 1, 1)
    assert day("x", "c", datetime(2026, 1, 1, 23, 59)) == date(2026, 1, 1)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="choose one of: gh-star-search"):
        find_layout("github")
    assert find_layout("gh-star-search", table="t", text=None).text == STARS.text


def test_reading_documents_loads_no_model():
    code = "import sys, qwen3nb.datasets.custom.documents; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not set(done.stdout.split()) & {"torch", "transformers", "mteb", "numpy", "duckdb"}
