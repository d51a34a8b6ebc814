"""Means over benchmarks: by hand, and as MTEB's own leaderboard table computes them."""

import math

import pytest
from helpers.records import amend, benchmark_record, make, tier_records

from qwen3nb.analysis.comparison.alignment import scores_by
from qwen3nb.analysis.comparison.benchmark_means import (
    benchmark_columns,
    column_matrices,
    column_mean,
    counted_tasks,
    main_score,
    missing_tasks,
    tier_columns,
)
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.comparison import compare
from qwen3nb.records.record import MTEBScore, read_record
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS, Benchmark

MODEL = "intfloat/e5-base-v2"  # MTEB lists only models that it knows
FORUMS = GROUPS["CQADupstackRetrieval"]


def means(results, tier="full"):
    return {column.name: column_mean(column, results) for column in tier_columns(tier)}


def test_the_columns_of_a_tier_are_never_over_two_benchmarks_or_metrics():
    shown = [(each.name, each.over, each.measure) for each in tier_columns("full")]
    assert shown[:4] == [
        ("BEIR", "15 tasks", "nDCG@10"),
        ("BEIR without MS MARCO", "14 tasks", "nDCG@10"),
        ("MS MARCO dev", "1 task", "MRR@10"),
        ("MTEB(eng, v2) Mean (Task)", "41 tasks", "main score"),
    ]
    assert [tier_columns(name) for name in ("smoke", "pydocs", "fast")] == [(), (), ()]
    for column in tier_columns("full"):
        assert math.fsum(column.weights.values()) == pytest.approx(1, abs=1e-12)
        assert set(column.weights) <= set(TIERS["full"].task_keys)


def test_a_benchmark_by_hand_counts_a_group_once_and_names_what_is_missing():
    benchmark = Benchmark(
        "BEIR", {"Retrieval": ("CQADupstackRetrieval", "MSMARCO", "SciFact")}, metric="nDCG@10"
    )
    whole, without = benchmark_columns(benchmark)
    records = [make("m", [0.12 + 0.24 * (i == 0)], task=each) for i, each in enumerate(FORUMS)]
    records += [make("m", [0.8], task="MSMARCO"), make("m", [0.5], task="SciFact")]
    # The forums: (0.36 + 11 * 0.12) / 12 = 0.14.
    assert column_mean(whole, records).value == pytest.approx((0.14 + 0.8 + 0.5) / 3)
    assert column_mean(without, records).value == pytest.approx((0.14 + 0.5) / 2)
    eleven = column_mean(whole, records[1:])
    assert (eleven.value, eleven.missing, eleven.measured) == (None, FORUMS[:1], 2)
    assert eleven.gaps == ("CQADupstackRetrieval (11 of 12 parts)",)
    none = column_mean(without, [])
    assert (none.measured, none.gaps) == (0, ("CQADupstackRetrieval", "SciFact"))


def test_the_interval_of_a_mean_combines_those_of_its_tasks():
    benchmark = Benchmark("B", {"STS": ("A", "C")}, metric="nDCG@10")
    (column,) = benchmark_columns(benchmark)
    records = [make("m", task=each) for each in "AC"]
    main = records[0].main
    mean = column_mean(column, records)
    assert mean.value == pytest.approx(main.value)
    # Two equal, independent tasks: the distance shrinks by the root of two.
    assert mean.value - mean.interval[0] == pytest.approx((main.value - main.low) / math.sqrt(2))
    assert mean.interval[1] - mean.value == pytest.approx((main.high - main.value) / math.sqrt(2))
    amend(records[0], "task", mteb=MTEBScore("ndcg_at_10", 0.9))
    assert column_mean(column, records).value == pytest.approx(main.value)  # its own metric counts


def test_mtebs_main_score_counts_where_a_benchmark_has_no_metric_of_its_own():
    (column,) = benchmark_columns(Benchmark("M", {"STS": ("A",)}))
    record = make("m", task="A")
    assert main_score(record) == record.main.value
    amend(record, "task", mteb=MTEBScore("map_at_1000", 0.25))
    mean = column_mean(column, [record])
    assert (mean.value, mean.interval) == (0.25, None)
    amend(record, "task", mteb=MTEBScore("ndcg_at_10", record.main.value))
    assert column_mean(column, [record]).interval == pytest.approx(
        (record.main.low, record.main.high)
    )


