"""Own queries and documents: equal from every format, refused with the line, one task by hand."""

import csv
import gzip
import io
import json
import sqlite3
from contextlib import closing
from datetime import date

import duckdb
import pandas as pd
import pytest

from qwen3nb.datasets.custom import documents as sources
from qwen3nb.datasets.custom.documents import (
    DocumentLayout,
    TextTemplate,
    find_layout,
    read_documents,
)
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.rows import DataError

SCHEMA = "(id TEXT PRIMARY KEY, text TEXT, n INTEGER)"
STARS = find_layout("gh-star-search")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


def test_queries_and_documents_need_no_files():
    queries = [{"id": "q1", "query": "one", "expected": ["a"]}, {"id": "q2", "query": "x"}]
    rows = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    domain = load_domain(pd.DataFrame(queries[:1]), pd.DataFrame(rows))
    assert (domain.queries, domain.grades) == ({"q1": "one"}, {"q1": {"a": 3}})
    assert domain.revision == load_domain(queries[:1], rows).revision
    assert domain.clusters == {}
    several = [queries[0] | {"cluster": "a user"}, queries[0] | {"id": "q2", "query": "two"}]
    assert load_domain(several, rows).clusters == {"q1": "a user", "q2": "q2"}
    for wrong, message in (
        ((queries, rows), r"queries: queries\[1\]: Either 'relevance_grades' or 'expected'"),
        ((queries[:1], [{"name": "a"}]), "documents:1: no field 'id'; fields: name"),
        ((queries[:1], ["a"]), "documents:1: expected a file, a data frame or a list of"),
    ):
        with pytest.raises(DataError, match=message):
            load_domain(*wrong)


def test_the_same_rows_in_every_format_are_the_same_documents(tmp_path, write):
    rows = [("a", "one, “two”"), ("b", 'quo"te\nline'), ("7", "x")]
    lines = "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows)
    table = io.StringIO()
    csv.writer(table).writerows([("id", "text"), *rows])
    cells = "\ufeff" + table.getvalue()
    files = [
        write("d.jsonl", lines),
        write("d.jsonl.gz", gzip.compress(lines.encode())),
        write("d.csv", cells),
        write("d.csv.gz", gzip.compress(cells.encode())),
    ]
    for library, name in ((sqlite3, "any.name"), (duckdb, "other.name")):
        with closing(library.connect(str(tmp_path / name))) as base:
            base.execute("CREATE TABLE docs (id TEXT, text TEXT)")
            base.executemany("INSERT INTO docs VALUES (?, ?)", rows)
            base.commit()
    given = [{"id": i, "text": t} for i, t in rows]
    frame = pd.DataFrame([*given, {"id": "none"}])  # whose text is NaN
    assert dict(read_documents(frame).texts) == {**dict(rows), "none": ""}
    for file in [*files, tmp_path / "any.name", tmp_path / "other.name", given]:
        assert dict(read_documents(file).texts) == dict(rows), file


GOOD = '{"id": "a", "text": "x"}\n'


# The table of the page `what-is-refused` has more; tests/datasets/test_what_is_refused.py runs it.
MALFORMED = {
    "d.jsonl": [
        (GOOD + '{"text": "x"}\n', ":2: no field 'id'; fields: text"),
        (GOOD + '{"id": "b", "txt": "x"}\n', ":2: no field 'text', but 'txt'"),
        (GOOD + '{"id": "b", "body": "x"}\n', ":2: no field 'text'; fields: id, body"),
        (GOOD + '{"id": "b", "text": 1.5}\n', ":2: field 'text' is float 1.5, expected a text"),
        ('{"id": true, "text": "x"}\n', ":1: field 'id': the id is True"),
    ],
    "d.csv": [
        ("id,name\na,x\n", ":1: no column 'text'; columns: id, name"),
        ("id,text,id\na,x,b\n", ":1: duplicate column 'id'"),
        ("id,text\na,x\nb,y,z\n", ":3: 3 cells, expected 2"),
    ],
    "d.txt": [("x", "expected SQLite, DuckDB")],
}


