"""Texts of tasks planted in training files are found, of each kind, and no others are."""

import csv
import gzip
import io
import json
import re
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from helpers.records import make
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation import contamination
from qwen3nb.evaluation.contamination import Texts, look_up, task_texts, training_files, without

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
QUERIES = {
    "exact": "Sort a list in place",
    "contained": "Find the largest value",
    "gram": f"Why {LONG}?",
    "ends": "eleven twelve thirteen one",
    "pair": "a list",
    "absent": "Nobody ever wrote this",
    "zh": "如何查找最大值",
    "de": "Straße, Größe: Überblick",
    "empty": "",
}
TRAINING = [
    "sort A LIST, in (place)!",
    f"x find the largest value y; {LONG} and more",
    "我们看看如何查找最大值吧",
    "strasse grösse überblick",
    "nobody ever",
    "wrote this",
]
KINDS = {
    "exact": "exact",
    "contained": "contained",
    "gram": "13-gram",
    "zh": "contained",
    "de": "exact",
}


def texts_of(queries, documents=None):
    tables = {"queries": queries, "documents": documents or {}}
    return [Texts("T", what, each.items) for what, each in tables.items()]


def looked_up(tmp_path, texts, *, queries=QUERIES, documents=None):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return look_up([file], texts_of(queries, documents))


def test_each_kind_is_found_in_the_row_where_it_is_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(contamination, "_EXAMPLES", 9)
    given = {"d": "Find the largest value", "e": LONG}
    found, documents = looked_up(tmp_path, TRAINING, documents=given)
    assert {each.id: each.how for each in found.examples} == KINDS
    rows = {each.id: each.where for each in found.examples}
    assert rows["contained"] == rows["gram"] == "train.jsonl:2"
    assert rows["zh"] == "train.jsonl:3"
    assert {*found.hits} == KINDS.keys()
    assert found.found == {"exact": 2, "contained": 2, "13-gram": 1}
    # A short document is compared as a whole: its words are in many texts.
    assert (found.number, documents.number, documents.hits) == (9, 2, ("e",))
    assert documents.found == {"exact": 0, "contained": 0, "13-gram": 1}


@pytest.mark.parametrize(
    "suffix", [".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv.gz", ".txt", ".parquet"]
)
def test_every_format_of_training_files_is_read(tmp_path, suffix):
    file = tmp_path / f"train{suffix}"
    # The year of the last time has more digits than Python's may have.
    times = pa.array([*range(5), 2**50], pa.timestamp("ms"))
    table = pa.table({"time": times, "pair": [[text, "other"] for text in TRAINING]})
    with (gzip.open if suffix.endswith(".gz") else open)(file, "wt") as stream:
        match suffix.removesuffix(".gz"):
            case ".jsonl":
                stream.writelines(json.dumps({"a": {"b": [t]}, "n": 1}) + "\n" for t in TRAINING)
            case ".json":
                json.dump([{"text": text} for text in TRAINING], stream)
            case ".csv" | ".tsv" as kind:
                rows = csv.writer(stream, delimiter="," if kind == ".csv" else "\t")
                rows.writerows(["1", text] for text in TRAINING)
            case ".txt":
                stream.write("\n".join(TRAINING))
    if suffix == ".parquet":
        pq.write_table(table, file)
    assert training_files([tmp_path]) == [file]
    found, _ = look_up([file], texts_of(QUERIES))
    assert {*found.hits} == KINDS.keys()


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_found_is_what_sets_of_words_say(tmp_path_factory, data):
    text = st.lists(st.sampled_from("abc"), max_size=22).map(" ".join)
    queries = dict(enumerate(data.draw(st.lists(text, min_size=1, max_size=6))))
    documents = dict(enumerate(data.draw(st.lists(text, max_size=6))))
    training = data.draw(st.lists(text, min_size=1, max_size=6))
    given = {"queries": queries, "documents": documents}
    found, others = looked_up(tmp_path_factory.mktemp("t"), training, **given)

    def kind(text, *, query):
        wanted = text.split()
        every = [each.split() for each in training]
        if wanted in every and wanted:
            return "exact"
        length = len(wanted) if query and 3 <= len(wanted) < 13 else 13
        own = {tuple(wanted[i : i + length]) for i in range(len(wanted) - length + 1)}
        theirs = {tuple(e[i : i + length]) for e in every for i in range(len(e) - length + 1)}
        return ("contained" if length < 13 else "13-gram") if own & theirs else ""

    for texts, counts, query in (
        (queries, found.found, True),
        (documents, others.found, False),
    ):
        kinds = [kind(each, query=query) for each in texts.values()]
        assert counts == {name: kinds.count(name) for name in counts}
    assert {*found.hits} == {name for name, each in queries.items() if kind(each, query=True)}