@pytest.mark.integration
def test_means_equal_those_of_mtebs_own_tables():
    import mteb
    import polars

    from qwen3nb.evaluation.mteb.select import task_key

    benchmark = mteb.get_benchmark("MTEB(eng, v2)")
    types = {task_key(task): task.metadata.type for task in benchmark.tasks}
    ours = BENCHMARKS["MTEB(eng, v2)"]
    assert {key: kind for kind, keys in ours.types.items() for key in keys} == types
    records = {key: benchmark_record("m", key, seed=7) for key in types}
    frame = polars.DataFrame(
        [
            {
                "model_name": MODEL,
                "model_revision": "1",
                "task_name": task.metadata.name,
                "split": split,
                "subset": subset,
                "score": main_score(records[task_key(task)]),
            }
            for task in benchmark.tasks
            for split in task.eval_splits
            for subset in task.hf_subsets
        ]
    )
    (row,) = benchmark._create_summary_table(frame).df.to_dicts()
    mine = means(records.values())
    for name in ("Mean (Task)", "Mean (TaskType)"):
        assert mine[f"MTEB(eng, v2) {name}"].value == pytest.approx(row[name], abs=1e-12)
    for kind in ours.types:
        assert mine[kind].value == pytest.approx(row[kind], abs=1e-12)


@pytest.mark.parametrize("absent", ["NQ", "CQADupstackGisRetrieval"])
def test_a_mean_that_no_model_has_whole_says_of_how_many_tasks_it_is(absent):
    """A group with a missing part is missing whole: 14 of the 15 tasks of BEIR are left."""
    tasks = [part for task in BENCHMARKS["BEIR"].tasks for part in GROUPS.get(task, (task,))]
    there = [task for task in tasks if task != absent]
    scores = {"a": [0.5, 0.7], "b": [0.2, 0.5]}
    records = [make(name, scores[name], task=task) for task in there for name in scores]
    beir, retrieval = compare(records, tier="full").means
    assert beir.metric == "mean nDCG@10 of 14 of 15 tasks"
    size = len(BENCHMARKS["MTEB(eng, v2)"].types["Retrieval"])
    assert f" of {size} tasks" in retrieval.metric
    table = rank_table(standings(records, tier="full"))
    assert "BEIR\nmean of 14 of 15 tasks" in table.columns
    name = {"NQ": "NQ"}.get(absent, "CQADupstack")
    assert f"BEIR without {name}" in table.method
    whole = records + [make(name, scores[name], task=absent) for name in scores]
    assert compare(whole, tier="full").means[0].metric == "mean nDCG@10 of 15 tasks"
    assert "BEIR without" not in rank_table(standings(whole, tier="full")).method


def test_missing_tasks_of_rankings_without_a_benchmark_are_not_counted():
    assert counted_tasks(["A", "B"], "") == "2 tasks"
    assert counted_tasks(["A"], "all tasks") == "1 task"
    assert missing_tasks(["A"], "all tasks") == []
    kind = "MTEB(eng, v2): Summarization"
    assert missing_tasks(BENCHMARKS["MTEB(eng, v2)"].types["Summarization"], kind) == []


def test_means_share_the_scores_of_their_tasks():
    """A task of MTEB is of the mean over all tasks and of that of its type."""
    results = [*tier_records("a", mean=0.4), *tier_records("b", mean=0.6)]
    over_tasks, _, *by_type = [
        column for column in tier_columns("full") if "MTEB" in column.benchmark
    ]
    joined = {}
    matrices = {
        matrix.task: matrix for matrix in column_matrices(results, over_tasks, joined=joined)
    }
    assert len(matrices) == 41
    for column in by_type:
        shared = column_matrices(results, column, joined=joined)
        alone = column_matrices(results, column)
        assert [matrix.task for matrix in shared] == [matrix.task for matrix in alone]
        for matrix, same in zip(shared, alone, strict=True):
            assert matrix is matrices[matrix.task]
            assert (matrix.scores == same.scores).all()


def test_scores_of_a_record_are_read_when_they_are_needed(tmp_path, monkeypatch):
    file = make("a", [0.25, 0.75], task="SciFact", metric="nDCG@10").save(tmp_path)
    stored, _ = read_record(file)
    reads = []
    read = type(stored.scores).array

    def counted(scores, column):
        reads.append(column)
        return read(scores, column)

    monkeypatch.setattr(type(stored.scores), "array", counted)
    column = scores_by("nDCG@10", stored)
    before = len(reads)
    assert column.scores.tolist() == [0.25, 0.75]
    assert len(reads) == before + 1
