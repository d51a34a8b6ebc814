"""One first stage per data set, kept and shared by all rerankers."""

import json
from functools import partial

import pytest
from helpers.beir import write_beir
from helpers.rerankers import write_reranker

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection, find_collections
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.retrieval import candidates as module
from qwen3nb.evaluation.retrieval.candidates import (
    LoadedCandidates,
    limited_collection,
    load_candidates,
    split_data,
)
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.search.bm25 import BM25

TASK = "PyDocsSampleRetrieval"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache in which nothing is kept yet."""
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def counted(monkeypatch):
    """How often a data set was loaded, and how often BM25 searched."""
    calls = {"loads": 0, "searches": 0}
    load, search = module.find_collections, BM25.search

    def counting_load(spec):
        calls["loads"] += 1
        return load(spec)

    def counting_search(self, *args, **options):
        calls["searches"] += 1
        return search(self, *args, **options)

    monkeypatch.setattr(module, "find_collections", counting_load)
    monkeypatch.setattr(BM25, "search", counting_search)
    return calls


def test_kept_candidates_are_those_that_were_searched(own_cache, counted):
    (task,) = split_data(TASK)
    (once,) = load_candidates(task, depth=3, limit=5)
    (again,) = load_candidates(task, depth=3, limit=5)

    assert counted == {"loads": 1, "searches": 1}
    assert again == once
    assert again.size["documents"] > len(again.collection.documents)
    retrieved = {name for scores in once.first.run.values() for name in scores}
    assert again.collection.documents.keys() == retrieved
    assert not task.data.data_loaded  # MTEB's copy is gone

    load_candidates(task, depth=4, limit=5)
    load_candidates(task, depth=3, limit=4)
    assert counted == {"loads": 3, "searches": 3}


def test_damaged_candidates_are_made_again(own_cache, counted):
    (task,) = split_data(TASK)
    (once,) = load_candidates(task, depth=2, limit=3)
    (file,) = (paths.cache() / "candidates").iterdir()
    whole = file.read_text()
    text = next(iter(once.collection.queries.values()))
    for damaged in (whole[:-9], whole.replace(json.dumps(text), '"other"'), "[]"):
        file.write_text(damaged)
        assert load_candidates(task, depth=2, limit=3) == [once]
        assert file.read_text() == whole
    (run,) = (paths.cache() / "first-stage").glob("*.trec")
    run.unlink()
    assert load_candidates(task, depth=2, limit=3) == [once]
    assert counted == {"loads": 5, "searches": 2}  # the first stage's run is kept apart


@pytest.mark.integration
def test_a_second_reranker_neither_loads_nor_searches(own_cache, counted, tmp_path):
    beir = write_beir(tmp_path / "words")
    options = {"depth": 3, "limit": 2, "show_progress": False}
    runs = []
    for seed in (1, 2):
        folder = write_reranker(tmp_path / f"reranker{seed}", seed=seed)
        model = load_reranker(folder, device="cpu")
        runs.append(rerank(model, [TASK, beir], **options))
    assert counted == {"loads": 1 + 2, "searches": 2}  # folders are read, and not searched again
    one, other = (run.results[0] for run in runs)
    assert one.model.identity != other.model.identity
    assert one.per_query["first nDCG@10"] == other.per_query["first nDCG@10"]
    assert rerank(model, [TASK, beir], **options).reused == (TASK, "words")
    assert counted["searches"] == 2


def test_several_rerankers_load_a_data_set_once(own_cache, counted, tmp_path, monkeypatch):
    beir = write_beir(tmp_path / "words")
    parts = [*split_data(beir), *split_data(find_collections(beir)[0])]
    loaded = LoadedCandidates()
    once = [loaded.load(part, depth=3) for part in parts]
    again = [loaded.load(part, depth=3) for part in parts]
    assert all(a is b for a, b in zip(once, again, strict=True))
    assert counted["loads"] == 2
    assert loaded.load(parts[0], depth=2) is not once[0]
    small = LoadedCandidates(limit=10)
    assert small.load(parts[0], depth=3) is not small.load(parts[0], depth=3)  # does not fit


def test_a_group_is_split_and_knows_how_many_it_is():
    parts = split_data("CQADupstackRetrieval")
    assert len(parts) == 12
    assert {(part.group, part.parts) for part in parts} == {("CQADupstackRetrieval", 12)}
    assert parts[0].name == "CQADupstackAndroidRetrieval"
    (alone,) = split_data("CQADupstackAndroidRetrieval")
    assert (alone.group, alone.parts) == ("", 0)


def test_what_is_no_data_set_says_so():
    with pytest.raises(DataError, match="'SciFcat' is neither a folder nor an MTEB task.*SciFact"):
        split_data("SciFcat")


def test_a_limit_keeps_what_is_judged():
    documents = {f"d{i}": f"text {i}" for i in range(40)}
    make = partial(TestCollection.from_texts, {f"q{i}": "text" for i in range(9)}, documents)
    whole = make({f"q{i}": [f"d{i}", f"d{i + 20}"] for i in range(9)})

    small = limited_collection(whole, 3)

    assert len(small.queries) == len(small.qrels) == 3
    judged = {document for grades in small.qrels.values() for document in grades}
    assert judged <= small.documents.keys()
    assert len(small.documents) == len(judged) + 3
    assert limited_collection(whole, 3) == small
    assert limited_collection(whole, 0) is whole
    assert limited_collection(whole, 99) == whole