@pytest.mark.parametrize(
    ("name", "text", "message"), [(name, *row) for name, rows in MALFORMED.items() for row in rows]
)
def test_malformed_files_are_refused_with_the_line(write, name, text, message):
    with pytest.raises(DataError, match=message):
        read_documents(write(name, text))


def test_a_part_of_the_text_may_be_absent_from_a_line_but_not_misspelt(write):
    layout, rows = (
        find_layout(text="{name}. {purpose}"),
        '{"id": "a", "name": "n", "purpose": "p"}\n',
    )
    for more in ('{"id": "b", "purpose": null}', '{"id": "b", "name": "n", "url": "x"}'):
        assert len(read_documents(write("d.jsonl", rows + more), layout).texts) == 2
    with pytest.raises(DataError, match=":2: no field 'purpose', but 'purpos'"):
        read_documents(write("d.jsonl", rows + '{"id": "b", "name": "n", "purpos": "p"}'), layout)


def test_a_file_that_is_missing_or_too_large_is_refused(write, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no such file, or not a regular file"):
        read_documents(tmp_path / "nothing.jsonl")
    monkeypatch.setattr(sources, "MOST", 3)
    with pytest.raises(DataError, match="MiB"):
        read_documents(write("d.jsonl", GOOD))


def star_row(**changes):
    row = {
        "full_name": "a/b",
        "purpose": None,
        "description": "d",
        "topics_array": '["t", "u"]',
        "stargazers_count": 3,
        "updated_at": "2025-06-15 00:00:00",
        "content_hash": None,
        **changes,
    }
    return json.dumps(row) + "\n"


def test_stars_days_and_lists_may_be_null_and_days_are_of_utc(write):
    """The original tool crashes on the second row."""
    rows = [
        star_row(),
        star_row(full_name="c/d", stargazers_count=None, updated_at=None, topics_array=["t"]),
        star_row(full_name="e/f", updated_at="2026-01-01T00:30:00+02:00"),
    ]
    documents = read_documents(write("d.jsonl", "".join(rows)), STARS)
    assert documents.texts == {"a/b": "a/b. d. t u", "c/d": "c/d. d. t", "e/f": "e/f. d. t u"}
    assert documents.stars == {"a/b": 3, "c/d": None, "e/f": 3}
    assert list(documents.updated.values()) == [date(2025, 6, 15), None, date(2025, 12, 31)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stargazers_count": -1}, "'stargazers_count' is -1, expected a count"),
        ({"stargazers_count": 1.5}, "expected a count"),
        ({"updated_at": "yesterday"}, "'updated_at' is 'yesterday', expected a date"),
        ({"updated_at": "0001-01-01T00:00:00+14:00"}, "expected a date"),
        ({"topics_array": "rust, go"}, "expected a JSON list"),
        ({"topics_array": '{"a": 1}'}, "is dict .*, expected a list of texts"),
    ],
)
def test_malformed_stars_days_and_lists_are_refused(write, changes, message):
    with pytest.raises(DataError, match=rf":1: .*{message}"):
        read_documents(write("d.jsonl", star_row(**changes)), STARS)


@pytest.fixture(params=[sqlite3, duckdb], ids=["sqlite", "duckdb"])
def make(request, tmp_path):
    """Make a database with a library."""

    def make(*statements):
        with closing(request.param.connect(str(tmp_path / "d.db"))) as base:
            for statement in statements:
                base.execute(*([statement] if isinstance(statement, str) else statement))
            base.commit()
        return tmp_path / "d.db"

    make.library = request.param
    return make


ENDLESS = (
    "CREATE VIEW endless AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT CAST(n AS TEXT) AS id, 'x' AS text FROM r"
)


def test_tables_only_and_names_that_are_not_there_list_what_is(make):
    file = make(f"CREATE TABLE docs {SCHEMA}", "CREATE TABLE other (id TEXT)", ENDLESS)
    for table, message in (
        (None, "expected one table.* tables: docs, other"),
        ("endless", "no table 'endless'; tables: docs, other"),  # a view
        ('docs"; DROP TABLE docs; --', "no table"),
        ("other", "table 'other' has no column 'text' .* columns: id"),
        ("docs", "expected documents with a text"),
    ):
        with pytest.raises(DataError, match=message):
            read_documents(file, DocumentLayout(table=table))


