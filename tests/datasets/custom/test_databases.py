import sqlite3
import sys
from contextlib import closing

import duckdb
import pytest

from qwen3nb.datasets.custom.databases import duckdb_rows, sqlite_rows
from qwen3nb.datasets.custom.documents import DocumentLayout, read_documents
from qwen3nb.datasets.rows import DataError

SCHEMA = "(id TEXT PRIMARY KEY, text TEXT, n INTEGER)"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture
def sqlite(tmp_path):
    def make(*statements):
        file = tmp_path / "d.db"
        with closing(sqlite3.connect(file)) as base, base:
            for statement in statements:
                base.execute(*statement) if isinstance(statement, tuple) else base.execute(
                    statement
                )
        return file

    return make


@pytest.fixture
def duck(tmp_path):
    def make(*statements):
        file = tmp_path / "d.duckdb"
        with closing(duckdb.connect(str(file))) as base:
            for statement in statements:
                base.execute(statement)
        return file

    return make


ENDLESS = (
    "CREATE VIEW endless AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT CAST(n AS TEXT) AS id, 'x' AS text FROM r"
)


@pytest.mark.parametrize("kind", ["sqlite", "duck"])
def test_tables_only_and_names_that_are_not_there_list_what_is(kind, request):
    make = request.getfixturevalue(kind)
    file = make(f"CREATE TABLE docs {SCHEMA}", "CREATE TABLE other (id TEXT)", ENDLESS)
    for table, message in (
        (None, "expected one table.* tables: docs, other"),
        ("endless", "'endless' is a view, only tables are read; tables: docs, other"),
        ("nothing", "no table 'nothing'; tables: docs, other"),
        ('docs"; DROP TABLE docs; --', "no table"),
        ("other", "table 'other' has no column 'text' .* columns: id"),
        ("docs", "no documents"),
    ):
        with pytest.raises(DataError, match=message):
            read_documents(file, DocumentLayout(table=table))


@pytest.mark.parametrize("kind", ["sqlite", "duck"])
def test_generated_columns_are_not_run(kind, request):
    file = request.getfixturevalue(kind)(
        "CREATE TABLE docs (id TEXT, text TEXT GENERATED ALWAYS AS (id || id) VIRTUAL)",
        "INSERT INTO docs (id) VALUES ('a')",
    )
    with pytest.raises(DataError, match=r"no column 'text' \(generated columns are not read\)"):
        read_documents(file)


def test_odd_names_of_tables_and_columns_are_names(sqlite):
    file = sqlite('CREATE TABLE "a "" b" (id TEXT, "the text" TEXT)',
                  "INSERT INTO \"a \"\" b\" VALUES ('x', 'y')")  # fmt: skip
    assert read_documents(file, DocumentLayout(text="{the text}")).texts == {"x": "y"}


def test_sqlite_values_of_another_type_are_refused_with_the_row(sqlite, tmp_path):
    table = "CREATE TABLE docs (id TEXT, text TEXT)"
    good = "INSERT INTO docs VALUES ('a', 'x')"
    for bad, message in (
        (("INSERT INTO docs VALUES ('b', ?)", (b"\x00\x01",)), "row 2: field 'text' is bytes"),
        ("INSERT INTO docs VALUES (NULL, 'x')", "row 2: field 'id': the id is None"),
        ("INSERT INTO docs VALUES ('a', 'x')", "row 2: duplicate id 'a', first at .*row 1"),
        ("INSERT INTO docs VALUES ('b', CAST(x'ff' AS TEXT))", "SQLite: .*UTF-8"),
        ("INSERT INTO docs VALUES ('b', zeroblob(17000000))", "SQLite: .*too big"),
    ):
        with pytest.raises(DataError, match=message):
            read_documents(sqlite(table, good, bad))
        (tmp_path / "d.db").unlink()


def test_a_damaged_database_is_refused(sqlite, duck, write):
    file = sqlite(f"CREATE TABLE docs {SCHEMA}", "INSERT INTO docs VALUES ('a', 'x', 1)")
    content = file.read_bytes()
    with pytest.raises(DataError, match="SQLite"):
        read_documents(write("cut.db", content[:100] + b"\xff" * 3996))
    content = duck(f"CREATE TABLE docs {SCHEMA}").read_bytes()
    with pytest.raises(DataError, match="DuckDB"):
        read_documents(write("cut.duckdb", content[:5000]))


def test_a_query_that_takes_too_long_is_stopped(sqlite, duck):
    file = sqlite(
        f"CREATE TABLE docs {SCHEMA}",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20000) "
        "INSERT INTO docs SELECT n, 'x', n FROM r",
    )
    with pytest.raises(DataError, match="interrupted; time limit -1 s"):
        list(sqlite_rows(file, table="docs", columns=["id"], seconds=-1))
    assert sum(1 for _ in sqlite_rows(file, table="docs", columns=["id"])) == 20_000
    assert not list(duckdb_rows(duck(f"CREATE TABLE docs {SCHEMA}"), table=None, columns=["id"]))


def test_databases_are_opened_for_reading_only(sqlite, duck):
    sql = (f"CREATE TABLE docs {SCHEMA}", "INSERT INTO docs VALUES ('a', 'x', 1)")
    for file in (sqlite(*sql), duck(*sql)):
        before = file.read_bytes(), sorted(path.name for path in file.parent.iterdir())
        file.chmod(0o444)
        assert read_documents(file).texts == {"a": "x"}
        assert before == (file.read_bytes(), sorted(path.name for path in file.parent.iterdir()))


def test_names_with_a_question_mark_are_files_not_options(sqlite, tmp_path):
    file = sqlite(f"CREATE TABLE docs {SCHEMA}", "INSERT INTO docs VALUES ('a', 'x', 1)")
    odd = file.rename(tmp_path / "d?mode=rwc#é%20.db")
    assert read_documents(odd).texts == {"a": "x"}


def test_duckdb_is_asked_for_where_it_is_missing(duck, monkeypatch):
    file = duck(f"CREATE TABLE docs {SCHEMA}")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(DataError, match=r"pip install 'qwen3nb\[duckdb\]'"):
        read_documents(file)


def test_control_characters_are_not_shown(sqlite):
    with pytest.raises(DataError) as error:
        read_documents(sqlite('CREATE TABLE "\x1b[2J" (id TEXT)', "CREATE TABLE b (id TEXT)"))
    assert "\x1b" not in str(error.value)
