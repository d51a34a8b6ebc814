"""Columns of data sets are read by batches, never row by row."""

from types import SimpleNamespace
from typing import Any, NoReturn

import datasets
import pytest
from datasets.arrow_dataset import Column

from qwen3nb.datasets.judgements import MISSING
from qwen3nb.evaluation.mteb import evaluate, per_query, select
from qwen3nb.models.search.mteb_rows import ColumnValues

_COUNT = 2500  # more than two batches


def _corpus() -> datasets.Dataset:
    names = [f"d{number}" for number in range(_COUNT)]
    texts = [f"text {number}" for number in range(_COUNT)]
    return datasets.Dataset.from_dict({"id": names, "title": [""] * _COUNT, "text": texts})


@pytest.fixture
def no_rows_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> NoReturn:
        raise AssertionError("a column was read row by row")

    monkeypatch.setattr(Column, "__iter__", refuse)


def test_the_values_are_those_of_the_column() -> None:
    corpus = _corpus()
    names = ColumnValues(corpus, "id")
    assert list(names) == list(corpus["id"]) == list(names)
    assert len(names) == _COUNT
    assert "d2499" in names
    assert "d2500" not in names


def test_a_selection_keeps_its_order() -> None:
    rows = _corpus().select([7, 3, 2400])
    assert list(ColumnValues(rows, "id")) == ["d7", "d3", "d2400"]
    assert list(ColumnValues(list(rows), "id")) == ["d7", "d3", "d2400"]


@pytest.mark.usefixtures("no_rows_one_by_one")
def test_an_evaluation_reads_corpora_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = _corpus()
    queries = datasets.Dataset.from_dict({"id": ["q0", "q1"], "text": ["a", "b"]})
    judgements = {"q0": {"d2": 1, "nowhere": 0, "d9": 0}, "q1": {"d2400": 1}}
    data = {"corpus": corpus, "queries": queries, "relevant_docs": judgements}
    task: Any = SimpleNamespace(metadata=SimpleNamespace(name="T"))
    part = SimpleNamespace(prefix="", data=data)
    monkeypatch.setattr(evaluate, "task_slices", lambda _: [part])
    assert evaluate.data_counts(task) == {MISSING: 1}
    texts = per_query._document_texts(corpus, {"d2400"})
    assert texts["d2400"].text == "text 2400"
    sample = select._sample_collection(data, 5)
    assert len(sample["corpus"]) == 3 + 5
