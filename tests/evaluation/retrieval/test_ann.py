import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb import paths
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.retrieval.ann import ann_suite, compress
from qwen3nb.execution.notebook import resolved_parameters
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.models.encoders.base import truncate_dimensions
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.faiss_index import (
    FAMILIES,
    build_index,
    measure_speed,
    recall_at_k,
    threads_of,
)
from qwen3nb.report.studies.ann import (
    ann_figure,
    ann_table,
    compression_figure,
    compression_table,
    frontier,
)

faiss = pytest.importorskip("faiss")


def unit(n, dimension=32, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(n, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Similarities to the query (1, 0): 1.0, 0.8, 0.8, 0.8, 0.0; documents 1 to 3 tie.
TIED = np.array([[1, 0], [0.8, 0.6], [0.8, -0.6], [0.8, 0.6], [0, 1]], np.float32)
QUERY = np.array([[1, 0]], np.float32)


@pytest.mark.parametrize(
    ("retrieved", "k", "recall"),
    [
        ([0, 1], 2, 1.0),
        ([0, 3], 2, 1.0),  # as near as the second neighbour, whichever that is
        ([2, 3], 2, 1.0),  # two tied at the threshold count
        ([0, 4], 2, 0.5),
        ([0, 0], 2, 0.5),  # the same document twice counts once
        ([0, -1], 2, 0.5),  # not found
        ([-1, -1], 2, 0.0),
        ([0, 1, 2, 3, 4], 10, 1.0),  # there are only five documents
        ([0, 1, 2, -1, -1], 10, 0.6),
        ([4, 0], 1, 0.0),  # only the first k count
    ],
)
def test_recall_by_hand(retrieved, k, recall):
    assert recall_at_k(np.array([retrieved]), TIED, QUERY, k=k).tolist() == [recall]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 500))
def test_exact_search_has_full_recall_and_equals_faiss(n, k, seed):
    # Few different values, so that ties are frequent.
    vectors = np.random.default_rng(seed).integers(-1, 2, size=(n, 3)).astype(np.float32)
    queries = unit(4, 3, seed)
    hits = search(queries, vectors, k=k)
    scores, ids = hits.scores, hits.ids
    assert ids.shape == (4, min(k, n))
    assert recall_at_k(ids, vectors, queries, k=k).tolist() == [1.0] * 4
    flat = faiss.IndexFlatIP(3)
    flat.add(vectors)
    theirs, their_ids = flat.search(queries, k)
    np.testing.assert_allclose(scores, theirs[:, : min(k, n)], atol=1e-6)
    assert recall_at_k(their_ids, vectors, queries, k=k).tolist() == [1.0] * 4
    for row in ids[:, :1]:
        assert (recall_at_k(row[None, :], vectors, queries[:1], k=k) <= 1).all()


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected documents"):
        recall_at_k(np.zeros((1, 1), int), TIED, unit(1, 3), k=1)
    with pytest.raises(ValueError, match="k of 1 or more"):
        recall_at_k(np.zeros((1, 1), int), TIED, QUERY, k=0)
    with pytest.raises(ValueError, match="ids of 1 queries; got 2"):
        recall_at_k(np.zeros((2, 1), int), TIED, QUERY, k=1)


