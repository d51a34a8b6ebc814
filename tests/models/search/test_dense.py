"""Search by blocks of documents: whatever the block and the limit, the same hits."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.bench import search as bench
from qwen3nb.models.encoders import encode_blocks as blocks_module
from qwen3nb.models.encoders.encode_blocks import block_size, encode_blocks
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search import vector_store as store_module
from qwen3nb.models.search.dense import DenseSearch, search_texts
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.vector_store import VectorStore, memory_limit, stored_vectors
from qwen3nb.models.types import EncoderError

# Equal texts tie; an empty one has the vector zero.
DOCUMENTS = [f"document {n % 17}" for n in range(40)] + [""]
QUERIES = [f"query {n}" for n in range(5)]


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("random:24", cache=False, show_progress=False)


@given(st.integers(1, 50), st.integers(1, 50))
@settings(deadline=None, max_examples=30)
def test_any_block_gives_the_hits_of_the_whole_corpus(encoder, block, k):
    whole = search(
        encoder.encode(QUERIES, role="query"), encoder.encode(DOCUMENTS), k=k, cosine=True,
        zeros=True,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_MOST", block)
        hits = search_texts(encoder, QUERIES, iter(DOCUMENTS), k=k, cosine=True, zeros=True)
    np.testing.assert_array_equal(hits.ids, whole.ids)
    np.testing.assert_array_equal(hits.scores, whole.scores)


def test_a_block_is_bounded_by_its_vectors_and_its_texts():
    assert [block_size(d) for d in (1, 384, 4096, 1 << 30)] == [32_768, 21_845, 2_048, 1]


def test_an_error_says_in_which_block(encoder, monkeypatch):
    monkeypatch.setattr(encoder, "_embed", lambda texts: np.full((len(texts), 24), np.nan, "f4"))
    with pytest.raises(EncoderError, match="^random-24: the vector of text 0 is not finite"):
        next(encode_blocks(encoder, DOCUMENTS, size=10))
    monkeypatch.undo()
    with pytest.raises(EncoderError, match="^counting from text 10: text 2 is not valid Unicode"):
        list(encode_blocks(encoder, [*DOCUMENTS[:12], "\ud800"], size=10))


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_stored_vectors_are_the_same_in_memory_and_in_a_file(encoder, limit, tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(blocks_module, "_MOST", 7)
    expected = encoder.encode(DOCUMENTS)
    with stored_vectors(encoder, iter(DOCUMENTS), total=41, limit=limit) as store:
        assert (store.shape, len(store)) == ((41, 24), 41)
        for size in (1, 10, 41, 99):
            np.testing.assert_array_equal(np.concatenate(list(store.blocks(size))), expected)
        order = np.array([40, 3, 3, 0])
        np.testing.assert_array_equal(store.rows(order), expected[order])
        np.testing.assert_array_equal(store.everything(), expected)
        half = store.mapped(lambda part: part[:, :12] / 2)
        assert half.shape == (41, 12)
        np.testing.assert_array_equal(half.rows(order), expected[order, :12] / 2)
        # The file has no name, so that nothing can stay behind.
        assert [*tmp_path.rglob("*.*")] == []
        assert (tmp_path / "cache").exists() == (limit == 0)
    for total in (40, 42):
        with (
            pytest.raises(ValueError, match=f"expected {total} texts; got 41"),
            stored_vectors(encoder, iter(DOCUMENTS), total=total, limit=limit),
        ):
            pass


def test_the_limit_is_a_share_of_the_free_memory_or_given(monkeypatch):
    monkeypatch.delenv(store_module.LIMIT, raising=False)
    monkeypatch.setattr(store_module, "available_memory", lambda: 4000)
    assert memory_limit() == 1000
    monkeypatch.setenv(store_module.LIMIT, "17")
    assert memory_limit() == 17
    monkeypatch.setenv(store_module.LIMIT, "8GB")
    with pytest.raises(ValueError, match="QWEN3NB_VECTORS_LIMIT in bytes.*'8GB'"):
        memory_limit()
    with pytest.raises(ValueError, match=r"expected vectors \(N, D\); got \(3,\)"):
        VectorStore.of(np.zeros(3, np.float32))


def rows(texts, prefix):
    return [{"id": f"{prefix}{n}", "text": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize("limit", ["0", "1000000"])
@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_an_encoder_as_a_search_model(encoder, kind, limit, monkeypatch, tmp_path):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    monkeypatch.setenv(store_module.LIMIT, limit)
    model = DenseSearch(encoder)
    model.index(kind(rows(DOCUMENTS, "d")))
    queries = kind(rows(QUERIES, "q"))
    run = model.search(queries, top_k=3)
    similarities = encoder.similarity(encoder.encode(QUERIES), encoder.encode(DOCUMENTS)).numpy()
    for query, each in zip(run.values(), similarities, strict=True):
        np.testing.assert_allclose(sorted(query.values()), np.sort(each)[-3:], atol=1e-6)
    candidates = {"q0": ["d40", "d2", "d1", "d2"], "q1": [], "q2": ["d3"]}
    among = model.search(queries, top_k=2, top_ranked=candidates)
    assert {query: len(hits) for query, hits in among.items()} == {
        "q0": 2, "q1": 0, "q2": 1, "q3": 0, "q4": 0,
    }  # fmt: skip
    assert among["q2"]["d3"] == pytest.approx(similarities[2, 3], abs=1e-6)
    with pytest.raises(ValueError, match="candidate 'x' is not in the corpus"):
        model.search(queries, top_k=2, top_ranked={"q0": ["x"]})


@pytest.mark.parametrize("ranked", [None, {"q0": ["d2", "d0", "d1"], "q1": ["d1", "d0"]}])
def test_queries_get_the_prompt_of_queries_and_documents_that_of_passages(ranked, monkeypatch):
    """By hand: cosines of the prompted texts, encoded without a role; the two best of each."""
    encoder = load_encoder("random:24", cache=False, show_progress=False)
    plain = load_encoder("random:24", cache=False, show_progress=False)
    monkeypatch.setattr(encoder, "prompts", {"query": "ask ", "passage": "tell "})
    monkeypatch.setattr(plain, "prompts", {})
    questions, answers = ["one", "two"], ["three", "four", "five"]
    model = DenseSearch(encoder)
    model.index(rows(answers, "d"))
    run = model.search(rows(questions, "q"), top_k=2, top_ranked=ranked)
    left = plain.encode([f"ask {text}" for text in questions])
    right = plain.encode([f"tell {text}" for text in answers])
    cosines = plain.similarity(left, right).numpy()
    for n, query in enumerate(["q0", "q1"]):
        known = [0, 1, 2] if ranked is None else [int(name[1:]) for name in ranked[query]]
        best = sorted(known, key=lambda row: -cosines[n, row])[:2]
        expected = {f"d{row}": pytest.approx(float(cosines[n, row]), abs=1e-6) for row in best}
        assert run[query] == expected
        assert list(run[query]) == [f"d{row}" for row in best]


def test_the_options_of_an_encoding_reach_queries_and_documents(encoder, monkeypatch):
    seen = []
    encode = encoder.encode

    def noted(texts, **options):
        seen.append((options["role"], options.get("batch_size"), options.get("task_metadata")))
        return encode(texts, role=options["role"])

    monkeypatch.setattr(encoder, "encode", noted)
    model = DenseSearch(encoder)
    model.index(rows(DOCUMENTS, "d"))
    model.search(rows(QUERIES, "q"), top_k=1, task_metadata="task", encode_kwargs={"batch_size": 3})
    assert seen == [("query", 3, "task"), ("passage", 3, "task")]


def test_the_bench_compares_blocks_and_a_file_with_vectors_held(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    model = load_encoder("random:384", cache=False, show_progress=False)
    np.save(tmp_path / "queries.npy", model.encode(QUERIES))
    for method in ("held", "blocks", "file"):
        bench._encode_and_search(method, tmp_path, 5, 60, model)
        ids = np.load(tmp_path / f"{method}.npy")
        np.testing.assert_array_equal(ids, np.load(tmp_path / "held.npy"))
    timings = [bench.SearchTiming("held", 60, 2.0, 50.0, 1.0)]
    timings += [bench.SearchTiming("blocks", 60, 1.0, 5.0, 1.0)]
    line = bench.CorpusBench(5, 5, tuple(timings)).table().splitlines()[-1]
    assert "(x 0.50)" in line
    assert "(x 0.10)  same ids 100.0%" in line
