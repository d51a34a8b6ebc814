"""A task in parts, such as languages, counts as one task, with the mean over its parts."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.records import amend, make

from qwen3nb.analysis.comparison.alignment import by_part, clusters_across_parts, pair_results
from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.comparison.plan import Plan, make_plan
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, centred_in_parts, join
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.landing import headline_lead
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.query_scores import rows_of_parts
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Part

TWO_PARTS = {
    "a": {"test/de/0": 0.9, "test/de/1": 0.5, "test/en/0": 0.8},
    "b": {"test/de/0": 0.6, "test/de/1": 0.4, "test/en/0": 0.3},
}


def in_parts(label, scores, *, task="T", metric="accuracy", **fields):
    """A record of a task with a subset per language, from the ids of its queries."""
    record = make(label, scores, task=task, metric=metric, **fields)
    prefixes = dict.fromkeys(query.rpartition("/")[0] + "/" for query in scores)
    scores_of = record.per_query
    parts = []
    for prefix in prefixes:
        split, subset, _ = prefix.split("/")
        score = aggregate(scores_of, how="mean", columns=(metric,), parts=(prefix,))
        parts.append(Part(split, subset, (f"{subset}-Latn",), score, score.value))
    whole = aggregate(scores_of, how="mean", columns=(metric,), parts=tuple(prefixes))
    return replace(record, parts=tuple(parts), metrics={metric: whole})


def whole_matrix(scores) -> ScoreMatrix:
    records = [in_parts(label, of_queries) for label, of_queries in scores.items()]
    (matrix,), _ = pair_results(records, whole=True)
    return matrix


def test_a_difference_over_parts_by_hand():
    """Parts count alike: (0.7 + 0.8) / 2 against (0.5 + 0.3) / 2, and query 0 is one cluster.

    Query 0 adds 0.3 / 4 + 0.5 / 2 to the difference, and query 1 adds 0.1 / 4. Two of the four
    sign flips of 0.325 and 0.025 are as far from 0 as their sum. Deviations are within parts.
    """
    matrix = whole_matrix(TWO_PARTS)
    assert matrix.task == "T"
    assert matrix.scores.mean(axis=1) == pytest.approx([0.75, 0.4])
    (difference,) = paired_differences(matrix, seed=0)
    assert (difference.n, difference.units) == (3, 2)
    assert difference.difference == pytest.approx(0.35)
    assert difference.p_value == 0.5
    rows = matrix.column("a") - matrix.column("b")
    assert matrix.unit_values(rows, centred=False) == pytest.approx([0.65, 0.05])
    assert centred_in_parts(rows, matrix.parts) == pytest.approx([0.425, 0.275, 0.35])
    assert matrix.to_frame()["a"].to_dict() == pytest.approx(TWO_PARTS["a"])


def test_translations_tell_no_more_than_one_language():
    """The same scores again in a second language leave interval and p-value as they were."""
    random = np.random.default_rng(0)
    german = {label: random.uniform(size=30) for label in ("a", "b")}
    once, twice = {}, {}
    for label, values in german.items():
        once[label] = {f"{row}": value for row, value in enumerate(values)}
        twice[label] = {
            f"test/{language}/{query}": value
            for language in ("de", "en")
            for query, value in once[label].items()
        }
    (alone,) = paired_differences(join(once), seed=0)
    (both,) = paired_differences(whole_matrix(twice), seed=0)
    assert both.n == 2 * alone.n
    assert both.interval == pytest.approx(alone.interval)
    assert both.p_value == alone.p_value


def test_parts_that_differ_do_not_widen_an_interval():
    scores = {
        "a": {f"test/{part}/{row}": 0.5 for part in ("de", "en") for row in range(9)},
        "b": {f"test/de/{row}": 0.2 for row in range(9)}
        | {f"test/en/{row}": 0.6 for row in range(9)},
    }
    matrix = whole_matrix(scores)
    rows = matrix.column("a") - matrix.column("b")
    assert matrix.unit_values(rows) == pytest.approx(np.full(9, 0.1))
    # Half of the queries: the parts count alike, whatever is left of them.
    some = matrix.at([0, 9, 10, 11])
    assert some.parts == ("test/de/", "test/en/", "test/en/", "test/en/")
    assert some.scores.mean(axis=1) == pytest.approx([0.5, 0.4])
    again = some.at([1, 0, 3])  # of parts that were unequal before
    assert again.scores.mean(axis=1) == pytest.approx([0.5, 0.4])


def test_clusters_that_records_have_hold_across_parts():
    record = in_parts("a", TWO_PARTS["a"])
    by_id = {"test/de/0": "0", "test/de/1": "1", "test/en/0": "0"}
    assert clusters_across_parts([record]) == by_id
    amend(record, "task", clusters=dict.fromkeys(by_id, "one document"))
    assert set(clusters_across_parts([record]).values()) == {"one document"}


def test_the_rows_of_a_part_are_those_with_its_prefix():
    queries = ("test/en/1", "test/en-GB/1", "test/de/2", "test/en/0", "test/de/10")
    rows = rows_of_parts(queries, ["test/en/", "test/de/", "test/fr/", ""])
    assert {part: list(of_part) for part, of_part in rows.items()} == {
        "test/en/": [3, 0],
        "test/de/": [4, 2],
        "test/fr/": [],
        "": [4, 2, 1, 3, 0],
    }


def test_the_parts_of_a_task_are_one_task_of_the_data():
    parts = by_part([in_parts("a", TWO_PARTS["a"], revision="local-1")])
    assert [part.task.key for part in parts] == ["T-de", "T-en"]
    assert [part.task.whole for part in parts] == ["T", "T"]
    assert DataUsed.of(parts) == DataUsed(frozenset({"T"}), frozenset({"T"}))


WITH_PARTS, WITHOUT = "NusaX-senti", "OdiaNewsClassification"  # of the tier multilingual


def multilingual(label, shift):
    """The records of a model on two tasks, of which one has parts of unlike sizes."""
    sizes = {"ace": 12, "ban": 24}
    of_parts = {
        f"test/{part}/{row}": shift + 0.1 * (row % 3) + 0.2 * (part == "ban")
        for part, size in sizes.items()
        for row in range(size)
    }
    alone = {f"q{row}": shift + 0.05 * (row % 4) for row in range(20)}
    records = [
        in_parts(label, of_parts, task=WITH_PARTS, revision="local-1"),
        make(label, alone, task=WITHOUT, metric="accuracy", revision="local-1"),
    ]
    for record in records:
        amend(record, "task", type="Classification")
    return records


def test_a_benchmark_counts_and_ranks_tasks_in_parts_as_whole_tasks():
    """(0.1 + 0.3) / 2 and 0.075 above the shift: the mean of the two tasks is 0.1375 above it."""
    records = [*multilingual("good", 0.5), *multilingual("bm25", 0.3)]
    comparison = compare(records, tier="multilingual")
    assert {task.task for task in comparison.tasks} == {WITH_PARTS, WITHOUT}
    (mean,) = comparison.means
    assert {part.task for part in mean.parts} == {WITH_PARTS, WITHOUT}
    assert mean.metric == "mean main score of 2 of 29 tasks"
    scores = {record.model.label: record.main.value for record in comparison.scored(mean.task)}
    assert scores == pytest.approx({"good": 0.6375, "bm25": 0.4375})
    assert mean.with_baseline[0].difference == pytest.approx(0.2)
    assert comparison.data_used().tasks == {WITH_PARTS, WITHOUT}
    assert "counts with the mean over its parts" in comparison.table().method
    alone = comparison.differences_table(task=WITHOUT)
    assert "mean over its parts" not in alone.method
    board = leaderboard(records, tier="multilingual", comparison=comparison)
    assert board.task == mean.task
    page = headline_lead(comparison, task=board.task, results=records)
    assert "No model has results" not in page
    assert "2 of 2 tasks on other data" in page
    assert "good" in board.conclusion.text


def test_a_model_alone_is_named_with_its_score_on_a_task_in_parts():
    records = multilingual("good", 0.5)[:1]
    board = leaderboard(records, tier="multilingual")
    page = headline_lead(board.comparison, task=board.task, results=records)
    assert "is the only model so far" in page


def test_a_plan_knows_the_queries_of_a_task_in_parts():
    plan = Plan(baseline="bm25", models=("good",), tasks=(WITH_PARTS,), margin=0.02)
    records = [*multilingual("good", 0.5), *multilingual("bm25", 0.3)]
    _, (planned,) = make_plan(records, plan)
    assert (planned.there, planned.measured) == (36, ("bm25", "good"))


def test_a_correlation_over_parts_is_the_mean_of_theirs():
    """In one part cosines rise with the grades, in the other they fall: the mean is 0."""
    rows = range(8)
    cosines, grades = {}, {}
    for part, sign in (("de", 1), ("en", -1)):
        for row in rows:
            cosines[f"test/{part}/{row}"] = sign * row / 10
            grades[f"test/{part}/{row}"] = float(row)
    record = in_parts("a", cosines, metric="cosine")
    score = replace(record.metrics["cosine"], how="spearman", columns=("cosine", "gold"))
    amend(record, "task", name="IndicCrosslingualSTS", type="STS", main_metric="Spearman")
    record = replace(
        record, per_query={"cosine": cosines, "gold": grades}, metrics={"Spearman": score}
    )
    comparison = compare([record], tier="multilingual")
    assert comparison.on("IndicCrosslingualSTS").mean_of("a") == pytest.approx(0.0)