@pytest.fixture(scope="module")
def data():
    return unit(400), unit(30, seed=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_index(data, family):
    vectors, queries = data
    index = build_index(vectors, family=family)
    recalls = []
    for value in index.values():
        scores, ids = index.search(queries, 10, value)
        assert scores.shape == ids.shape == (30, 10)
        recalls.append(recall_at_k(ids, vectors, queries, k=10).mean())
    assert recalls == sorted(recalls)  # more effort, no worse
    assert recalls[-1] > {"flat": 0.999, "ivf": 0.999, "hnsw": 0.99, "sq8": 0.95}.get(family, 0.3)
    again = build_index(vectors, family=family).search(queries, 10, index.values()[0])
    np.testing.assert_array_equal(again[1], index.search(queries, 10, index.values()[0])[1])
    assert index.device == "cpu"


def test_memory_is_that_of_the_index(data):
    sizes = {family: build_index(data[0], family=family).size for family in FAMILIES}
    plain = 400 * 32 * 4
    assert plain < sizes["flat"] < plain + 200
    assert sizes["hnsw"] > sizes["ivf"] > sizes["flat"]
    assert plain / 4 < sizes["sq8"] < plain / 4 + 1000
    assert plain / 32 < sizes["binary"] < plain / 32 + 200


def test_parameters_reach_the_index_they_belong_to(data):
    vectors, queries = data
    ivf = build_index(vectors, family="ivf", nlist=8)
    assert ivf.made == "IVF8,Flat"
    assert ivf.values([1, 4, 64, 100]) == [1, 4, 8]
    for value in (0, 9, None):
        with pytest.raises(ValueError, match="nprobe"):
            ivf.search(queries, 5, value)
    with pytest.raises(ValueError, match="flat is searched with no parameter; got 3"):
        build_index(vectors, family="flat").search(queries, 5, 3)
    with pytest.raises(ValueError, match="rescore is 0"):
        build_index(vectors, family="binary").search(queries, 5, None)


def test_k_beyond_the_corpus(data):
    vectors, queries = data
    for family in ("flat", "ivf", "hnsw", "sq8", "binary"):
        index = build_index(vectors[:50], family=family)
        _, ids = index.search(queries, 80, index.values()[-1])
        assert ids.shape == (30, 50)
        assert recall_at_k(ids, vectors[:50], queries, k=80).min() > 0.97


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("annoy", {}, "unknown index 'annoy'; choose one of: flat"),
        ("flat", {"nlist": 3}, "unknown option .* index: nlist"),
        ("ivf", {"efSearch": 3}, "unknown option .* index: efSearch"),
        ("ivf", {"nlist": 401}, "nlist is 401; expected 1 to 400"),
        ("hnsw", {"m": 1}, "m is 1"),
        ("pq", {"m": 5}, "m that divides the dimension"),
        ("pq", {"bits": 5}, "expected 4 or 8 bits"),
    ],
)
def test_options_that_make_no_index_are_refused(data, family, options, message):
    with pytest.raises(ValueError, match=message):
        build_index(data[0], family=family, **options)


def test_speed_is_measured_with_the_threads_asked_for(data):
    seen = []
    before = faiss.omp_get_max_threads()
    speed = measure_speed(
        lambda queries: seen.append((len(queries), faiss.omp_get_max_threads())), data[1], threads=1
    )
    assert {threads for _, threads in seen} == {1}
    assert faiss.omp_get_max_threads() == before
    assert seen[0] == (30, 1)  # warmed up with the batch, then with single queries
    assert [size for size, _ in seen[1:6]] == [1] * 5
    assert speed.singles == 30
    assert 0 < speed.p50 <= speed.p95
    assert speed.qps > 0
    with pytest.raises(ValueError, match="expected queries and threads"):
        measure_speed(len, data[1], threads=0)
    with pytest.raises(RuntimeError, match="inside"), threads_of(1):
        raise RuntimeError("inside")
    assert faiss.omp_get_max_threads() == before


def test_truncation_by_hand():
    vectors = np.array([[3, 4, 12], [0, 0, 5]], np.float32)
    np.testing.assert_allclose(truncate_dimensions(vectors, 2), [[0.6, 0.8], [0, 0]])
    np.testing.assert_allclose(truncate_dimensions(vectors, 2, unit=False), [[3, 4], [0, 0]])
    assert vectors[0, 0] == 3
    for dimension in (0, 4):
        with pytest.raises(ValueError, match="expected 1 to 3"):
            truncate_dimensions(vectors, dimension)