def test_generated_columns_are_not_run(make):
    file = make(
        "CREATE TABLE docs (id TEXT, text TEXT GENERATED ALWAYS AS (id || id) VIRTUAL)",
        "INSERT INTO docs (id) VALUES ('a')",
    )
    with pytest.raises(DataError, match=r"no column 'text' \(generated columns are not read\)"):
        read_documents(file)


def test_values_of_another_type_are_refused_with_the_row(make, tmp_path):
    blob = "BLOB" if make.library is duckdb else "TEXT"
    for row, message in (
        (("b", b"\x00\x01"), "row 2: field 'text' is bytes"),
        ((None, b""), "row 2: field 'id': the id is None"),
        (("a", None), "row 2: duplicate id 'a'"),
    ):
        file = make(
            f"CREATE TABLE docs (id TEXT, text {blob})",
            "INSERT INTO docs VALUES ('a', NULL)",
            ("INSERT INTO docs VALUES (?, ?)", row),
        )
        with pytest.raises(DataError, match=message):
            read_documents(file)
        file.unlink()


def test_a_damaged_database_is_refused(make):
    file = make(f"CREATE TABLE docs {SCHEMA}", "INSERT INTO docs VALUES ('a', 'x', 1)")
    content = file.read_bytes()
    sqlite = content.startswith(b"SQLite")
    file.write_bytes(content[:100] + b"\xff" * 3996 if sqlite else content[:5000])
    with pytest.raises(DataError, match="SQLite" if sqlite else "DuckDB"):
        read_documents(file)


def test_databases_are_opened_for_reading_only(make, tmp_path):
    """Names of files, tables and columns are names, never options or SQL."""
    file = make(
        'CREATE TABLE "a "" b" (id TEXT, "the text" TEXT)',
        "INSERT INTO \"a \"\" b\" VALUES ('x', 'y')",
    )
    if make.library is sqlite3:
        file = file.rename(tmp_path / "d?mode=rwc#é%20.db")
    before = file.read_bytes(), sorted(path.name for path in tmp_path.iterdir())
    file.chmod(0o444)
    assert read_documents(file, DocumentLayout(text="{the text}")).texts == {"x": "y"}
    assert before == (file.read_bytes(), sorted(path.name for path in tmp_path.iterdir()))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"a": "1", "b": "2", "c": "3"}, "<1. 2 - 3>"),
        ({"a": "1", "c": "3"}, "<1 - 3>"),
        ({"b": " 2 "}, "<2>"),
        ({"a": " ", "b": ""}, ""),
        ({"a": "{b.__class__}"}, "<{b.__class__}>"),  # data is never a template
    ],
)
def test_an_empty_part_goes_with_what_stands_before_it(values, text):
    assert TextTemplate.parse("<{a}. {b} - {c}>").fill(values) == text


@pytest.mark.parametrize(
    "text",
    ["{a.b}", "{a[0]}", "{a!r}", "{a:>10}", "{}", "{a", "no field"],
)
def test_a_template_has_names_only(text):
    with pytest.raises(DataError, match="text template"):
        TextTemplate.parse(text)


QUERIES = """
[settings]
relevance_threshold = 2
star_boost_coefficient = 0.3
recency_coefficient = 0.2
recency_days = 10

[[queries]]
id = "graded"
query = "one"
relevance_grades = { a = 3, b = 1, c = 2, gone = 3 }
expected = ["a", "b"]

[[queries]]
id = "weak"
query = "two"
relevance_grades = { a = 1 }

[[queries]]
id = "listed"
query = "three"
category = "short"
expected = ["b"]
"""
DOCUMENTS = """
{"id": "a", "text": "first", "stars": 99, "day": "2026-01-05"}
{"id": "b", "text": "second", "stars": 0, "day": "2026-02-10"}
{"id": "c", "text": "", "stars": null, "day": null}
"""


