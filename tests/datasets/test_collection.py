import json
from dataclasses import replace

import mteb
import pytest
import pytrec_eval
from datasets import Dataset
from helpers import TEXTS
from helpers.mteb_tasks import WORDS, loaded

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, from_mteb
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.equal_texts import ITSELF, JUDGED_ITSELF, SAME_TEXT
from qwen3nb.datasets.trec import read_run
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model
from qwen3nb.records.record import safe_name

DOCUMENTS = {f"d{index}": text for index, text in enumerate([*TEXTS, "a cat", "a dog", "rain"])}
QUERIES = {"q1": TEXTS[0], "q2": TEXTS[2], "q3": "nobody judged this"}
RELEVANT = {"q1": {"d0": 2, "d1": 1}, "q2": ["d2"]}


def test_judgements_must_be_about_something():
    with pytest.raises(ValueError, match="document 'd9' is judged but has no text"):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q1": ["d9"]})
    with pytest.raises(ValueError, match="query 'q9' is judged .*ids of queries look like 'q1', "):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q9": ["d1"]})
    with pytest.raises(ValueError, match="no query has a relevant document"):
        TestCollection.from_texts(QUERIES, DOCUMENTS, {"q1": {"d1": 0}})
    with pytest.raises(ValueError, match=r"the id 'd\\udc80' has unprintable characters"):
        TestCollection.from_texts(QUERIES, DOCUMENTS | {"d\udc80": "x"}, RELEVANT)


