"""Texts of tasks planted in training files are found, of each kind, and no others are."""

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from datasets import Dataset
from helpers.records import make
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.answers.contamination import contamination as look_for_texts
from qwen3nb.datasets.training_data import find_training_data
from qwen3nb.evaluation import contamination
from qwen3nb.evaluation.contamination import Texts, look_up, task_texts, without

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
    return look_up(find_training_data([file]), texts_of(queries, documents))


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


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_found_is_what_sets_of_words_say(tmp_path_factory, data):
    text = st.lists(st.sampled_from("abc"), max_size=22).map(" ".join)
    queries = dict(enumerate(data.draw(st.lists(text, min_size=1, max_size=6))))
    documents = dict(enumerate(data.draw(st.lists(text, max_size=6))))
    training = ["another", *data.draw(st.lists(text, max_size=6))]
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


ROWS = [{"text": text} for text in TRAINING]


@pytest.mark.parametrize(
    "training",
    [
        pd.DataFrame(ROWS),
        Dataset.from_list(ROWS),
        ROWS,
        [pd.DataFrame(ROWS)],
        "train.jsonl",
        Path("train.jsonl"),
        ["train.jsonl"],
        (Path("train.jsonl"),),
    ],
)
def test_training_data_are_a_table_or_a_file_alone_or_several(tmp_path, monkeypatch, training):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps(row, ensure_ascii=False) for row in ROWS]
    Path("train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(contamination, "task_texts", lambda task: texts_of(QUERIES))
    answer = look_for_texts(training, tasks="AuthorSTS")
    assert len(answer.training.sources) == 1
    assert {*answer.texts[0].hits} == KINDS.keys()
