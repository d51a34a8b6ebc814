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
