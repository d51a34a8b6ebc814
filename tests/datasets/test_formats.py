"""A format of own data is one class: the handbook's is read for documents, queries and pairs."""

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from helpers.handbook import example

from qwen3nb.datasets.custom import formats
from qwen3nb.datasets.custom.documents import DocumentLayout, read_documents
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.datasets.pairs import load_word_pairs
from qwen3nb.datasets.rows import DataError


@pytest.fixture
def feather_format(monkeypatch):
    """The example of the handbook, as it stands there."""
    names = dict(vars(formats))
    exec(example("class Feather"), names)  # noqa: S102 - our own handbook
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, names["Feather"]()))


def test_a_new_format_is_one_class(feather_format, tmp_path):
    feather.write_feather(
        pa.table({"id": ["a", "b"], "text": ["sort", "join"]}), tmp_path / "d.feather"
    )
    assert read_documents(tmp_path / "d.feather").texts == {"a": "sort", "b": "join"}
    with pytest.raises(DataError, match=r"d\.feather: row 1: no column 'title'; columns: id, text"):
        read_documents(tmp_path / "d.feather", DocumentLayout(text="{title}"))

    judgements = {"query": ["how", "how"], "docid": ["a", "b"], "rating": [3, 0]}
    feather.write_feather(pa.table(judgements), tmp_path / "q.feather")
    (query,) = read_queries(tmp_path / "q.feather").queries
    assert (query.text, query.grades) == ("how", {"a": 3, "b": 0})

    pairs = {"word1": ["tiger"], "word2": ["cat"], "score": [7.35]}
    feather.write_feather(pa.table(pairs), tmp_path / "p.feather")
    assert load_word_pairs(tmp_path / "p.feather") == [("tiger", "cat", 7.35)]


def test_parquet_is_read_and_a_damaged_file_is_named(tmp_path):
    file = tmp_path / "d.parquet"
    pq.write_table(pa.table({"id": [1, 2], "text": ["sort", None]}), file)
    assert read_documents(file).texts == {"1": "sort", "2": ""}
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError, match=r"d\.parquet: cannot be read as Parquet"):
        read_documents(file)


def test_formats_of_one_document_hold_documents_too(tmp_path):
    (tmp_path / "d.json").write_text('[{"id": "a", "text": "sort"}]')
    (tmp_path / "d.yaml").write_text("- {id: a, text: sort}")
    (tmp_path / "d.tsv").write_text("id\ttext\na\tsort\n")
    for name in ("d.json", "d.yaml", "d.tsv"):
        assert read_documents(tmp_path / name).texts == {"a": "sort"}
    (tmp_path / "d.json").write_text('[{"id": "a", "text": "sort"}, 1]')
    with pytest.raises(DataError, match=r"d\.json: entry 2: expected an object; got 1"):
        read_documents(tmp_path / "d.json")


@pytest.mark.parametrize("stored_once", [True, False])
def test_a_text_that_parquet_stores_once_counts_for_each_row(tmp_path, stored_once):
    """900 kB on disk, 2.7 GB as rows."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000), pa.array(["ab " * 300_000]))
    table = pa.table({"id": [f"d{number}" for number in range(3000)], "text": text})
    if not stored_once:  # a list of categories in each row
        offsets = pa.array(range(3001), pa.int32())
        table = table.set_column(1, "text", pa.ListArray.from_arrays(offsets, text))
    pq.write_table(table, tmp_path / "d.parquet", compression="zstd")
    with pytest.raises(DataError, match=r"d\.parquet: expected at most 256 MiB"):
        read_documents(tmp_path / "d.parquet")


def test_categories_and_nested_columns_of_parquet_are_read(tmp_path):
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "text": pa.array(["sort", None, "sort"]).dictionary_encode(),
            "more": [{"words": ["x", "y"]}, None, {"words": []}],
            "number": pa.array([1, 2, 1]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    rows = [row for _, row in formats.rows_of_file(tmp_path / "d.parquet", formats.RowRequest())]
    assert rows == table.to_pylist()


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path):
    columns = [pa.array(["d1"]), pa.array(["a"]), pa.array(["b"])]
    table = pa.Table.from_arrays(columns, names=["id", "text", "text"])
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d\.parquet: duplicate column 'text'"):
        read_documents(tmp_path / "d.parquet")