@pytest.fixture
def files(tmp_path):
    queries, documents = tmp_path / "q.toml", tmp_path / "d.jsonl"
    queries.write_text(QUERIES)
    documents.write_text(DOCUMENTS)
    return queries, documents


def test_what_is_odd_is_noted_and_counted(files):
    domain = load_domain(*files)
    assert domain.grades == {"graded": {"a": 3, "b": 1, "c": 2}, "listed": {"b": 3}}
    assert domain.relevant == {"graded": {"a": 1, "b": 0, "c": 1}, "listed": {"b": 1}}
    assert (domain.dropped, domain.threshold) == (("weak",), 2)
    assert "the grades count, not the expected list: b, c, gone" in "\n".join(domain.notes)
    assert domain.counts["empty documents"] == 1
    assert domain.counts["judged documents not in the corpus"] == 1


def test_boosts_by_hand(files):
    """a: 1 + 0.3 * log10(100) / 6 = 1.1 for its stars; 5 of 10 days: 1 - 0.2 * 0.5 = 0.9."""
    layout = find_layout(stars="stars", updated="day")
    domain = load_domain(*files, layout=layout, on=date(2026, 1, 10))
    assert domain.factors == pytest.approx({"a": 1.1 * 0.9, "b": 1.0, "c": 0.8})
    plain = load_domain(*files, layout=layout, boost=False)
    assert (dict(plain.factors), plain.recipe) == ({"a": 1.0, "b": 1.0, "c": 1.0}, {})
    later = load_domain(*files, layout=layout, on=date(2026, 2, 10))
    assert later.factors == pytest.approx({"a": 1.1 * 0.8, "b": 1.0, "c": 0.8})
    assert len({domain.revision, plain.revision, later.revision}) == 3


def test_any_change_of_the_data_is_another_task(files):
    queries, documents = files
    before = load_domain(*files)
    assert before.name == f"domain-d-{before.revision[:8]}"
    documents.write_text(DOCUMENTS.replace("second", "third"))
    assert load_domain(*files).revision != before.revision
    documents.write_text(DOCUMENTS)
    for old, new in (("b = 1", "b = 2"), ("_threshold = 2", "_threshold = 3"), ("one", "1")):
        queries.write_text(QUERIES.replace(old, new))
        assert load_domain(*files).revision != before.revision, old
    queries.write_text(QUERIES)
    assert load_domain(*files).revision == before.revision


def test_a_table_of_another_schema_is_named_with_it(tmp_path):
    file = tmp_path / "d.duckdb"
    with duckdb.connect(str(file)) as base:
        base.execute("CREATE SCHEMA lake")
        base.execute("CREATE TABLE lake.docs (id VARCHAR, text VARCHAR)")
        base.execute("INSERT INTO lake.docs VALUES ('a', 'sort a list')")
    assert read_documents(file).texts == {"a": "sort a list"}  # the only table
    with duckdb.connect(str(file)) as base:
        base.execute("CREATE TABLE docs AS SELECT 'b' AS id, 'join rows' AS text")
    for table, texts in (
        ("lake.docs", {"a": "sort a list"}),
        ("docs", {"b": "join rows"}),
        ("main.docs", {"b": "join rows"}),
    ):
        assert read_documents(file, DocumentLayout(table=table)).texts == texts
    with pytest.raises(DataError, match=r"no table 'lake\.other'; tables: docs, lake\.docs"):
        read_documents(file, DocumentLayout(table="lake.other"))


def test_ids_of_duckdb_may_be_uuids(tmp_path):
    name = "12345678-1234-5678-1234-567812345678"
    with duckdb.connect(str(tmp_path / "d.duckdb")) as base:
        base.execute("CREATE TABLE t (id UUID, text VARCHAR)")
        base.execute("INSERT INTO t VALUES (?, 'sort a list')", [name])
    assert read_documents(tmp_path / "d.duckdb").texts == {name: "sort a list"}