def beir_rows(folder, *, corpus, queries, qrels):
    """A BEIR folder from texts per id, and lines of qrels."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", corpus), ("queries", queries)):
        rows = [json.dumps({"_id": i, "text": text}) for i, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


def test_what_is_odd_is_counted_and_shown(tmp_path):
    folder = beir_rows(
        tmp_path / "odd",
        corpus={"a": "one", "b": "one", "c": " ", "d": "two"},
        queries={"q1": "one?", "q2": "none?", "q3": "unjudged?", "q4": "one?"},
        # q2 has no relevant document, q3 no judgement; z is missing; (q1, a) is 1, then 2.
        qrels="q1\ta\t1\nq1\tb\t0\nq1\tz\t1\nq1\ta\t2.0\nq2\td\t0\nq4\ta\t1\nq4\ta\t1\n",
    )
    collection = TestCollection.from_beir(folder)
    assert collection.qrels == {"q1": {"a": 2, "b": 0}, "q4": {"a": 1}}
    assert collection.counts == {
        "judged documents not in the corpus": 1,
        "queries without a relevant document, left out": 1,
        "queries without judgements, left out": 1,
        "judgements given twice with different grades, the last one counts": 1,
        "empty documents": 1,
        "documents equal to another": 1,
        "queries equal to another": 1,
    }
    assert "2 queries; judged documents not in the corpus: 1; " in repr(collection)


@pytest.mark.parametrize("name", ["arguana", "mine"])
def test_a_document_that_is_the_query_goes_in_a_folder_of_any_name(tmp_path, name):
    """By id and text; not by an id or a text alone, nor if it is judged."""
    rows = {
        "corpus": {"1": "Tax  THEM", "2": "other", "3": "A title. tax them not", "4": "tax them"},
        "queries": {"1": "tax them", "2": "tax them not", "3": "tax them not", "4": "other"},
        "qrels": "1\t2\t1\n1\t3\t1\n2\t1\t1\n3\t1\t1\n4\t2\t1\n",
    }
    collection = TestCollection.from_beir(beir_rows(tmp_path / name, **rows))
    assert collection.itself == {"1": ["1"], "3": ["3"]}
    assert collection.counts[ITSELF] == 2
    assert collection.counts[JUDGED_ITSELF] == 1
    assert collection.counts[SAME_TEXT] == 1
    assert collection.clusters == {"1": "1", "2": "2", "3": "2", "4": "4"}
    run = evaluate("bm25", collection, show_progress=False).results[0]
    assert run.task.counts[ITSELF] == 2
    renamed = replace(collection, itself={})
    assert renamed.revision != collection.revision


def test_a_query_that_nothing_can_answer_is_left_out_as_in_own_data(tmp_path, caplog):
    """Both doors agree with pytrec_eval on the judgements of documents that exist."""
    corpus = {f"d{index}": f"topic{index} words" for index in range(5)}
    queries = {f"q{index}": f"topic{index}" for index in range(4)}
    grades = {"q0": {"d0": 1}, "q1": {"d1": 1, "gone1": 1}, "q2": {"gone2": 1}, "q3": {"d3": 1}}
    lines = [f"{query}\t{name}\t1\n" for query, each in grades.items() for name in each]
    folder = beir_rows(tmp_path / "b", corpus=corpus, queries=queries, qrels="".join(lines))
    collection = TestCollection.from_beir(folder)
    assert collection.counts == {
        "judged documents not in the corpus": 2,
        "queries whose relevant documents are not in the corpus, left out": 1,
    }
    assert "q2" in caplog.text
    domain = load_domain(
        [
            {"id": query, "query": queries[query], "relevance_grades": dict.fromkeys(each, 3)}
            for query, each in grades.items()
        ],
        [{"id": name, "text": text} for name, text in corpus.items()],
    )
    assert domain.dropped == ("q2",)
    assert domain.counts == collection.counts
    there = {"q0": {"d0": 1}, "q1": {"d1": 1}, "q3": {"d3": 1}}
    oracle = pytrec_eval.RelevanceEvaluator(there, {"ndcg_cut.10"})
    for data in (collection, domain):
        result = evaluate("bm25", data, show_progress=False, runs=True).results[0]
        (run,) = (result.path(paths.results()).parent / name for name in result.files.runs)
        expected = oracle.evaluate(read_run(run))
        values = {query: each["ndcg_cut_10"] for query, each in expected.items()}
        assert result.per_query["nDCG@10"] == pytest.approx(values)


@pytest.mark.parametrize(
    "name", ["test collection", "ärger", ".hidden", "esc\x1b[31m", "数据", "x" * 200]
)
def test_a_folder_of_any_name_gives_one_that_is_safe_and_its_own(tmp_path, name):
    rows = {"corpus": {"1": "x y", "2": "x z"}, "queries": {"1": "x"}, "qrels": "1\t1\t1\n"}
    label = TestCollection.from_beir(beir_rows(tmp_path / name, **rows)).name
    assert safe_name(label) == label
    other = TestCollection.from_beir(beir_rows(tmp_path / label.rpartition("-")[0], **rows)).name
    assert other != label


def judged_zero():
    """A task in which "a" has an answer, "b" only zeros, "c" no judgement; "gone" has no text."""
    ids = [f"d{index}" for index in range(len(WORDS))]
    split = {
        "corpus": Dataset.from_dict({"id": ids, "text": WORDS, "title": [""] * len(ids)}),
        "queries": Dataset.from_dict({"id": ["a", "b", "c"], "text": ["sun rain", "moon", "fog"]}),
        "relevant_docs": {"a": {"d0": 1, "d2": 0}, "b": {"d1": 0}, "c": {}, "gone": {"d1": 1}},
        "top_ranked": None,
    }
    return loaded("SciFact", {"default": {"test": split}})


@pytest.mark.integration
def test_queries_whose_judgements_are_all_zero_count_as_0_as_in_mteb():
    (collection,) = from_mteb(judged_zero())
    assert list(collection.queries) == list(collection.qrels) == ["a", "b"]
    ours = evaluate("bm25", collection, show_progress=False).results[0]
    assert ours.per_query["nDCG@10"]["b"] == 0
    zero = "queries without a relevant document, counted as 0"
    assert ours.task.counts[zero] == 1
    assert ours.task.counts["queries without judgements, left out"] == 1
    model = load_model("bm25")
    theirs = mteb.evaluate(model, judged_zero(), cache=None, show_progress_bar=False)
    assert ours.main.value == pytest.approx(theirs.task_results[0].get_score(), abs=1e-5)
    suite = evaluate(model, tasks=[judged_zero()], show_progress=False).results[0]
    assert suite.per_query["nDCG@10"] == ours.per_query["nDCG@10"]
    assert suite.task.counts[zero] == 1
