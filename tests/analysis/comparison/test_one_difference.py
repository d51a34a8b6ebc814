"""One pair of systems has one difference, interval and p-value on every page, by clusters."""

import itertools

import numpy as np
import pytest
from helpers.records import amend, make, state
from scipy import stats

from qwen3nb.analysis.comparison.ablation_effects import effects
from qwen3nb.analysis.comparison.differences import correction_words, paired_difference
from qwen3nb.analysis.inventory.scores import Score
from qwen3nb.analysis.stats.interference_ratio import DataSetScores, Gate, QueryScores, estimate
from qwen3nb.analysis.training.checkpoint_scores import training_summaries, trajectories
from qwen3nb.analysis.training.configuration_differences import configuration_differences
from qwen3nb.analysis.training.interference import with_clusters
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.ann import ApproximateSearch
from qwen3nb.answers.candidate_rules import breakdown
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.explorer import explore
from qwen3nb.answers.reranking import rerank_differences
from qwen3nb.datasets.collection import TestCollection, from_mteb, query_clusters
from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite, Compressed
from qwen3nb.evaluation.studies.ablation import Variant, VariantResult
from qwen3nb.models.search.faiss_index import Speed
from qwen3nb.utils.format import p_value_text

RNG = np.random.default_rng(11)
N, SIZE = 60, 5
GROUPS = [f"doc{i // SIZE:02}" for i in range(N)]
IDS = [f"q{i}" for i in range(N)]
CLUSTERS = dict(zip(IDS, GROUPS, strict=True))
BASE = RNG.uniform(0.2, 0.6, N)
# Queries of one document move together, so that the clusters widen the interval.
GAIN = np.repeat(RNG.normal(0.04, 0.1, N // SIZE), SIZE) + RNG.normal(0, 0.02, N)
OTHER = np.clip(BASE + GAIN, 0, 1)
FIRST, SECOND = "demo-checkpoint-200", "demo-checkpoint-100"


def of_scipy(first, second, level=0.95):
    """Mean and Student's interval of the sums of clusters, by hand and scipy.

    With equal clusters, the sum of a cluster is its size times its mean: the interval is that of
    the means of the clusters, which are symmetric enough here not to be widened.
    """
    means = (np.asarray(first) - np.asarray(second)).reshape(-1, SIZE).mean(axis=1)
    half = stats.t.ppf((1 + level) / 2, len(means) - 1) * stats.sem(means)
    return float(means.mean()), (means.mean() - half, means.mean() + half)


def record(label, scores, **fields):
    result = make(label, scores=dict(zip(IDS, map(float, scores), strict=True)), **fields)
    amend(result, "task", clusters=CLUSTERS)
    return result


MEAN, ENDS = of_scipy(OTHER, BASE)
RECORDS = [record(FIRST, OTHER), record(SECOND, BASE), make("bm25", [0.1] * 3, task="elsewhere")]


def compared():
    (task,) = (t for t in compare(RECORDS).tasks if t.task == RECORDS[0].task.key)
    return task.difference(FIRST, SECOND)


def test_the_interval_is_that_of_clusters_and_the_p_value_flips_clusters():
    difference = compared()
    assert difference.difference == pytest.approx(MEAN, rel=1e-9)
    assert difference.interval == pytest.approx(ENDS, rel=1e-6)
    assert difference.units == N // SIZE
    sums = (OTHER - BASE).reshape(-1, SIZE).sum(axis=1)
    flips = np.array(list(itertools.product([1, -1], repeat=len(sums))))
    exact = np.mean(np.abs(flips @ sums) >= abs(sums.sum()) - 1e-12)
    assert difference.p_value == pytest.approx(exact, abs=0.01)
    by_query = paired_difference(
        {FIRST: dict(zip(IDS, OTHER, strict=True)), SECOND: dict(zip(IDS, BASE, strict=True))},
        seed=0,
    )
    assert by_query.interval[0] > difference.interval[0]  # narrower, as if queries were alone
    assert by_query.p_value < difference.p_value


def test_the_training_page_shows_the_difference_of_the_comparison():
    (trajectory,) = trajectories(RECORDS, tasks=[RECORDS[0].task.key])
    (summary,) = training_summaries([trajectory], seed=0)
    gain, reference = summary.gain, compared()
    assert (gain.difference, gain.interval, gain.p_value) == (
        reference.difference,
        reference.interval,
        reference.p_value,
    )


def test_a_reranking_has_the_clusters_of_its_record_or_of_the_data_set():
    result = record("judge", OTHER, task="data.bm25-20")
    result.per_query["first nDCG@10"] = dict(zip(IDS, BASE.tolist(), strict=True))
    state(result, collection="data")
    (new,) = rerank_differences([result])
    reference = compared()
    assert (new.interval, new.p_value) == (reference.interval, reference.p_value)
    amend(result, "task", clusters={})  # as older records are
    searched = record("bm25", BASE, task="data")
    (old,) = rerank_differences([result], others=[searched, result])
    assert (old.interval, old.p_value) == (reference.interval, reference.p_value)
    stranger = record("bm25", BASE, task="other")  # equal ids of other data
    amend(stranger, "task", dataset="other")
    (alone,) = rerank_differences([result], others=[stranger, result])
    assert alone.units == 0


def test_an_ablation_shows_the_difference_of_the_comparison():
    outcomes = [
        VariantResult(Variant("mean"), RECORDS[1]),
        VariantResult(Variant("cls"), RECORDS[0]),
    ]
    (effect,) = effects(outcomes)
    reference = compared()
    assert effect.estimate.interval == reference.interval
    assert effect.p_value == reference.p_value  # a family of one


def test_the_explorer_shows_the_interval_of_the_comparison():
    records = [record(FIRST, OTHER), record(SECOND, BASE)]
    for result in records:
        state(result, queries=dict.fromkeys(IDS, "text"))
    sentence = str(explore(records, task=RECORDS[0].task.key).conclusion)
    low, high = compared().interval
    assert f"[{low:+.3f}, {high:+.3f}]" in sentence


def test_compressed_vectors_are_compared_by_clusters():
    whole, small = (dict(zip(IDS, map(float, s), strict=True)) for s in (OTHER, BASE))
    speed = Speed(threads=1, qps=9.0, p50=1.0, p95=2.0, singles=9)
    point = AnnPoint(
        "hnsw", "hnsw", "", None, 0.1, 9, "cpu", dict.fromkeys(IDS, 1), small, (speed,)
    )
    suite = AnnSuite(
        label="m",
        task="data",
        documents=100,
        queries=N,
        dimension=8,
        k=10,
        similarity="cosine",
        exact=whole,
        points=(point,),
        compressed=(Compressed("float32", 8, 32, whole), Compressed("int8", 8, 8, small)),
        clusters=CLUSTERS,
    )
    answer = ApproximateSearch(suite)
    (row,) = answer.compression().rows
    low, high = compared().interval
    assert row[2].interval == pytest.approx((-high, -low))
    assert f"nDCG@10 changes by {-MEAN:+.3f}." in str(answer.conclusion)
    (index_row,) = answer.table().rows
    assert any(f"[{-high:+.3f}, {-low:+.3f}]" in cell.detail for cell in index_row)


def test_configurations_and_the_ratio_of_interference_are_tested_by_clusters():
    def score(system, values, clusters=CLUSTERS):
        columns = dict(zip(IDS, map(float, values), strict=True))
        return Score(
            system, 1, "d", "nDCG@10", float(np.mean(values)), "embedding", columns, clusters
        )

    (pair,) = configuration_differences([score("a", OTHER), score("b", BASE)], seed=0)
    reference = compared()
    assert (pair.interval, pair.p_value) == (reference.interval, reference.p_value)
    assert pair.units == N // SIZE
    old, new = score("a", OTHER, {}), score("b", BASE)
    assert [each.clusters for each in with_clusters([old], [old, new])] == [CLUSTERS]


def test_the_error_of_a_ratio_over_clusters_is_that_of_their_means():
    """TIR of one pair of runs: (x g / s − y) / s per query, of which clusters are the units."""
    scores = np.stack([OTHER, BASE], axis=1)[:, :, None]  # (n, 2, 1)
    units = scores.reshape(-1, SIZE, 2, 1).mean(axis=1)
    names = tuple(sorted({*GROUPS}))
    data = DataSetScores(scores.mean(axis=0), QueryScores(names, units))
    measured = estimate("d", [1], [data], gate=Gate()).estimate
    specialist, joint = OTHER.mean(), BASE.mean()
    moved = (OTHER * joint / specialist - BASE) / specialist
    moved = moved.reshape(-1, SIZE).mean(axis=1)
    half = stats.t.ppf(0.975, len(moved) - 1) * stats.sem(moved)
    tir = (specialist - joint) / specialist
    assert measured.tir == pytest.approx(tir)
    assert measured.interval == pytest.approx((tir - half, tir + half), rel=1e-9)


def test_categories_are_compared_by_clusters():
    (task,) = (t for t in compare(RECORDS).tasks if t.task == RECORDS[0].task.key)
    half = {query: "a" if int(query[1:]) < N // 2 else "b" for query in IDS}
    rows = breakdown(task.matrix(FIRST, SECOND), half, seed=0).rows
    _, ends = of_scipy(OTHER[: N // 2], BASE[: N // 2])
    assert rows[0].interval == pytest.approx(ends, rel=0.2)  # six clusters; widened a little
    whole = dict.fromkeys(IDS, "all of them")
    (row,) = breakdown(task.matrix(FIRST, SECOND), whole, seed=0).rows
    reference = compared()
    assert (row.interval, row.p_value) == (reference.interval, reference.p_value)


def test_the_t_test_of_candidates_is_by_clusters():
    records = [record("now", BASE), record("new", OTHER)]
    row = compare_candidates(records, current="now").tables()["Differences"].rows[0]
    means = (OTHER - BASE).reshape(-1, SIZE).mean(axis=1)
    expected = stats.ttest_1samp(means, 0).pvalue
    assert any(cell.text == p_value_text(expected) for cell in row)


def test_a_collection_has_the_clusters_that_its_task_defines():
    (collection,) = from_mteb(embedded_task("PyDocsSampleRetrieval"))
    clusters = query_clusters(collection)
    assert clusters.keys() == collection.queries.keys()
    assert all(query.startswith(f"{cluster}.") for query, cluster in clusters.items())
    own = TestCollection.from_texts({"a": "x", "b": "y"}, {"d": "z"}, {"a": ["d"], "b": ["d"]})
    assert query_clusters(own) == {"a": "d", "b": "d"}


def test_a_pair_has_the_same_interval_and_p_value_whatever_else_is_compared():
    many = [*RECORDS, *(record(f"m{i}", np.clip(BASE + 0.01 * i, 0, 1)) for i in range(8))]
    (task,) = (t for t in compare(many).tasks if t.task == RECORDS[0].task.key)
    difference, alone = task.difference(FIRST, SECOND), compared()
    assert (difference.interval, difference.p_value) == (alone.interval, alone.p_value)
    assert difference.corrected >= alone.corrected
    # The corrected value depends on the family, which every text of it names.
    assert (alone.family, difference.family) == (1, 45)
    assert "corrected over 45" in str(difference)
    assert correction_words(difference.correction, difference.family) == "step-down MaxT over 45"


def test_equal_scores_are_called_identical_and_differ_by_exactly_zero():
    same = [record(FIRST, BASE), record(SECOND, BASE)]
    (task,) = compare(same).tasks
    difference = task.difference(FIRST, SECOND)
    assert difference.identical
    assert (difference.difference, difference.p_value) == (0.0, 1.0)
    assert str(difference).startswith("+0.000 (identical scores on all 60), p = 1.0000")
    assert str(difference.reversed()).startswith("+0.000 (identical")


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ({"bm25": 0.6, "wordllama": 0.3}, "bm25"),  # the strongest, whatever the order
        ({"bm25": 0.2, "wordllama": 0.3}, "wordllama"),
        ({"random": 0.6, "wordllama": 0.3}, "wordllama"),  # random vectors are no baseline
        ({"random": 0.1}, "random"),
    ],
)
def test_the_strongest_reference_model_is_the_baseline_of_a_task(others, chosen):
    ours = make("m", [0.5] * 9 + [0.4])
    theirs = [make(name, [mean] * 9 + [0.1]) for name, mean in others.items()]
    # On another task there is only the one that has most tasks.
    theirs += [make("wordllama", [0.3] * 10, task="b")] * ("wordllama" in others)
    (score,) = against_baseline([ours], theirs)
    assert score.baseline == chosen