def test_compression_by_hand():
    """The second dimension decides: without it the wrong document comes first."""
    documents = truncate_dimensions(np.array([[0.6, 0.8], [0.8, -0.6]], np.float32), 2)
    queries = truncate_dimensions(np.array([[0.6, 0.8]], np.float32), 2)
    collection = TestCollection("c", {"a": "", "b": ""}, {"q": ""}, {"q": {"a": 1}})
    sizes = {
        (e.kind, e.dimension): e
        for e in compress(collection, documents, queries, dimensions=[1, 2, 9])
    }
    assert {key: each.size for key, each in sizes.items()} == {
        ("float32", 2): 8,
        ("int8", 2): 2,
        ("binary documents", 2): 1,
        ("binary", 2): 1,
        ("float32", 1): 4,
        ("int8", 1): 1,
        ("binary documents", 1): 1,
        ("binary", 1): 1,
    }
    for kind in ("float32", "int8", "binary documents", "binary"):
        assert sizes[kind, 2].ndcg["q"] == 1.0
    # Both prefixes have length 1, a tie, which the id decides: b before a.
    assert sizes["float32", 1].ndcg["q"] == pytest.approx(1 / np.log2(3))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_the_frontier_equals_its_definition(points):
    def beaten(p):
        return any(o != p and o[0] >= p[0] and o[1] >= p[1] for o in points)

    assert frontier(points) == sorted({p for p in points if not beaten(p)})


@pytest.mark.integration
def test_a_task_from_end_to_end():
    names = [f"d{i}" for i in range(120)]
    collection = TestCollection(
        "mine",
        {name: f"text {name}" for name in names},
        # The first query has the id and the text of a document, which is no answer to it.
        {"d0": "text d0", "q1": "text d1", "q2": "text d2"},
        {"d0": {"d0": 1, "d5": 1}, "q1": {"d1": 2}, "q2": {"d2": 1}},
        skip_self=True,
    )
    suite = ann_suite(
        load_encoder("random", show_progress=False),
        task=collection,
        grids={"nprobe": [1, 99], "efSearch": [16], "rescore": [1]},
        dimensions=[64],
        threads=[1],
    )
    assert suite.exact["q1"] == suite.exact["q2"] == 1.0
    assert suite.exact["d0"] < 1
    assert [point.name for point in suite.points] == [
        "flat",
        "ivf nprobe 1",
        "ivf nprobe 3",
        "hnsw efSearch 16",
        "pq",
        "sq8",
        "binary rescore 1",
    ]
    assert suite.points[0].ndcg == suite.points[2].ndcg == suite.exact == suite.compressed[0].ndcg
    table = ann_table(suite)
    assert len({len(row) for row in table.rows} | {len(table.columns)}) == 1
    assert table.rows[0][1].text == "1.000"
    # All of the few queries tie, which says little about others.
    assert table.rows[0][-1].detail == "+0.000 [-1.000, +1.000]"
    assert len(compression_table(suite).rows) == 8
    assert ann_figure(suite).axes[0].get_title() == "1 thread"
    assert len(compression_figure(suite).axes[0].lines) == 4
    with pytest.raises(ValueError, match="unknown parameter 'ef'"):
        ann_suite(load_encoder("random"), task=collection, grids={"ef": [1]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"indexes": "flat,tree"}, "unknown index 'tree'"),
        ({"nprobe": "0"}, "nprobe is 0"),
        ({"ef_search": "16,x"}, "invalid literal"),
        ({"threads": "-1"}, "threads is -1"),
        ({"k": 0}, "k is 0"),
        ({"efSearch": "16"}, "unknown parameter 'efSearch'; did you mean 'ef_search'"),
    ],
)
def test_the_notebook_refuses_before_it_runs(checkout, given, message):
    with pytest.raises(ParameterError, match=message):
        resolved_parameters(paths.find_notebook("ann"), {"checkpoint": "random", **given})
