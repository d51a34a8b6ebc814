"""Per-query scores as one table: what other programs read back are the records' own numbers."""

import csv
from dataclasses import replace

import duckdb
import pandas as pd
import pytest
from helpers.records import amend, make

from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.errors import ResultError
from qwen3nb.records.record import Part
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results

ODD = ['a "b"', "c,d", "e\nf", "g\rh", "=1+1", "@cmd", "-x", "-3", "é 日本 \U0001f600", ""]
ODD += ["NULL", "nan"]
COLUMNS = """
    model identity seed task type revision split subset query metric value finished record
"""


@pytest.fixture
def records(tmp_path):
    """Three records that are stored and loaded: odd ids, parts, and a column with gaps."""
    odd = make("=evil, model", {name: n / 7 for n, name in enumerate(ODD)}, task="odd")
    amend(odd, "model", label="evil")
    amend(odd, "task", dataset="=x", revision="=HYPERLINK(1)", splits=("test",), subsets=("en",))
    parts = {f"test/{lang}/q{n}": n / 3 for lang in ("en", "en/x", "de") for n in range(3)}
    split = make("two", parts, task="parts")
    split.per_query["MRR@10"] = {"test/de/q1": 0.1 + 0.2}
    aggregates = {
        lang: aggregate(split.per_query, how="mean", columns=("nDCG@10",))
        for lang in ("en", "en/x", "de")
    }
    of_parts = (Part("test", each, ("eng-Latn",), aggregates[each], 0.5) for each in aggregates)
    split = replace(split, parts=tuple(of_parts))
    amend(split, "task", splits=("test",), subsets=("en", "en/x", "de"))
    whole = make("three", [0.25, 1.0], task="whole")
    amend(whole, "task", splits=("dev",), subsets=("default",))
    for each in (odd, split, whole):
        each.save(tmp_path / "results")
    return load_results(tmp_path / "results")


def expected(records):
    """A row per score, from the records' own mappings."""
    return {
        (each.model.label, each.task.key, metric, query): value
        for each in records
        for metric, column in each.per_query.items()
        for query, value in column.items()
    }


def joined(split, subset, query, task):
    return f"{split}/{subset}/{query}" if task == "parts" else query


def read(file, source):
    """Rows as DuckDB reads them."""
    names = "model, task, metric, split, subset, query, value"
    rows = duckdb.sql(f"SELECT {names} FROM {source}").fetchall()  # noqa: S608
    return {
        (model, task, metric, joined(split, subset, query, task)): value
        for model, task, metric, split, subset, query, value in rows
    }


def test_parquet_is_what_the_records_hold(records, tmp_path):
    file = records.write_scores(tmp_path / "scores.parquet")
    theirs = expected(records)
    assert read(file, f"'{file}'") == theirs
    assert len(theirs) == len(ODD) + 9 + 1 + 2
    frame = pd.read_parquet(file)
    assert len(frame) == len(theirs)
    assert list(frame.columns) == COLUMNS.split()
    assert (frame.dtypes["value"], frame.dtypes["seed"]) == ("float64", "int64")
    for each in records:
        own = frame[(frame["identity"] == each.model.identity) & (frame["metric"] == "nDCG@10")]
        assert own["value"].mean() == pytest.approx(each.metrics["nDCG@10"].value, abs=1e-12)
        assert {tmp_path / "results" / name for name in own["record"]} == {
            each.path(tmp_path / "results")
        }
    parts = frame[frame["task"] == "parts"]
    assert set(parts["subset"]) == {"en", "en/x", "de"}
    whole = frame[frame["task"] == "whole"][["split", "subset", "query"]]
    assert whole.values.tolist() == [["dev", "default", "q0"], ["dev", "default", "q1"]]


def test_csv_keeps_every_text_and_number_and_runs_no_formula(records, tmp_path):
    file = records.write_scores(tmp_path / "scores.csv")
    inert = {"=1+1": "'=1+1", "@cmd": "'@cmd", "-x": "'-x"}
    theirs = {
        (model, task, metric, inert.get(query, query)): value
        for (model, task, metric, query), value in expected(records).items()
    }
    with file.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    ours = {}
    for row in rows:
        query = joined(row["split"], row["subset"], row["query"], row["task"])
        ours[row["model"], row["task"], row["metric"], query] = float(row["value"])
    assert ours == theirs
    assert {row["revision"] for row in rows if row["task"] == "odd"} == {"'=HYPERLINK(1)"}
    frame = pd.read_csv(file, keep_default_na=False, dtype={"value": str})
    assert frame["value"].astype(float).tolist() == [float(row["value"]) for row in rows]
    assert frame["query"].tolist() == [row["query"] for row in rows]
    options = "all_varchar=true, header=true, delim=',', quote='\"', escape='\"', new_line='\\n'"
    everything = duckdb.sql(f"SELECT query, value FROM read_csv('{file}', {options})").fetchall()  # noqa: S608
    assert [float(value) for _, value in everything] == [float(row["value"]) for row in rows]


def test_another_ending_lists_the_two_and_a_lost_file_leaves_what_was_there(records, tmp_path):
    with pytest.raises(ValueError, match=r"'\.xlsx'.*\.parquet.*\.csv"):
        Results(records).write_scores(tmp_path / "scores.xlsx")
    file = tmp_path / "scores.csv"
    file.write_text("before")
    next((tmp_path / "results").rglob("whole.*.scores.parquet")).unlink()
    with pytest.raises(ResultError, match=r"whole\..*scores\.parquet"):
        Results(records).write_scores(file)
    assert file.read_text() == "before"


def test_no_records_give_an_empty_table(tmp_path):
    assert len(pd.read_parquet(Results([]).write_scores(tmp_path / "none.parquet"))) == 0
    assert (
        list(pd.read_csv(Results([]).write_scores(tmp_path / "none.csv")).columns)[-1] == "record"
    )
