import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.answers.ann import ApproximateSearch, frontier
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.retrieval.ann import ann_suite, compress
from qwen3nb.models.encoders.base import truncate_dimensions
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.faiss_index import FAMILIES, build_index, recall_at_k

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
    plain = 400 * 32 * 4
    least = plain / 4 if family == "sq8" else plain
    assert least < index.size < (least + 1000 if family in ("flat", "sq8") else 1e6)
    few = build_index(vectors[:50], family=family)
    assert few.search(queries, 80, few.values()[-1])[1].shape == (30, 50)


def test_parameters_reach_the_index_they_belong_to(data):
    vectors, queries = data
    ivf = build_index(vectors, family="ivf")
    assert ivf.made == "IVF10,Flat"
    assert ivf.values([1, 4, 64, 100]) == [1, 4, 10]
    for value in (0, 11, None):
        with pytest.raises(ValueError, match="nprobe"):
            ivf.search(queries, 5, value)
    with pytest.raises(ValueError, match="flat is searched with no parameter; got 3"):
        build_index(vectors, family="flat").search(queries, 5, 3)
    with pytest.raises(ValueError, match="unknown index 'annoy'; choose one of: flat"):
        build_index(vectors, family="annoy")


def test_compression_by_hand():
    """The second dimension decides: without it the wrong document comes first."""
    documents = truncate_dimensions(np.array([[0.6, 0.8], [0.8, -0.6]], np.float32), 2)
    queries = truncate_dimensions(np.array([[0.6, 0.8]], np.float32), 2)
    collection = TestCollection("c", {"a": "", "b": ""}, {"q": ""}, {"q": {"a": 1}})
    sizes = {
        (e.kind, e.dimension): e
        for e in compress(collection, documents, queries, dimensions=[1, 2, 9])
    }
    kinds = ("float32", "int8", "binary documents", "binary")
    assert [sizes[kind, 2].size for kind in kinds] == [8, 2, 1, 1]
    assert [sizes[kind, 1].size for kind in kinds] == [4, 1, 1, 1]
    assert {sizes[kind, 2].ndcg["q"] for kind in kinds} == {1.0}
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
        # With its prompt, a query is the text of a document; the first has also its id, so that the
        # document is no answer to it.
        {"d0": "d0", "q1": "d1", "q2": "d2"},
        {"d0": {"d0": 1, "d5": 1}, "q1": {"d1": 2}, "q2": {"d2": 1}},
        skip_self=True,
    )
    suite = ann_suite(
        load_encoder("random", show_progress=False).prompted({"query": "text "}),
        task=collection,
        grids={"nprobe": [1, 99], "efSearch": [16]},
        dimensions=[64],
        threads=[1],
    )
    assert suite.exact["q1"] == suite.exact["q2"] == 1.0
    assert suite.exact["d0"] < 1
    names = "flat, ivf nprobe 1, ivf nprobe 3, hnsw efSearch 16, sq8"
    assert ", ".join(point.name for point in suite.points) == names
    assert suite.points[0].ndcg == suite.points[2].ndcg == suite.exact == suite.compressed[0].ndcg
    answer = ApproximateSearch(suite)
    table = answer.table()
    assert len({len(row) for row in table.rows} | {len(table.columns)}) == 1
    assert table.rows[0][1].text == "1.000"
    assert table.rows[0][-1].detail == "+0.000 (identical scores on all 3)"
    compressed = answer.compression()
    assert [row[0].text for row in compressed.rows] == ["128", "64"]
    assert len(compressed.columns) == 1 + 4  # a column per kind of vectors
    assert answer.figure().axes[0].get_title() == "1 thread"
    with pytest.raises(ValueError, match="unknown parameter 'ef'"):
        ann_suite(load_encoder("random"), task=collection, grids={"ef": [1]})
