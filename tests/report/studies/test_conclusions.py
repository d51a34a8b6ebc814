"""What the pages of studies say in a sentence, pinned to the numbers of made results."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.records import make, noisy

from qwen3nb.evaluation.embeddings.probes import Clusters, LinearProbe, Probes, VectorSpread
from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite, Compressed
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.report.studies.ann import ann_conclusion
from qwen3nb.report.studies.probes import probes_conclusion, probes_figure
from qwen3nb.report.studies.reranking import rerank_conclusion

QUERIES = [f"q{i}" for i in range(40)]


def reranked(before, after, *, name="NFCorpus"):
    """A record of `rerank`: scores of the first stage and after, and the best order's."""
    result = make("judge", task=f"{name}.bm25", scores=after, config={"collection": name})
    columns = {"first nDCG@10": before, "oracle nDCG@10": np.full(len(after), 0.9)}
    for column, values in columns.items():
        result.per_query[column] = dict(zip(result.per_query["nDCG@10"], values, strict=True))
        result.metrics[column] = aggregate(result.per_query, how="mean", columns=(column,), seed=0)
    return result


@pytest.mark.parametrize(
    ("gain", "words"), [(0.2, "helps on"), (-0.2, "hurts on"), (0.0, "makes no significant")]
)
def test_reranking_one_data_set(gain, words):
    before, after = noisy(0.5), noisy(0.5 + gain, seed=1)
    text = str(rerank_conclusion([reranked(before, after)]))
    assert text.startswith(f"Reranking with judge {words}")
    assert f"nDCG@10 goes from {before.mean():.3f} to {after.mean():.3f}" in text
    assert f"a paired difference of {(after - before).mean():+.3f} [" in text
    assert text.endswith("n = 40. The best order of the same candidates would reach 0.900.")


def test_reranking_several_data_sets():
    records = [
        reranked(noisy(0.5), noisy(0.5 + gain, seed=i), name=f"D{i}")
        for i, gain in enumerate((0.3, 0.2, 0.0))
    ]
    text = str(rerank_conclusion(records))
    assert text.startswith(
        "Of 3 data sets, reranking with judge helps on 2 and hurts on none by a significant "
        "paired difference (the largest, on D0: +0.3"
    )
    assert str(rerank_conclusion([])) == "Nothing was reranked."


def scores(value):
    return dict.fromkeys(QUERIES, value)


def point(family, *, recall, qps, ndcg=0.5):
    speed = SimpleNamespace(threads=1, qps=qps)
    return AnnPoint(
        family, family, "", None, 0.1, 100, "cpu", scores(recall), scores(ndcg), (speed,)
    )


def suite(points, smaller=()):
    full = Compressed("float32", 8, 32, scores(0.5))
    return AnnSuite("m", "SciFact", "r", 1000, 40, 8, 10, "cosine", scores(0.5), tuple(points),
                    (full, *smaller))  # fmt: skip


def test_an_index_that_is_faster_and_one_that_is_not():
    flat = point("flat", recall=1.0, qps=100)
    fast, poor = point("hnsw", recall=0.97, qps=250), point("ivf", recall=0.5, qps=900)
    text = str(ann_conclusion(suite([flat, fast, poor])))
    assert text.startswith(
        "On 1,000 documents of SciFact, hnsw answers 2.5 times as many queries/s, with "
        "recall@10 0.970 and nDCG@10 +0.000 ["
    )
    assert text.endswith("Vectors were not compressed.")
    slow = point("hnsw", recall=0.97, qps=50)
    assert (
        "no index with a recall@10 of 0.95 is faster than exact search (100 queries/s); the next, "
        "hnsw, has recall@10 0.970"
    ) in str(ann_conclusion(suite([flat, slow])))
    assert "no approximate index reaches a recall@10 of 0.95." in str(
        ann_conclusion(suite([flat, poor]))
    )


def test_the_smallest_vectors_without_a_shown_loss():
    flat = point("flat", recall=1.0, qps=100)
    shaky = {q: 0.5 + (0.1 if i % 2 else -0.1) for i, q in enumerate(QUERIES)}
    int8, binary = Compressed("int8", 8, 8, shaky), Compressed("binary", 8, 1, scores(0.1))
    text = str(ann_conclusion(suite([flat], [int8, binary])))
    assert "No loss is shown down to 8 bytes per document instead of 32 (int8 of 8" in text
    assert text.endswith("n = 40).")
    lost = {q: 0.1 + 0.01 * (i % 2) for i, q in enumerate(QUERIES)}
    text = str(ann_conclusion(suite([flat], [Compressed("binary", 8, 1, lost)])))
    assert "All smaller vectors lose significantly (corrected by Holm's method over" in text
    assert "the least binary of 8 dimensions: -0.39" in text


def test_probes_are_said_beside_guessing():
    columns = {"x": {str(i): float(i < 30) for i in range(40)}}
    value = aggregate(columns, how="mean", columns=("x",), seed=0)
    probes = Probes(
        "m", {}, {}, Clusters({"V-measure": value}, 200, 20, (1,)),
        LinearProbe(value, value, 40, 100), VectorSpread(-2.0, 0.125, None, 40, 0),
    )  # fmt: skip
    text = str(probes_conclusion(probes))
    assert "names the right one of 20 sub-packages for 75.0% [" in text
    assert "of 40 texts, where guessing evenly is right for 5.0%" in text
    assert f"V-measure of 0.750 [{value.low:.3f}, {value.high:.3f}], n = 200." in text
    assert text.endswith("mean cosine of 0.125; 0 would be random directions.")
    assert "clusters, V-measure" in probes_figure(probes).alt