def test_of_a_large_corpus_a_share_of_the_sequences_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(contamination, "MOST_HASHES", 1_000)
    words = [f"w{i}" for i in range(4_000)]
    documents = {str(i): " ".join(words[i : i + 200]) for i in range(0, 3_800, 200)}
    planted = [f"before {documents['400']} after", documents["800"]]
    _, found = looked_up(tmp_path, planted, queries={}, documents=documents)
    assert found.sampled == 4  # of 3,572 sequences, at most 1,000 stay
    assert found.found == {"exact": 1, "contained": 0, "13-gram": 1}


def test_batches_change_nothing(tmp_path, monkeypatch):
    whole = looked_up(tmp_path, TRAINING)
    monkeypatch.setattr(contamination, "_BATCH", 10)
    assert looked_up(tmp_path, TRAINING) == whole


@pytest.mark.parametrize(
    ("kind", "score", "data", "texts"),
    [
        (
            "PairClassification",  # as MTEB has it: all pairs in one row
            "max_ap",
            Dataset.from_dict({"sentence1": [["a", "b"]], "sentence2": [["c", "d"]]}),
            [("00000", "a"), ("00000", "c"), ("00001", "b"), ("00001", "d")],
        ),
        (
            "STS",
            "cosine_spearman",
            Dataset.from_dict({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1, 2]}),
            [("00000", "a"), ("00000", "c"), ("00001", "b"), ("00001", "d")],
        ),
        (
            "Reranking",  # the queries of a reader are scored as one
            "max_over_subqueries_map_at_1000",
            {"queries": [{"id": "7_0", "text": "a"}, {"id": "7_1", "text": "b"}], "corpus": []},
            [("7", "a"), ("7", "b")],
        ),
    ],
)
def test_texts_have_the_ids_of_the_scores_in_records(kind, score, data, texts, monkeypatch):
    monkeypatch.setattr(contamination, "load_here", lambda task: None)
    task = SimpleNamespace(
        metadata=SimpleNamespace(type=kind, main_score=score, name="T", eval_splits=["test"]),
        hf_subsets=["default"],
        eval_splits=["test"],
        dataset={"default": {"test": data}},
        convert_v1_dataset_format_to_v2=lambda num_proc: None,
    )
    monkeypatch.setattr(contamination, "task_key", lambda task: "T")
    assert list(task_texts(task)[0].read()) == texts


def test_records_without_the_queries_that_were_found(tmp_path):
    record = make(scores={"q0": 1.0, "q1": 0.5, "q2": 0.0}, task="T")
    found, _ = looked_up(
        tmp_path, ["same words here"], queries={"q0": "Same words here", "q1": "no"}
    )
    clean = without(record, found.hits)
    assert (clean.main.value, clean.main.n) == (0.25, 2)
    assert dict(clean.per_query["nDCG@10"]) == {"q1": 0.5, "q2": 0.0}


def _not_unicode():
    """A table whose only text is not UTF-8."""
    column = pa.array([b"\xff"]).view(pa.string())
    file = io.BytesIO()
    pq.write_table(pa.table({"text": column}), file)
    return file.getvalue()


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
        ("data.bin", b"x", "expected training data in files of type .jsonl"),
        ("bad.jsonl", b'{"a": "b"}\nnot json\n', "bad.jsonl:2: not JSON"),
        ("bad.parquet", b"PAR1", "cannot be read"),
        ("big.parquet", _often("x" * (17 << 20)), "big.parquet:1: a text of more than 16 MiB"),
        ("odd.parquet", _not_unicode(), "odd.parquet: cannot be read after row 1"),
        ("much.parquet", _often("x" * (1 << 20)), "much.parquet:17: unpacks to more than"),
        (
            "chats.parquet",
            _often("x" * (1 << 20), rows=100),
            "chats.parquet:2: unpacks to more than 16 MiB",
        ),
        ("bad.jsonl.gz", b"plain", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)):
        look_up(training_files([tmp_path / name]), texts_of(QUERIES))
