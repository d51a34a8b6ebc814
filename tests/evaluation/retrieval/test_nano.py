"""The tier `nano`: small sets of MTEB, and those that a rule cuts from large ones."""

import json
from dataclasses import replace

import mteb
import pytest
from helpers.mteb_tasks import WORDS, loaded, search_data
from helpers.multilingual import write_config

from qwen3nb.answers.evaluation import scores_table
from qwen3nb.answers.one_model import small_sets_table
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.datasets.nano import RULE, Sizes
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import choose_tasks, task_key, tier_tasks
from qwen3nb.evaluation.mteb.sizes import task_parts
from qwen3nb.evaluation.retrieval.nano import nano_collection, nano_data
from qwen3nb.evaluation.retrieval.rerank import rerank_items
from qwen3nb.records.store import records_under, verify
from qwen3nb.report.hub_results import hub_results_text
from qwen3nb.report.render.home import command_again
from qwen3nb.tiers import BENCHMARKS, TIERS, is_search

QUERIES = 70  # of which the rule draws 50


def texts():
    """A document per query, which has its two words."""
    documents, queries = {}, {}
    for number in range(QUERIES):
        first, second = WORDS[number % len(WORDS)], WORDS[number // len(WORDS) % len(WORDS)]
        documents[f"d{number}"] = f"{first} {second} again"
        queries[f"q{number}"] = f"{first} {second}"
    return documents, queries, {f"q{number}": {f"d{number}": 1} for number in range(QUERIES)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BEIR folder, with a query that has no relevant document."""
    folder = tmp_path_factory.mktemp("data") / "weather"
    (folder / "qrels").mkdir(parents=True)
    documents, queries, qrels = texts()
    for name, values in (("corpus", documents), ("queries", queries | {"none": "thaw"})):
        rows = [json.dumps({"_id": id_, "text": text}) for id_, text in values.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    lines = [f"{query}\t{document}\t1" for query, grades in qrels.items() for document in grades]
    lines = ["query-id\tcorpus-id\tscore", *lines, "none\td0\t0"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines))
    return folder


def run(data=None, **options):
    return evaluate("bm25", data, show_progress=False, **options)


def test_the_tier_is_mtebs_nanobeir_and_two_forums():
    of_mteb = [task.metadata.name for task in mteb.get_benchmark("NanoBEIR").tasks]
    assert sorted(BENCHMARKS["NanoBEIR"].tasks) == sorted(of_mteb)
    keys = [task_key(task) for task in tier_tasks("nano")]
    assert keys == list(TIERS["nano"].task_keys) == list(TIERS["nano"].reranking)
    assert sorted(set(keys) - set(of_mteb)) == [
        "CQADupstackGamingRetrieval-nano",
        "CQADupstackUnixRetrieval-nano",
    ]
    assert all(is_search(key) for key in keys)


def test_a_set_of_nanobeir_loads_from_a_mirror(tmp_path, monkeypatch):
    """In the layout of the hub: configurations for corpus, queries and qrels, split train."""
    documents, queries, qrels = texts()
    mirror = tmp_path / "mirror"
    rows = {
        "corpus": [{"_id": id_, "title": "", "text": text} for id_, text in documents.items()],
        "queries": [{"_id": id_, "text": text} for id_, text in list(queries.items())[:50]],
        "qrels": [
            {"query-id": query, "corpus-id": document, "score": 1}
            for query, grades in list(qrels.items())[:50]
            for document in grades
        ],
    }
    place = mirror / "mteb" / "NanoSciFactRetrieval"
    card = ["---", "configs:"]
    for config, values in rows.items():
        card += write_config(place, config, {"train": values})
    (place / "README.md").write_text("\n".join([*card, "---", ""]))
    monkeypatch.setenv("QWEN3NB_MIRROR", str(mirror))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (record,) = run(tasks="NanoSciFactRetrieval", tier="nano")
    # MTEB's own set is never cut again.
    assert record.task.key == "NanoSciFactRetrieval"
    assert record.data.nano is None
    assert record.task.size == {"documents": QUERIES, "queries": 50}
    assert record.value == pytest.approx(record.task.mteb.value, abs=1e-5)


def test_own_data_are_cut_and_the_record_says_how(folder, tmp_path):
    options = {"output": tmp_path / "results"}
    (whole,) = run(folder, **options)
    (small,) = run(folder, tier="nano", **options)
    assert (whole.task.key, small.task.key) == ("weather", "weather-nano")
    assert whole.task.revision != small.task.revision
    (facts,) = small.data.nano
    assert facts == {
        "part": "weather",
        "rule": RULE,
        "seed": 0,
        "limits": [50, 5_000],
        "queries": [50, QUERIES],
        "documents": [QUERIES, QUERIES],
        "relevant": 50,
        "candidates": 0,
        "judged_zeros": 0,
        "hard_negatives": facts["hard_negatives"],
        "others": 20 - facts["hard_negatives"],
        "source": whole.task.revision,
        "sha256": small.task.revision,
    }
    # A query scores what it scores in the whole set: here, all documents are the same.
    for query, score in small.per_query["nDCG@10"].items():
        assert score == whole.per_query["nDCG@10"][query]
    assert small.data in [record.data for record in records_under(tmp_path / "results")]
    assert list(verify(small)) == []
    assert run(folder, tier="nano", **options).reused == ("weather-nano",)
    table = small_sets_table([whole, small])
    text = " ".join(table.to_text("markdown").split())
    assert "weather-nano" in text
    assert f"50 of {QUERIES}" in text
    assert facts["source"][:12] in text
    assert "no room" not in text
    assert small_sets_table([whole]) is None
    small = replace(small, options={"data": "weather", "tier": "nano", "checkpoint": "bm25"})
    assert "--data weather --tier nano" in command_again(small)


def task_of(name="SciFact"):
    documents, queries, qrels = texts()
    data = search_data(documents, queries, qrels | {"q0": {"d1": 0}})
    return loaded(name, {"default": {"test": data}})


def test_a_task_is_cut_for_the_block_alone(tmp_path):
    (task,) = choose_tasks(tasks="SciFact-nano")
    whole = task_of()
    task.dataset, task.data_loaded = whole.dataset, True
    results = run(tasks=[task], output=tmp_path / "results")
    (record,) = results
    assert record.task.key == task_key(task) == "SciFact-nano"
    assert record.task.size == {"documents": QUERIES, "queries": 50}
    (facts,) = record.data.nano
    assert facts["queries"] == [50, QUERIES - 1]
    pinned = task.metadata.dataset["revision"]
    assert record.task.revision == f"{pinned}-nano-{record.task.revision[-16:]}"
    assert len(task.dataset["default"]["test"]["queries"]) == QUERIES
    # The whole task has a record of its own, beside it.
    (whole_record,) = run(tasks=[whole], output=tmp_path / "results")
    assert whole_record.task.key == "SciFact"
    again = run(tasks=[task], output=tmp_path / "results")
    assert again.reused == ("SciFact-nano",)
    # It is no result of the task, for MTEB's leaderboard or the hub.
    text = hub_results_text([record, whole_record])
    assert text.count("task_id: ") == 1
    assert "SciFact-nano" in text.partition("- dataset:")[0]  # as left out
    assert command_again(record).startswith("qwen3nb eval --model bm25 --tasks SciFact-nano ")


def test_the_tier_cuts_tasks_that_are_named():
    (task,) = choose_tasks(tasks="SciFact", tier="nano")
    assert task_key(task) == "SciFact-nano"
    with pytest.raises(
        ValueError, match="STSBenchmark is of the type STS; the tier nano has small"
    ):
        choose_tasks(tasks="STSBenchmark", tier="nano")
    assert task_key(choose_tasks(tasks="SciFact", tier="smoke")[0]) == "SciFact"
    # Published sizes are those of the whole set.
    (part,) = task_parts(task, 0, read=False)
    assert (part.queries, part.documents) == (50, 5_000)


def test_parts_of_a_task_are_cut_each():
    documents, queries, qrels = texts()
    data = search_data(documents, queries, qrels)
    task = loaded("BelebeleRetrieval", {}, hf_subsets=["deu_Latn-deu_Latn", "eng_Latn-deu_Latn"])
    task.dataset = {subset: {"test": data} for subset in task.hf_subsets}
    task.is_nano = True
    with nano_data(task) as facts:
        sizes = [len(task.dataset[subset]["test"]["queries"]) for subset in task.hf_subsets]
    assert sizes == [50, 50]
    assert [part["part"] for part in facts] == [
        "BelebeleRetrieval-deu_Latn-deu_Latn-test",
        "BelebeleRetrieval-eng_Latn-deu_Latn-test",
    ]


def test_a_reranker_reranks_the_small_set(folder):
    (item,) = rerank_items(folder, depth=5, nano=True)
    assert item.key == "weather.bm25-5-nano"
    assert item.collection == nano_collection(TestCollection.from_beir(folder))
    (item,) = rerank_items(task_of("SciFact"), depth=5)
    assert item.key == "SciFact.bm25-5"


def test_hard_negatives_are_bm25s_first_documents():
    """By hand: two documents have a word of the query; both are taken before the others."""
    documents = {
        "r": "sun",
        "h1": "rain sun",
        "h2": "sun fog sun fog",
        **dict.fromkeys("abcde", "hail"),
    }
    collection = TestCollection.from_texts({"q": "sun"}, documents, {"q": ["r"]})
    part = nano_collection(collection, sizes=Sizes(1, 3))
    assert set(part.documents) == {"r", "h1", "h2"}
    assert (part.nano.relevant, part.nano.hard_negatives, part.nano.others) == (1, 2, 0)
    assert nano_collection(part) is part


def test_own_questions_are_no_collection():
    domain = load_domain([{"id": "q", "query": "sun", "expected": ["d"]}], {"d": "sun"})
    with pytest.raises(ValueError, match="the tier nano cuts collections; got a Domain"):
        run(domain, tier="nano")


def test_a_page_says_which_scores_are_of_small_sets(folder, tmp_path):
    """Also where relevant documents leave no room for more queries."""
    (record,) = run(folder, tier="nano", output=tmp_path / "results")
    note = scores_table([], results=[record]).note
    assert note.startswith("Small sets, cut from whole ones: weather-nano.")
    (facts,) = record.data.nano
    fewer = replace(record, data=replace(record.data, nano=[{**facts, "queries": [5, QUERIES]}]))
    note = small_sets_table([fewer]).note
    assert "left no room for more queries: weather-nano." in note
