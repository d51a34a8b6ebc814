"""Scores per query and per part, by hand and beside MTEB's."""

from math import log2
from statistics import fmean
from types import SimpleNamespace

import pytest
from datasets import Dataset, DatasetDict
from helpers.mteb_tasks import WORDS, loaded, search_data
from helpers.search_texts import search_part

from qwen3nb.datasets.collection import collection_of_part
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.evaluate import data_counts
from qwen3nb.evaluation.mteb.per_query import SearchTexts, score_task
from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.records.store import verify


def outcome(scores):
    """MTEB's result, from its main score by split and subset."""
    entries = {
        split: [
            {"hf_subset": subset, "languages": ["eng-Latn"], "main_score": value}
            for subset, value in subsets.items()
        ]
        for split, subsets in scores.items()
    }
    values = [value for subsets in scores.values() for value in subsets.values()]
    return SimpleNamespace(scores=entries, get_score=lambda: sum(values) / len(values))


def collection(qrels):
    return search_data({d: d for d in ("d1", "d2")}, {query: query for query in qrels}, qrels)


def test_pairs_in_one_row_are_counted():
    rows = {"sentence1": [list(WORDS)], "sentence2": [list(WORDS)], "labels": [[0, 1] * 6]}
    task = loaded("TwitterURLCorpus", DatasetDict(test=Dataset.from_dict(rows)))
    scores = score_task(task, {}, outcome({"test": {"default": 0.5}}))
    assert scores.metrics["max_ap"].n == 12
    assert (scores.unit, scores.size) == ("pairs", {"pairs": 12})


def test_a_query_without_a_relevant_document_counts_as_0_and_one_without_judgement_not():
    qrels = {"a": {"d1": 1}, "b": {"d1": 0, "d2": -1}}
    task = loaded("SciFact", {"default": {"test": collection(qrels)}})
    ranked = {"default": {"test": {"a": {"d1": 0.9, "d2": 0.1}, "b": {"d1": 0.5}}}}
    scores = score_task(task, ranked, outcome({"test": {"default": 0.5}}))
    assert scores.per_query["nDCG@10"] == {"a": 1.0, "b": 0.0}
    assert scores.metrics["nDCG@10"].n == 2
    assert scores.top == {"a": ["d1", "d2"], "b": ["d1"]}
    qrels["not a query"] = {"d1": 1}
    assert score_task(task, ranked, outcome({"test": {"default": 0.5}})) == scores
    with pytest.raises(EvaluationError, match="SciFact: MTEB's ndcg_at_10 is 0.9, the per-query"):
        score_task(task, ranked, outcome({"test": {"default": 0.9}}))


def test_scores_are_in_the_order_of_the_queries():
    """MTEB groups judgements in another order each time, and records are compared by digests."""
    data = collection({"b": {"d1": 1}, "a": {"d2": 1}, "c": {"d1": 1}})
    data["relevant_docs"] = {query: data["relevant_docs"][query] for query in ("c", "b", "a")}
    task = loaded("SciFact", {"default": {"test": data}})
    ranked = {"default": {"test": {query: {"d1": 0.9, "d2": 0.1} for query in "abc"}}}
    expected = fmean([1, 1, 1 / log2(3)])
    scores = score_task(task, ranked, outcome({"test": {"default": expected}}))
    queries = list(data["queries"]["id"])
    assert queries == ["b", "a", "c"]
    assert list(scores.per_query["nDCG@10"]) == list(scores.top) == list(scores.qrels) == queries
    assert list(collection_of_part(task, "default", "test", name="all").qrels) == queries


@pytest.mark.parametrize("order", [1, -1])
def test_the_queries_of_one_reader_are_one(order):
    qrels = {"7_0": {"d1": 1, "d2": 0}, "7_1": {"d1": 1, "d2": 0}, "8_0": {"d1": 0, "d2": 1}}
    qrels = dict(list(qrels.items())[::order])
    task = loaded("MindSmallReranking", {"default": {"test": collection(qrels)}})
    ranked = {
        "7_0": {"d1": 0.1, "d2": 0.5},
        "7_1": {"d1": 0.9, "d2": 0.2},  # the best score of d1 beats that of d2
        "8_0": {"d1": 0.9, "d2": 0.2},
    }
    theirs = outcome({"test": {"default": 0.75}})
    scores = score_task(task, {"default": {"test": ranked}}, theirs)
    assert (scores.main, scores.unit) == ("MAP@1000", "readers")
    assert scores.per_query["MAP@1000"] == {"7": 1.0, "8": 0.5}
    assert next(iter(scores.metrics)) == "MAP@1000"
    assert scores.metrics["MAP@1000"].n == 2
    assert scores.size == {"documents": 2, "queries": 3}
    assert scores.top == {"7": ["d1", "d2"], "8": ["d1", "d2"]}


def sts(subsets):
    """STS17 in several languages, each with its own pairs."""
    data = {
        subset: DatasetDict(
            test=Dataset.from_dict(
                {
                    "sentence1": [f"{WORDS[i]} {i * shift % 7}" for i in range(12)],
                    "sentence2": [WORDS[(i * shift) % 12] for i in range(12)],
                    "score": [float((i * shift) % 5) for i in range(12)],
                }
            )
        )
        for shift, subset in zip((7, 11), subsets, strict=False)
    }
    return loaded("STS17", data, hf_subsets=list(subsets))


