"""Tables in memory: every door reads the same rows, whatever library holds them."""

import uuid
from datetime import UTC, datetime

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import qwen3nb as q
from qwen3nb.datasets.in_memory import grades_by_query, is_table, table_rows, texts_by_id
from qwen3nb.datasets.pairs import scored_pairs
from qwen3nb.datasets.rows import DataError

DOCUMENTS = [{"id": "a", "title": "Sorting", "text": "a list"}, {"id": "b", "text": "kettle"}]
QUERIES = [{"id": "q1", "text": "sort a list"}, {"id": "q2", "text": "kettle"}]
QRELS = [
    {"query-id": "q1", "corpus-id": "a", "score": 2},
    {"query-id": "q2", "corpus-id": "b", "score": 1},
]
FORMS = {
    "list": lambda rows: rows,
    "generator of a list": lambda rows: list(iter(rows)),
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars lazy": lambda rows: pl.LazyFrame(rows),
    "pyarrow": pa.Table.from_pylist,
    "datasets": datasets.Dataset.from_list,
    "duckdb": lambda rows: duckdb.from_arrow(pa.Table.from_pylist(rows)),
    "columns": lambda rows: {name: [row.get(name) for row in rows] for name in rows[0]},
}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    return request.param


def test_a_collection_of_tables(form):
    qrels = FORMS["pandas"](QRELS) if form is FORMS["columns"] else form(QRELS)
    collection = q.TestCollection.from_texts(form(QUERIES), form(DOCUMENTS), qrels)
    assert collection.documents == {"a": "Sorting a list", "b": "kettle"}
    assert collection.queries == {"q1": "sort a list", "q2": "kettle"}
    assert collection.qrels == {"q1": {"a": 2}, "q2": {"b": 1}}


def test_own_data_of_tables(form):
    queries = [{"id": "q1", "query": "kettle", "expected": ["b"]}]
    domain = q.datasets.load_domain(form(queries), form(DOCUMENTS))
    assert domain.grades == {"q1": {"b": 3}}
    assert domain.texts == {"a": "a list", "b": "kettle"}


def test_pairs_of_tables(form):
    rows = [
        {"sentence1": "a cat", "sentence2": "a dog", "score": 3.5},
        {"sentence1": "rain", "sentence2": "sort", "score": 0.0},
    ]
    right = [("a cat", "a dog", 3.5), ("rain", "sort", 0.0)]
    assert scored_pairs(form(rows), of="sentences") == right


def test_missing_values_are_left_out():
    # The library gives each structure the keys of all, and pandas turns whole numbers into floats.
    rows = [{"id": "q1", "relevance_grades": {"a": 3}}, {"id": "q2", "relevance_grades": {"b": 2}}]
    assert table_rows(datasets.Dataset.from_list(rows), what="queries") == rows
    frame = pd.DataFrame({"id": ["a", "b"], "stars": [3, None], "text": ["x", pd.NA]})
    assert table_rows(frame, what="documents") == [
        {"id": "a", "stars": 3.0, "text": "x"},
        {"id": "b"},
    ]


def test_values_become_types_of_python():
    number = uuid.UUID(int=7)
    day = datetime(2026, 1, 31, tzinfo=UTC)
    frame = pd.DataFrame(
        {"id": [number], "n": [np.int64(3)], "x": [0.1 + 0.2], "days": [day], "l": [np.arange(2)]}
    )
    (row,) = table_rows(frame, what="documents")
    assert row == {
        "id": str(number),
        "n": 3,
        "x": 0.1 + 0.2,  # all digits
        "days": "2026-01-31T00:00:00+00:00",
        "l": [0, 1],
    }
    assert type(row["n"]) is int


def test_columns_by_the_names_of_others():
    rows = [{"docno": "d1", "contents": "one"}, {"docno": "d2", "contents": "two"}]
    assert texts_by_id(rows, what="documents") == {"d1": "one", "d2": "two"}
    rows = [{"qid": 7, "docid": 1, "relevance": 2}, {"qid": 7, "docid": 2, "relevance": 0}]
    assert grades_by_query(rows, what="qrels") == {"7": {"1": 2, "2": 0}}
    assert grades_by_query([{"qid": "q", "doc_id": "d"}], what="qrels") == {"q": {"d": 1}}
    series = pd.Series({"a": "one", "b": "two"})
    collection = q.TestCollection.from_texts(series, series, {"a": ["a"]})
    assert collection.documents == {"a": "one", "b": "two"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a"}], "documents: no column 'text'; columns: id"),
        ([{"id": "a", "text": "x"}] * 2, "documents:2: duplicate id 'a'"),
        ([{"id": "a", "text": "x"}, {"text": "y"}], "documents:2: no value in the column 'id'"),
        (["a"], "documents:1: expected a file, a data frame or a list of dictionaries; got str"),
        ({"id": ["a"], "text": ["x", "y"]}, "documents: expected columns of equal length"),
    ],
)
def test_tables_that_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        texts_by_id(rows, what="documents")


def test_what_is_no_table():
    assert not any(map(is_table, ["text", {"a": "text"}, ["text"], [], {}, [["d1"]], None]))