def test_the_score_over_languages_is_the_mean_of_theirs_as_in_mteb(encoder, tmp_path):
    run = evaluate(encoder, tasks=[sts(["en-en", "es-es"])], output=tmp_path, show_progress=False)
    (record,) = run.results
    assert record.task.key == "STS17-en-en_es-es"
    assert record.main.value == pytest.approx(record.task.mteb.value, abs=1e-9)
    english, spanish = record.parts
    assert (english.split, english.subset, english.languages) == ("test", "en-en", ("eng-Latn",))
    assert spanish.languages == ("spa-Latn",)
    for part in record.parts:
        assert part.score.value == pytest.approx(part.mteb, abs=1e-9)
        assert part.score.n == 12
    assert record.main.value == pytest.approx((english.score.value + spanish.score.value) / 2)
    assert record.main.low < record.main.value < record.main.high
    assert (record.main.n, record.task.size) == (24, {"pairs": 24})
    assert {query.rpartition("/")[0] for query in record.per_query["gold"]} == {
        "test/en-en",
        "test/es-es",
    }
    assert verify(record) == []
    file = record.path(tmp_path)
    assert Result.load(file) == record
    head, _, tail = file.read_text().rpartition(f'"value": {english.score.value!r}')
    file.write_text(f'{head}"value": 0.123{tail}')
    assert any("Spearman on test/en-en: value is 0.123" in line for line in verify(file))

    (alone,) = evaluate(
        encoder, tasks=[sts(["en-en"])], output=tmp_path, show_progress=False
    ).results
    assert alone.parts == ()
    assert alone.main.value == pytest.approx(english.score.value)
    assert set(alone.per_query["gold"]) < set(record.per_query["gold"])


def test_parts_that_disagree_with_mteb_give_no_number_even_if_their_mean_agrees():
    task = sts(["en-en", "es-es"])
    gold = {subset: list(task.dataset[subset]["test"]["score"]) for subset in ("en-en", "es-es")}
    predicted = {subset: {"test": {"cosine_scores": gold[subset]}} for subset in gold}
    scores = score_task(task, predicted, outcome({"test": {"en-en": 1.0, "es-es": 1.0}}))
    assert [part.score.value for part in scores.parts] == pytest.approx([1.0, 1.0])
    wrong = outcome({"test": {"en-en": 1.1, "es-es": 0.9}})
    with pytest.raises(EvaluationError, match="STS17 on test/en-en: MTEB's .* is 1.1, the"):
        score_task(task, predicted, wrong)


def task(qrels, texts=("sun", "moon", "sun", " ")):
    documents = {f"d{index}": text for index, text in enumerate(texts)}
    split = search_data(documents, {"a": "x", "b": "y", "c": "z"}, qrels)
    return loaded("SciFact", {"default": {"test": split}})


def test_what_a_reader_should_know_is_counted():
    assert data_counts(task({"a": {"d0": 1, "d1": 0, "gone": 1}, "b": {"d2": 0}, "c": {}})) == {
        "queries without judgements, left out": 1,
        "queries without a relevant document, counted as 0": 1,
        "judged documents not in the corpus": 1,
        "documents equal to another": 1,
        "empty documents": 1,
    }

    fine = {query: {"d0": 1} for query in "abc"}
    assert data_counts(task(fine, texts=("sun", "moon"))) == {}


def test_judgements_of_other_documents_are_refused():
    with pytest.raises(EvaluationError, match="SciFact: 2 of 3 judged documents are not in the"):
        data_counts(task({"a": {"d0": 1, "x": 1, "y": 1}}))


def test_the_parts_of_a_task_are_kept_apart():
    """The ids of documents may mean other texts in another language."""
    english = search_part({"q1": "one"}, {"d": "english"}, {"q1": {"d": 1}}, prefix="test/en/")
    german = search_part({"q1": "eins"}, {"d": "deutsch"}, {"q1": {"d": 2}}, prefix="test/de/")
    texts = SearchTexts([english, german])
    assert [texts.text(f"test/{part}/q1") for part in ("en", "de")] == ["one", "eins"]
    assert texts.grades("test/de/q1") == {"d": 2}
    read = texts.documents({"test/de/q1": ["d"], "test/en/q1": ["d"]})
    assert (read["test/de/q1"]["d"].text, read["test/en/q1"]["d"].text) == ("deutsch", "english")
    assert (texts.text("q1"), texts.documents({"q1": ["d"]})) == ("", {"q1": {}})
    assert texts.grades("q1") == {}


def test_the_texts_of_an_embedded_task_are_its_queries():
    texts = SearchTexts.of_task(TaskInfo("PyDocsSampleRetrieval", "Retrieval", "nDCG@10"))
    assert texts.text("asyncio.gather").startswith("Return a future aggregating")
    (judged,) = texts.grades("asyncio.gather")
    assert texts.documents({"asyncio.gather": [judged]})["asyncio.gather"][judged].text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AuthorSTS", "of type STS and has no queries"),
        ("SciFact", "neither in a mirror"),
    ],
)
def test_texts_that_are_not_at_hand_are_not_downloaded(name, message, tmp_path, monkeypatch):
    import datasets

    monkeypatch.delenv("QWEN3NB_MIRROR", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        SearchTexts.of_task(TaskInfo(name, "Retrieval", "nDCG@10"))
